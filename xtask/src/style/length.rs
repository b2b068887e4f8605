//! The length of source files, and the number of them in a folder. A file of one main type or rule has 100 to 200 lines; one
//! above the limit is two things in one. In a folder with too many files nobody finds the one to change.

use std::collections::BTreeMap;

use crate::{findings::Findings, workspace::Workspace};

/// Lines of a source file, its tests not counted.
const LINES_MAX: usize = 400;

/// Source files in one folder, without those in inner folders.
const FILES_MAX: usize = 25;

/// Files that may be longer, and why each is one thing nevertheless.
const EXCEPTIONS: &[(&str, &str)] = &[];

/// Checks the length of every source file, and the number of files in every folder of sources.
pub(super) fn check(workspace: &Workspace, files: &[String]) -> anyhow::Result<Findings> {
    let mut findings = Findings::default();
    for path in files.iter().filter(|path| is_source(path)) {
        let lines = lines_without_tests(&workspace.read(path)?);
        let exception = EXCEPTIONS.iter().any(|(of, _)| of == path);
        if lines > LINES_MAX && !exception {
            findings.add(
                path,
                format_args!("{lines} lines without tests, above {LINES_MAX}: which two things is it?"),
            );
        } else if lines <= LINES_MAX && exception {
            findings.add(
                path,
                format_args!("{lines} lines: take it off the exceptions in xtask/src/style/length.rs"),
            );
        }
    }
    for (path, _) in EXCEPTIONS.iter().filter(|(path, _)| !files.iter().any(|file| file == path)) {
        findings.add(path, "is not there: take it off the exceptions in xtask/src/style/length.rs");
    }
    for (folder, count) in crowded(files) {
        findings.add(
            folder,
            format_args!("{count} source files, above {FILES_MAX}: give those of one subject a folder"),
        );
    }
    Ok(findings)
}

/// Folders with too many source files, and how many they have.
fn crowded(files: &[String]) -> impl Iterator<Item = (&str, usize)> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (folder, _) in files.iter().filter(|path| is_source(path)).filter_map(|path| path.rsplit_once('/')) {
        *counts.entry(folder).or_default() += 1;
    }
    counts.into_iter().filter(|(_, count)| *count > FILES_MAX)
}

fn is_source(path: &str) -> bool {
    path.ends_with(".rs") && !path.contains("/tests/") && !path.ends_with("/tests.rs")
}

/// Lines before the tests at the end of a file.
fn lines_without_tests(text: &str) -> usize {
    let mut lines = text.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        let module_follows =
            lines.peek().is_some_and(|(_, next)| next.starts_with("mod ") && next.ends_with('{'));
        if line == "#[cfg(test)]" && module_follows {
            return number;
        }
    }
    text.lines().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_too_many_files_is_found() {
        let files =
            |folder: &str, count: usize| (0..count).map(move |n| format!("{folder}/f{n:02}.rs")).collect();
        let all: [Vec<String>; 3] = [files("a/src", 26), files("a/src/b", 25), files("a/tests/it", 26)];
        assert_eq!(crowded(&all.concat()).collect::<Vec<_>>(), [("a/src", 26)]);
    }

    #[test]
    fn tests_are_not_counted() {
        assert_eq!(lines_without_tests("a\nb\n#[cfg(test)]\nmod tests {\n}\n"), 2);
        assert_eq!(lines_without_tests("a\n#[cfg(test)]\nmod tests;\nb\n"), 4);
        assert!(is_source("crates/core/src/task.rs"));
        assert!(!is_source("crates/core/tests/it/story.rs"));
        assert!(!is_source("crates/windlass/src/flowfile/tests.rs"));
    }
}

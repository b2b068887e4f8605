//! What has no place in the tree: paths of somebody's machine, and hosts of package registries (a mirror or an
//! offline machine has others; only the lock file names the index).

use crate::{findings::Findings, workspace::Workspace};

/// Texts that must not occur, put together here so that this file does not hold them itself.
const NEVER: &[(&str, &str)] = &[
    (concat!("/", "root/"), "a path of somebody's machine"),
    (concat!("/", "work/"), "a path of somebody's machine"),
    (concat!("/", "Users/"), "a path of somebody's machine"),
    (concat!("crates", ".io"), "a registry's host"),
    (concat!("docs", ".rs/"), "a registry's host"),
    (concat!("pypi", ".org"), "a registry's host"),
    (concat!("npmjs", ".org"), "a registry's host"),
    (concat!("proxy.golang", ".org"), "a registry's host"),
    (concat!("deb.debian", ".org"), "a registry's host"),
];

/// Files that name the index because Cargo writes or compares it.
const EXCEPTIONS: &[&str] = &["Cargo.lock"];

/// Checks all text files.
pub(super) fn check(workspace: &Workspace, files: &[String]) -> Findings {
    let mut findings = Findings::default();
    for path in files.iter().filter(|path| !EXCEPTIONS.contains(&path.as_str())) {
        // Files that are not UTF-8 are not ours to read.
        let Ok(text) = workspace.read(path) else { continue };
        for (line, word, reason) in unwanted(&text) {
            findings.add(format_args!("{path}:{line}"), format_args!("`{word}` is {reason}"));
        }
    }
    findings
}

/// Unwanted texts with the number of their line. A path counts only where it begins.
fn unwanted(text: &str) -> Vec<(usize, &'static str, &'static str)> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for (word, reason) in NEVER {
            let begins = |at: usize| {
                let before = line[..at].chars().next_back();
                !word.starts_with('/') || before.is_none_or(|c| !c.is_alphanumeric() && !"_-./}".contains(c))
            };
            if line.match_indices(word).any(|(at, _)| begins(at)) {
                found.push((index + 1, *word, *reason));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unwanted_words_are_found_where_they_begin() {
        let path = concat!("/", "root/x");
        let text = format!("ok\ncd {path}\nexamples{path} and $HOME{path}");
        let lines: Vec<usize> = unwanted(&text).into_iter().map(|(line, ..)| line).collect();
        assert_eq!(lines, [2], "a path inside another one is fine");
        assert_eq!(unwanted(concat!("see index.crates", ".io")).len(), 1);
    }
}

//! ARCHITECTURE.md: short, naming every crate, and naming nothing that is not there.

use crate::{findings::Findings, metadata::Metadata, workspace::Workspace};

const FILE: &str = "ARCHITECTURE.md";

/// A map that takes longer than this to read is not read.
const LINES_MAX: usize = 300;

/// What a path in the text begins with; the rest of the text in backticks is code.
const ROOTS: &[&str] = &["crates/", "xtask/", "docs/", "examples/", "bench/", "sdk/", ".ci/"];

/// Checks the map against the folders.
pub(super) fn check(workspace: &Workspace, metadata: &Metadata) -> anyhow::Result<Findings> {
    let text = workspace.read(FILE)?;
    let mut findings = Findings::default();
    let lines = text.lines().count();
    if lines > LINES_MAX {
        findings.add(FILE, format_args!("{lines} lines, above {LINES_MAX}: move details to docs/"));
    }
    for (line, path) in paths(&text) {
        if !workspace.path(path).exists() {
            findings.add(format_args!("{FILE}:{line}"), format_args!("there is no `{path}`"));
        }
    }
    for package in metadata.members() {
        let folder = metadata.folder(package);
        if !paths(&text).any(|(_, path)| path.trim_end_matches('/') == folder) {
            findings
                .add(FILE, format_args!("does not name `{folder}`: say what the crate does and does not do"));
        }
    }
    Ok(findings)
}

/// Paths in backticks with the number of their line.
fn paths(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().flat_map(|(index, line)| {
        let quoted = line.split('`').skip(1).step_by(2);
        let is_path = |word: &&str| {
            ROOTS.iter().any(|root| word.starts_with(root)) && !word.contains(|c: char| "*<>{} ".contains(c))
        };
        quoted.filter(is_path).map(move |path| (index + 1, path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_told_from_code() {
        let text = "see `crates/core/` and `core::apply`\n`docs/a.md`, `crates/*/src`, docs/b.md";
        assert_eq!(paths(text).collect::<Vec<_>>(), [(1, "crates/core/"), (2, "docs/a.md")]);
    }
}

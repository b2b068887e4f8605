//! The page of problems lists those that the server returns, and no others.

use std::collections::BTreeSet;

use crate::{findings::Findings, workspace::Workspace};

/// Where problems are made.
const SOURCES: &[&str] =
    &["crates/windlass/src/http/answer/problem.rs", "crates/windlass/src/http/answer/errors.rs"];

/// Where they are described.
const PAGE: &str = "docs/reference/problems.md";

pub(super) fn check(workspace: &Workspace) -> anyhow::Result<Findings> {
    let mut made = BTreeSet::new();
    for source in SOURCES {
        made.extend(made_in(&workspace.read(source)?));
    }
    Ok(compare(&made, &described(&workspace.read(PAGE)?)))
}

fn compare(made: &BTreeSet<String>, described: &BTreeSet<String>) -> Findings {
    let mut findings = Findings::default();
    for name in made.difference(described) {
        findings.add(
            PAGE,
            format_args!("the problem `{name}` is missing: say when it is returned and what to do"),
        );
    }
    for name in described.difference(made) {
        findings.add(PAGE, format_args!("the problem `{name}` is returned nowhere: remove it"));
    }
    findings
}

/// The names of problems in a source: the first string of each `Self::new(…)`, and constants with such a name.
fn made_in(source: &str) -> BTreeSet<String> {
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    let first_string = |text: &str| text.split('"').nth(1).map(str::to_owned);
    let calls = source.split("Self::new(").skip(1).filter_map(|call| {
        let arguments = call.split(';').next().unwrap_or_default();
        // A constant comes before any string.
        if arguments
            .split(',')
            .nth(1)
            .is_some_and(|name| name.trim().starts_with(|c: char| c.is_ascii_uppercase()))
        {
            return None;
        }
        first_string(arguments)
    });
    let constants = source.lines().filter(|line| line.starts_with("const ") && line.contains(": &str = "));
    let names = calls.chain(constants.filter_map(first_string));
    names.filter(|name| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')).collect()
}

/// The names in the first column of the page's tables.
fn described(page: &str) -> BTreeSet<String> {
    let cells = page.lines().filter_map(|line| line.strip_prefix("| `"));
    cells.filter_map(|cell| Some(cell.split_once("` |")?.0.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_and_what_is_too_much_is_found() {
        let source = "const DOWN: &str = \"shutting-down\";\nconst TEXT: &str = \"Some words\";\n\
                      Self::new(StatusCode::NOT_FOUND, \"unknown-task\", \"There is no such task\", detail)\n}\n\
                      let status = StatusCode::X;\nSelf::new(status, DOWN, \"The server is shutting down\", detail);\n\
                      Self::new(\n  StatusCode::X,\n  \"store-full\",\n  \"The store\", d);\n#[cfg(test)]\nSelf::new(s, \"test\");";
        let made = made_in(source);
        assert_eq!(
            made.iter().map(String::as_str).collect::<Vec<_>>(),
            ["shutting-down", "store-full", "unknown-task"]
        );
        let page = "| name | status |\n|---|---|\n| `store-full` | 507 |\n| `gone` | 404 |\n| `unknown-task` | 404 |";
        let findings = compare(&made, &described(page));
        let lines = findings.lines();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(
            lines[0].contains("`shutting-down` is missing")
                && lines[1].contains("`gone` is returned nowhere")
        );
    }
}

//! What a reader can rely on: files of a size to read, a code map that is true, links that lead somewhere, plain words.

mod code_map;
mod length;
pub(crate) mod links;
mod lints;
mod problems;
mod prose;
mod voice;
mod words;

pub(crate) use voice::bless;

use crate::{findings::Findings, metadata::Metadata, workspace::Workspace};

/// Checks all of it.
pub(crate) fn check(workspace: &Workspace) -> anyhow::Result<Findings> {
    let files = workspace.files()?;
    let metadata = Metadata::load(workspace)?;
    let mut findings = Findings::default();
    findings.extend(length::check(workspace, &files)?);
    findings.extend(code_map::check(workspace, &metadata)?);
    findings.extend(links::check(workspace, &files)?);
    findings.extend(problems::check(workspace)?);
    findings.extend(lints::check(workspace, &metadata)?);
    findings.extend(words::check(workspace, &files));
    findings.extend(voice::check(workspace, &files)?);
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_project_keeps_to_its_style() {
        let findings = check(&Workspace::of_this_crate()).unwrap();
        assert_eq!(findings.lines(), &[] as &[String]);
    }
}

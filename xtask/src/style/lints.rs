//! `unsafe` is forbidden everywhere: once in the workspace's lints, which every crate takes over.

use toml::Table;

use crate::{findings::Findings, metadata::Metadata, workspace::Workspace};

/// The one crate with unsafe code, which is not part of any program: it has the lints of the workspace but that one.
const UNSAFE: &str = "windlass-powercut";

/// Checks the manifests.
pub(super) fn check(workspace: &Workspace, metadata: &Metadata) -> anyhow::Result<Findings> {
    let mut findings = Findings::default();
    let root: Table = toml::from_str(&workspace.read("Cargo.toml")?)?;
    if lookup(&root, &["workspace", "lints", "rust", "unsafe_code"]).and_then(toml::Value::as_str)
        != Some("forbid")
    {
        findings.add("Cargo.toml", "must forbid `unsafe_code` in [workspace.lints.rust]");
    }
    for package in metadata.members() {
        let path = format!("{}/Cargo.toml", metadata.folder(package));
        let manifest: Table = toml::from_str(&workspace.read(&path)?)?;
        if package.name == UNSAFE {
            let lint = lookup(&manifest, &["lints", "rust", "unsafe_code"]).and_then(toml::Value::as_str);
            if lint != Some("deny") {
                findings.add(path, "must deny `unsafe_code` but where it is allowed by name");
            }
            continue;
        }
        if lookup(&manifest, &["lints", "workspace"]).and_then(toml::Value::as_bool) != Some(true) {
            findings.add(path, "must take over the lints of the workspace: [lints] workspace = true");
        }
    }
    Ok(findings)
}

fn lookup<'a>(table: &'a Table, path: &[&str]) -> Option<&'a toml::Value> {
    let (last, parents) = path.split_last()?;
    let parent = parents.iter().try_fold(table, |table, key| table.get(*key)?.as_table())?;
    parent.get(*last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_by_its_path() {
        let table: Table = toml::from_str("[a.b]\nc = \"x\"").unwrap();
        assert_eq!(lookup(&table, &["a", "b", "c"]).and_then(toml::Value::as_str), Some("x"));
        assert_eq!(lookup(&table, &["a", "c"]), None);
    }
}

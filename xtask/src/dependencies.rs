//! The dependencies against `deny.toml`: licences, bans, sources.
//!
//! `cargo deny` is what that file is written for, and runs where it is installed. It is a large program that takes
//! longer to compile than all our tests, so it is not installed for this; the same three rules, as far as the file
//! uses them, are checked here from what Cargo knows. Known vulnerabilities need a database from the network:
//! `cargo deny check advisories`, by those who can fetch it.

use std::collections::BTreeMap;

use anyhow::Context as _;
use serde::Deserialize;

use crate::{
    findings::Findings,
    licence,
    metadata::{Metadata, Package},
    workspace::Workspace,
};

/// The only place packages may come from, as the lock file names it.
const REGISTRY: &str = concat!("registry+https://github.com/rust-lang/crates", ".io-index");

/// The part of `deny.toml` that is checked here.
#[derive(Debug, Deserialize)]
struct Rules {
    licenses: Licences,
    bans: Bans,
}

#[derive(Debug, Deserialize)]
struct Licences {
    allow: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Bans {
    deny: Vec<Ban>,
}

#[derive(Debug, Deserialize)]
struct Ban {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
}

/// Checks the dependencies, with `cargo deny` as well where it is installed.
pub(crate) fn check(workspace: &Workspace) -> anyhow::Result<Findings> {
    let rules: Rules = toml::from_str(&workspace.read("deny.toml")?).context("deny.toml cannot be read")?;
    let metadata = Metadata::load(workspace)?;
    let mut findings = Findings::default();
    for package in &metadata.packages {
        check_package(package, &rules, &mut findings);
    }
    for (name, versions) in duplicates(&metadata.packages) {
        println!("note: {name} is there in {} versions: {}", versions.len(), versions.join(", "));
    }
    if workspace.output("cargo", &["deny", "--version"]).is_ok() {
        workspace.run("cargo", &["deny", "--locked", "check", "bans", "licenses", "sources"])?;
    } else {
        println!(
            "note: `cargo deny` is not installed; its rules were checked without it, advisories were not"
        );
    }
    Ok(findings)
}

fn check_package(package: &Package, rules: &Rules, findings: &mut Findings) {
    let place = format!("{} {}", package.name, package.version);
    match package.license.as_deref().map(|text| (text, licence::is_met(text, &rules.licenses.allow))) {
        Some((_, Ok(true))) => {}
        Some((text, Ok(false))) => {
            findings.add(&place, format_args!("its licence {text:?} is not among those of deny.toml"));
        }
        Some((text, Err(fault))) => findings.add(&place, format_args!("licence {text:?}: {fault}")),
        None => findings.add(&place, "names no licence"),
    }
    if let Some(ban) = rules.bans.deny.iter().find(|ban| ban.name == package.name) {
        findings.add(&place, format_args!("is banned: {}", ban.reason));
    }
    if let Some(source) = package.source.as_deref().filter(|source| *source != REGISTRY) {
        findings.add(&place, format_args!("comes from {source}: only the registry is allowed"));
    }
}

/// Packages that are there in several versions. Each costs compile time; some cannot be helped.
fn duplicates(packages: &[Package]) -> BTreeMap<&str, Vec<&str>> {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages {
        versions.entry(&package.name).or_default().push(&package.version);
    }
    versions.retain(|_, versions| versions.len() > 1);
    versions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(licence: Option<&str>, source: Option<&str>) -> Package {
        let json = serde_json::json!({
            "id": "x", "name": "x", "version": "1.0.0", "license": licence, "source": source,
            "dependencies": [], "manifest_path": "x/Cargo.toml",
        });
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn each_rule_finds_what_breaks_it() {
        let rules = |ban: &str| Rules {
            licenses: Licences { allow: vec!["MIT".to_owned()] },
            bans: Bans { deny: vec![Ban { name: ban.to_owned(), reason: "because".to_owned() }] },
        };
        let found = |package: &Package, ban: &str| {
            let mut findings = Findings::default();
            check_package(package, &rules(ban), &mut findings);
            findings.to_string()
        };
        assert_eq!(found(&package(Some("MIT"), Some(REGISTRY)), "y"), "");
        assert_eq!(found(&package(Some("MIT"), None), "y"), "");
        assert!(found(&package(Some("GPL-3.0-only"), None), "y").contains("is not among those of deny.toml"));
        assert!(found(&package(None, None), "y").contains("names no licence"));
        assert!(found(&package(Some("MIT"), None), "x").contains("is banned: because"));
        assert!(
            found(&package(Some("MIT"), Some("git+https://example.org")), "y").contains("comes from git")
        );
    }
}

//! What Cargo knows of the packages: as much of `cargo metadata` as the checks need.

use std::path::Path;

use serde::Deserialize;

use crate::workspace::Workspace;

/// All packages of the lock file.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    workspace_members: Vec<String>,
    workspace_root: String,
}

/// One package in one version.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) dependencies: Vec<Dependency>,
    manifest_path: String,
}

/// A dependency as its user names it.
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `dev` or `build`; nothing for a normal one.
    pub(crate) kind: Option<String>,
}

impl Metadata {
    /// Asks Cargo.
    pub(crate) fn load(workspace: &Workspace) -> anyhow::Result<Self> {
        let json = workspace
            .output("cargo", &["metadata", "--format-version", "1", "--locked", "--all-features"])?;
        Ok(serde_json::from_str(&json)?)
    }

    /// The crates of this workspace.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| self.workspace_members.contains(&package.id))
    }

    /// The folder of a crate of this workspace, relative to its root.
    pub(crate) fn folder<'a>(&self, package: &'a Package) -> &'a str {
        let folder =
            package.manifest().parent().and_then(|folder| folder.strip_prefix(&self.workspace_root).ok());
        folder.and_then(Path::to_str).unwrap_or_default()
    }
}

impl Package {
    /// Where its manifest is.
    pub(crate) fn manifest(&self) -> &Path {
        Path::new(&self.manifest_path)
    }
}

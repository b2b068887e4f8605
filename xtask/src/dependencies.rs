//! The dependencies against `deny.toml`: licences, bans, sources.
//!
//! Known vulnerabilities need a database from the network: `cargo deny check advisories`, by those who can fetch it.

use anyhow::Context as _;

use crate::workspace::Workspace;

/// The version that is installed where there is none.
const VERSION: &str = "0.20.2";

/// Checks the dependencies with `cargo deny`, which is installed first where it is missing (some minutes, once).
pub(crate) fn check(workspace: &Workspace) -> anyhow::Result<()> {
    if workspace.output("cargo", &["deny", "--version"]).is_err() {
        println!("installing cargo-deny {VERSION}");
        workspace
            .run("cargo", &["install", "--quiet", "--locked", "cargo-deny", "--version", VERSION])
            .context("cargo-deny cannot be installed")?;
    }
    workspace.run("cargo", &["deny", "--locked", "check", "bans", "licenses", "sources"])
}

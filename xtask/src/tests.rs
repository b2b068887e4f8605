//! The tests of the workspace: compiled at once, then run one program after the other, each with two threads per core.
//!
//! Not side by side: with the tests of brokers beside the others, clusters of servers took longer than tests wait for them.

use std::{collections::BTreeMap, path::PathBuf, process::Command};

use anyhow::Context as _;
use serde::Deserialize;

use crate::{
    lanes::{self, Job},
    metadata::Metadata,
    workspace::Workspace,
};

/// What Cargo reports about a target that it compiled.
#[derive(Debug, Deserialize)]
struct Artifact {
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
}

#[derive(Debug, Deserialize)]
struct Profile {
    test: bool,
}

/// What all tests are compiled with, as arguments of Cargo.
fn what(features: &str) -> [&str; 4] {
    ["--locked", "--workspace", "--features", features]
}

/// Compiles all tests, and the programs that they run.
fn compile(workspace: &Workspace, features: &str) -> anyhow::Result<Vec<Artifact>> {
    let compile = ["test", "--no-run", "--message-format", "json-render-diagnostics"];
    let compiled = workspace.output_shown("cargo", &[&compile[..], &what(features)].concat())?;
    Ok(compiled.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// Returns the path of a program that the tests run. The tests have compiled it. A build without the tests would select other
/// features of the dependencies, and compile most dependencies again.
pub(crate) fn program(workspace: &Workspace, features: &str, name: &str) -> anyhow::Result<PathBuf> {
    let is_program = |artifact: &Artifact| {
        artifact.target.as_ref().is_some_and(|target| target.name == name)
            && artifact.profile.as_ref().is_some_and(|profile| !profile.test)
    };
    let mut artifacts = compile(workspace, features)?.into_iter().filter(is_program);
    let program = artifacts.find_map(|artifact| artifact.executable);
    program.with_context(|| format!("the tests run no program `{name}`"))
}

/// Compiles and runs all tests, those in documentation included.
pub(crate) fn check(workspace: &Workspace, features: &str) -> anyhow::Result<()> {
    let compiled = compile(workspace, features)?;
    let metadata = Metadata::load(workspace)?;
    let packages: BTreeMap<PathBuf, &str> =
        metadata.members().map(|package| (package.manifest().to_owned(), package.name.as_str())).collect();
    // They wait more than they compute.
    let threads = 2 * std::thread::available_parallelism()?.get();
    let mut jobs = Vec::new();
    for artifact in compiled {
        let (Some(manifest), Some(target), Some(program)) =
            (artifact.manifest_path, artifact.target, artifact.executable)
        else {
            continue;
        };
        if artifact.profile.is_none_or(|profile| !profile.test) {
            continue;
        }
        let package = packages.get(&manifest).copied().unwrap_or_default();
        let folder = manifest.parent().context("a manifest is in a folder")?;
        let mut command = Command::new(program);
        // As Cargo does.
        command.current_dir(folder).env("CARGO_MANIFEST_DIR", folder);
        workspace.note_skips_of(&mut command);
        command.env("RUST_TEST_THREADS", threads.to_string());
        jobs.push(Job { name: format!("tests of {package}: {}", target.name), command });
    }
    let doc = workspace.command("cargo", &[&["test", "--doc"], &what(features)[..]].concat());
    jobs.push(Job { name: "tests in documentation".to_owned(), command: doc });
    lanes::run(vec![jobs])
}

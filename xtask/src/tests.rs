//! Runs all tests. Cargo compiles them in one build. Then CI runs the test programs that start servers, one after another. The
//! other test programs run concurrently with these, at idle priority.
//!
//! The servers keep the processors busy. When CI ran two programs with servers concurrently, clusters of Java and Erlang servers
//! started so slowly that tests timed out, and coordinators expired sessions.

use std::{collections::BTreeMap, path::PathBuf, process::Command};

use anyhow::Context as _;
use serde::Deserialize;

use crate::{
    lanes::{self, Job, idle},
    metadata::{Metadata, Package},
    workspace::Workspace,
};

/// The package that starts servers for tests.
const TESTKIT: &str = "windlass-testkit";

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

/// Returns the path of a program from the test build. A build without the tests would select other dependency features and
/// compile most dependencies again.
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
    let packages: BTreeMap<PathBuf, &Package> =
        metadata.members().map(|package| (package.manifest().to_owned(), package)).collect();
    // Tests with servers wait more than they compute.
    let threads = 2 * std::thread::available_parallelism()?.get();
    let (mut with_servers, mut computing) = (Vec::new(), Vec::new());
    for artifact in compiled {
        let (Some(manifest), Some(target), Some(program)) =
            (artifact.manifest_path, artifact.target, artifact.executable)
        else {
            continue;
        };
        if artifact.profile.is_none_or(|profile| !profile.test) {
            continue;
        }
        let package = packages
            .get(&manifest)
            .with_context(|| format!("{} belongs to no package of the workspace", manifest.display()))?;
        let folder = manifest.parent().context("a manifest is in a folder")?;
        let mut command = Command::new(program);
        // `cargo test` sets the same folder and variable.
        command.current_dir(folder).env("CARGO_MANIFEST_DIR", folder);
        workspace.note_skips_of(&mut command);
        let name = format!("tests of {}: {}", package.name, target.name);
        if starts_servers(package) {
            command.env("RUST_TEST_THREADS", threads.to_string());
            with_servers.push(Job { name, command });
        } else {
            computing.push(Job { name, command: idle(&command) });
        }
    }
    let doc = workspace.command("cargo", &[&["test", "--doc"], &what(features)[..]].concat());
    computing.push(Job { name: "tests in documentation".to_owned(), command: idle(&doc) });
    lanes::run(vec![with_servers, computing])
}

fn starts_servers(package: &Package) -> bool {
    package.name == TESTKIT || package.dependencies.iter().any(|dependency| dependency.name == TESTKIT)
}

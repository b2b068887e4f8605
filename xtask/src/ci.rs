//! Everything that must pass before a change lands, cheap things first. What only computes runs beside what mostly waits for
//! servers, and gets the time of processors that the other leaves.

use std::{panic::resume_unwind, path::Path, thread};

use crate::{
    dependencies, drill, edges, instructions,
    lanes::{self, Job},
    metadata::Metadata,
    package, shellcheck, sim, site,
    skipped::Skipped,
    style,
    tally::Tally,
    tests,
    workspace::{Workspace, run_to_success},
};

/// A part: its name, and what it does.
type Part = (&'static str, fn(&Workspace) -> anyhow::Result<()>);

/// Everything that the program can have in it; `--all-features` would plant bugs for the simulator.
const FULL: &str = "windlass/full";

const PARTS: &[Part] = &[
    ("format", |workspace| workspace.run("cargo", &["fmt", "--all", "--check"])),
    ("edges", |workspace| edges::check(workspace)?.into_result()),
    ("style", |workspace| style::check(workspace)?.into_result()),
    ("dependencies", dependencies::check),
    ("shell scripts", |workspace| shellcheck::check(workspace)?.into_result()),
    ("clippy", |workspace| clippy(workspace, &["--workspace", "--all-targets", "--all-features"])),
    // The whole workspace switches on what any of its crates needs; this finds what one of them forgot to ask for.
    ("each crate by itself", |workspace| {
        let metadata = Metadata::load(workspace)?;
        metadata.members().try_for_each(|package| clippy(workspace, &["--package", &package.name]))
    }),
    ("without default features", |workspace| {
        clippy(workspace, &["--package", "windlass-stores", "--no-default-features"])?;
        clippy(workspace, &["--package", "windlass", "--no-default-features"])?;
        // A part that only other products use is unused without them.
        for product in ["consul", "etcd", "zookeeper"] {
            clippy(workspace, &["--package", "windlass-coordinators", "--features", product])?;
        }
        clippy(workspace, &["--package", "windlass-client", "--features", "coordinators"])
    }),
    // With private items: the pages are for those who work on it, and modules link to their parts.
    ("documentation", |workspace| {
        let mut command = workspace
            .command("cargo", &["doc", "--locked", "--workspace", "--no-deps", "--document-private-items"]);
        command.args(["--features", FULL]);
        command.env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private-intra-doc-links");
        run_to_success(command)
    }),
    ("site", |workspace| site::build(workspace, Path::new("target/site"), None)),
    ("examples", |workspace| {
        let files = workspace.files()?;
        files.iter().filter(|path| is_test_of_example(path)).try_for_each(|test| workspace.run("sh", &[test]))
    }),
    ("tests", |workspace| tests::check(workspace, FULL)),
    ("package", package::check),
    ("drills", drill::check),
];

/// Parts that run beside [`WAITING`] and those after it, one after the other. They have a build profile of their own.
const COMPUTING: &[Part] = &[
    ("instructions", |workspace| instructions::check(workspace)?.into_result()),
    ("simulation", sim::check),
];

/// The first part that mostly waits.
const WAITING: &str = "tests";

/// An example may have a test of its own commands, which needs no server: `examples/NAME/test.sh`.
fn is_test_of_example(path: &str) -> bool {
    path.starts_with("examples/") && path.ends_with("/test.sh")
}

fn clippy(workspace: &Workspace, what: &[&str]) -> anyhow::Result<()> {
    workspace.run("cargo", &[&["clippy", "--locked"], what, &["--", "-D", "warnings"]].concat())
}

/// The names of all parts.
pub(crate) fn names() -> Vec<&'static str> {
    PARTS.iter().chain(COMPUTING).map(|(name, _)| *name).collect()
}

/// Runs all parts, or only these, and says at the end what was skipped.
pub(crate) fn run(workspace: Workspace, only: &[String]) -> anyhow::Result<()> {
    let skipped = Skipped::note(&workspace)?;
    let workspace = &workspace.noting_skips(skipped.path());
    let mut tally = Tally::default();
    if only.is_empty() {
        run_all(workspace, &mut tally);
    } else {
        let parts = PARTS.iter().chain(COMPUTING).filter(|(name, _)| only.iter().any(|only| only == name));
        parts.for_each(|(name, part)| tally.run(name, || part(workspace)));
    }
    let result = tally.into_result();
    if let Some(report) = skipped.report() {
        println!("\n{report}");
    }
    result
}

fn run_all(workspace: &Workspace, tally: &mut Tally) {
    let waiting = PARTS.iter().position(|(name, _)| *name == WAITING).unwrap_or(PARTS.len());
    let (before, beside) = PARTS.split_at(waiting);
    before.iter().for_each(|(name, part)| tally.run(name, || part(workspace)));
    thread::scope(|scope| {
        let computing = scope.spawn(|| lanes::run(vec![vec![computing(workspace)?]]));
        beside.iter().for_each(|(name, part)| tally.run(name, || part(workspace)));
        let names: Vec<&str> = COMPUTING.iter().map(|(name, _)| *name).collect();
        tally.run(&names.join(" and "), || computing.join().unwrap_or_else(|panic| resume_unwind(panic)));
    });
}

/// The computing parts as a process that runs only while nothing else wants a processor.
fn computing(workspace: &Workspace) -> anyhow::Result<Job> {
    let names: Vec<&str> = COMPUTING.iter().map(|(name, _)| *name).collect();
    let mut command = workspace.command("chrt", &["--idle", "0"]);
    command.arg(std::env::current_exe()?).arg("ci");
    for name in &names {
        command.args(["--part", name]);
    }
    Ok(Job { name: names.join(" and "), command })
}

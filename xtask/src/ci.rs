//! Everything that must pass before a change lands, cheap things first. `instructions` and `simulation` run beside the other parts at
//! idle priority.

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

/// What takes seconds.
const CHEAP: &[Part] = &[
    ("format", |workspace| workspace.run("cargo", &["fmt", "--all", "--check"])),
    ("edges", |workspace| edges::check(workspace)?.into_result()),
    ("style", |workspace| style::check(workspace)?.into_result()),
    ("dependencies", dependencies::check),
    ("shell scripts", |workspace| shellcheck::check(workspace)?.into_result()),
];

const PARTS: &[Part] = &[
    ("clippy", |workspace| clippy(workspace, &["--workspace", "--all-targets", "--all-features"])),
    // The whole workspace switches on what any of its crates needs; this finds what one of them forgot to ask for.
    ("each crate by itself", |workspace| {
        let metadata = Metadata::load(workspace)?;
        metadata.members().try_for_each(|package| clippy(workspace, &["--package", &package.name]))?;
        // As it is released.
        clippy(workspace, &["--package", "windlass", "--features", "full"])
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
    ("package", |workspace| package::check(workspace, &tests::program(workspace, FULL, "windlass")?)),
    ("drills", |workspace| drill::check(workspace, |name| tests::program(workspace, FULL, name))),
];

/// What runs at idle priority, in a process beside [`PARTS`]. It has another build profile: with the same one, Cargo would let the two
/// wait for each other.
const COMPUTING: &[Part] = &[
    ("instructions", |workspace| instructions::check(workspace)?.into_result()),
    ("simulation", sim::check),
];

/// An example may have a test of its own commands, which needs no server: `examples/NAME/test.sh`.
fn is_test_of_example(path: &str) -> bool {
    path.starts_with("examples/") && path.ends_with("/test.sh")
}

fn clippy(workspace: &Workspace, what: &[&str]) -> anyhow::Result<()> {
    workspace.run("cargo", &[&["clippy", "--locked"], what, &["--", "-D", "warnings"]].concat())
}

fn parts() -> impl Iterator<Item = &'static Part> {
    [CHEAP, PARTS, COMPUTING].into_iter().flatten()
}

/// The names of all parts.
pub(crate) fn names() -> Vec<&'static str> {
    parts().map(|(name, _)| *name).collect()
}

/// Runs all parts, or only these, and says at the end what was skipped.
pub(crate) fn run(workspace: Workspace, only: &[String]) -> anyhow::Result<()> {
    let skipped = Skipped::note(&workspace)?;
    let workspace = &workspace.noting_skips(skipped.path());
    let mut tally = Tally::default();
    let run = |tally: &mut Tally, (name, part): &Part| tally.run(name, || part(workspace));
    if only.is_empty() {
        CHEAP.iter().for_each(|part| run(&mut tally, part));
        thread::scope(|scope| {
            let computing = scope.spawn(|| lanes::run(vec![vec![computing(workspace)?]]));
            PARTS.iter().for_each(|part| run(&mut tally, part));
            let result = computing.join().unwrap_or_else(|panic| resume_unwind(panic));
            tally.run("instructions and simulation", || result);
        });
    } else {
        let chosen = parts().filter(|(name, _)| only.iter().any(|only| only == name));
        chosen.for_each(|part| run(&mut tally, part));
    }
    let result = tally.into_result();
    if let Some(report) = skipped.report() {
        println!("\n{report}");
    }
    result
}

/// [`COMPUTING`] as a process that runs only while nothing else wants a processor.
fn computing(workspace: &Workspace) -> anyhow::Result<Job> {
    let mut command = workspace.command(std::env::current_exe()?, &["ci"]);
    for (name, _) in COMPUTING {
        command.args(["--part", name]);
    }
    Ok(Job { name: "instructions and simulation".to_owned(), command: lanes::idle(&command) })
}

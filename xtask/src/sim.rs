//! The simulator: the real engine in deterministic worlds that fail (`crates/sim`).

use crate::workspace::Workspace;

/// Events that CI delivers in worlds that are the same in every run, and in worlds that no run had before.
const FIXED_STEPS: &str = "1500000";
const FRESH_STEPS: &str = "5000000";

/// Runs the simulator with these arguments. It is built so that bugs can be planted; none is, unless asked for.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> anyhow::Result<()> {
    let commit = commit(workspace);
    let build = [
        "run",
        "--locked",
        "--quiet",
        "--release",
        "--package",
        "windlass-sim",
        "--features",
        "planted",
        "--",
        "--commit",
        &commit,
    ];
    let arguments: Vec<&str> = build.into_iter().chain(arguments.iter().map(String::as_str)).collect();
    workspace.run("cargo", &arguments)
}

/// What must pass before a change lands: some millions of events without a violation, most of them in fresh worlds, and every planted
/// bug found.
pub(crate) fn check(workspace: &Workspace) -> anyhow::Result<()> {
    run(workspace, &["--steps".to_owned(), FIXED_STEPS.to_owned()])?;
    run(workspace, &["--fresh".to_owned(), "--steps".to_owned(), FRESH_STEPS.to_owned()])?;
    run(workspace, &["--planted".to_owned()])
}

/// The checked-out commit, for reports. The mark `-dirty` means that files differ from the commit. `.ci/run` sets `COMMIT_TESTED`,
/// because CI does not compile in the clone itself.
fn commit(workspace: &Workspace) -> String {
    let describe = ["describe", "--always", "--abbrev=12", "--dirty", "--exclude", "*"];
    let described = std::env::var("COMMIT_TESTED").or_else(|_| workspace.output("git", &describe));
    described.map_or_else(|_| "unknown".to_owned(), |commit| commit.trim().to_owned())
}

//! The simulator: the real engine in deterministic worlds that fail (`crates/sim`).

use crate::workspace::Workspace;

/// Events that CI delivers.
const STEPS: &str = "5000000";

/// Runs the simulator with these arguments. It is built so that bugs can be planted; none is, unless asked for.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> anyhow::Result<()> {
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
    ];
    let arguments: Vec<&str> = build.into_iter().chain(arguments.iter().map(String::as_str)).collect();
    workspace.run("cargo", &arguments)
}

/// What must pass before a change lands: some millions of events without a violation, and every planted bug found.
pub(crate) fn check(workspace: &Workspace) -> anyhow::Result<()> {
    run(workspace, &["--steps".to_owned(), STEPS.to_owned()])?;
    run(workspace, &["--planted".to_owned()])
}

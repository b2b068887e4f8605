//! `windlass task`: one file per bigger verb.

mod bulk;
mod change;
mod events;
#[cfg(test)]
pub(crate) mod fixture;
mod hints;
mod list;
mod live;
mod logs;
mod members;
mod rerun;
mod resolve;
mod show;
mod signal;
mod start;
mod steps;
mod wait;
mod watch;
mod why;

use clap::{Args, Subcommand};

use super::{connection::Context, exit::Exit};
use change::Change;

/// Commands for tasks.
#[derive(Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// Start a task; prints its id
    Start(start::StartArgs),
    /// List tasks, newest first
    List(list::ListArgs),
    /// Show a task and its steps, or the items of one step
    Show(show::ShowArgs),
    /// Show the steps of a task live, or its events on a pipe, until it ends or is stuck
    ///
    /// On a terminal the steps are redrawn in place. Elsewhere each event is a line, and with -o json only the
    /// ended or stuck task is printed. The exit code reports the result.
    Watch(IdArg),
    /// Wait until each of the tasks has ended or is stuck; the exit code reports the result
    Wait(IdArgs),
    /// Print the events of a task
    Events(events::EventsArgs),
    /// Print the log lines of a task's attempts
    Logs(logs::LogsArgs),
    /// Explain why a task is in its current state
    Why(IdArg),
    /// Cancel tasks, by id or filter: steps that may have had effects are rolled back
    Cancel(bulk::ChangeArgs),
    /// Pause tasks, by id or filter: no step starts, running steps finish or are stopped
    Pause(bulk::PauseArgs),
    /// Resume paused tasks, by id or filter
    Resume(bulk::ChangeArgs),
    /// Run an ended task again, from one of its steps; prints the id of the new task
    Rerun(rerun::RerunArgs),
    /// Decide how a stuck or held step continues
    Resolve(resolve::ResolveArgs),
    /// Send a signal that a step waits for
    Signal(signal::SignalArgs),
}

/// One task.
#[derive(Debug, Args)]
pub(crate) struct IdArg {
    /// Id of the task
    #[arg(value_name = "ID")]
    id: String,
}

/// One or more tasks.
#[derive(Debug, Args)]
pub(crate) struct IdArgs {
    /// Ids of the tasks
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
}

impl TaskCommand {
    /// Runs the command.
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        match self {
            Self::Start(args) => args.run(context).await,
            Self::List(args) => args.run(context).await,
            Self::Show(args) => args.run(context).await,
            Self::Watch(IdArg { id }) => watch::run(&id, context).await,
            Self::Wait(IdArgs { ids }) => wait::run(&ids, context).await,
            Self::Events(args) => args.run(context).await,
            Self::Logs(args) => args.run(context).await,
            Self::Why(IdArg { id }) => why::run(&id, context).await,
            Self::Cancel(args) => args.run(Change::Cancel, context).await,
            Self::Pause(args) => args.run(context).await,
            Self::Resume(args) => args.run(Change::Resume, context).await,
            Self::Rerun(args) => args.run(context).await,
            Self::Resolve(args) => args.run(context).await,
            Self::Signal(args) => args.run(context).await,
        }
    }
}

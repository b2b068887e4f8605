//! `windlass task cancel|pause|resume` with a filter in place of ids: counts the tasks, asks for
//! confirmation, changes them.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use clap::Args;
use jiff::Timestamp;
use windlass_api::{BulkAction, BulkAnswer, BulkChange, BulkFilter, TaskStatus};

use super::change::{self, Change};
use crate::cli::{
    connection::Context,
    exit::{Exit, UsageError},
    output::time::parse_past,
    params::{parse_label, status_parser},
};

/// The most calls for one command. Each call changes up to 10,000 tasks.
const CALLS_MAX: usize = 1000;

/// The tasks: ids, or a filter.
#[derive(Debug, Args)]
pub(crate) struct ChangeArgs {
    /// Ids of the tasks
    #[arg(
        value_name = "ID",
        conflicts_with_all = ["status", "flow", "labels", "since", "until"],
    )]
    ids: Vec<String>,

    /// In place of ids: all with this status; several with commas between them
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = status_parser(|status| !status.is_ended()))]
    status: Vec<TaskStatus>,

    /// All of this flow
    #[arg(long, value_name = "FLOW")]
    flow: Option<String>,

    /// All with this label; given more than once, all labels must match
    #[arg(long = "label", value_name = "K=V", value_parser = parse_label)]
    labels: Vec<(String, String)>,

    /// All accepted since this time: RFC 3339, or 15m ago
    #[arg(long, value_name = "TIME", value_parser = parse_past)]
    since: Option<Timestamp>,

    /// All accepted until this time: RFC 3339, or 15m ago
    #[arg(long, value_name = "TIME", value_parser = parse_past)]
    until: Option<Timestamp>,

    /// Do not ask for confirmation
    #[arg(short = 'y', long, conflicts_with = "ids")]
    yes: bool,
}

/// The tasks to pause, and whether to stop what runs.
#[derive(Debug, Args)]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    tasks: ChangeArgs,

    /// Also stop what runs; it runs again after the resume
    #[arg(long)]
    stop: bool,
}

impl PauseArgs {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        self.tasks.run(if self.stop { Change::Stop } else { Change::Pause }, context).await
    }
}

impl ChangeArgs {
    /// Changes the tasks named, or all that match the filter.
    pub(crate) async fn run(self, change: Change, context: &Context) -> anyhow::Result<Exit> {
        if !self.ids.is_empty() {
            return change::run(change, &self.ids, context).await;
        }
        let action = action(change);
        if self.means_all() {
            return Err(UsageError(format!(
                "no tasks selected to {}: give ids, or a filter with --flow, --label, \
                 --status, --since or --until",
                action.as_str()
            ))
            .into());
        }
        let mut bulk = BulkChange { action, filter: self.filter(), expect: None };
        let count = context.client.bulk(&bulk).await?.matched;
        let mut sum = BulkAnswer { matched: count, done: 0, refused: 0, left: count };
        if count > 0 && !self.yes && !is_wanted(action, count)? {
            return Ok(Exit::Failed);
        }
        for _ in 0..CALLS_MAX {
            if sum.left == 0 {
                break;
            }
            bulk.expect = Some(sum.left);
            let answer = context.client.bulk(&bulk).await?;
            (sum.done, sum.refused) = (sum.done + answer.done, sum.refused + answer.refused);
            sum.left = answer.left;
            if answer.done == 0 {
                break;
            }
        }
        context.output.show(&sum, |sum, _| render(action, sum))?;
        Ok(if sum.left == 0 { Exit::Done } else { Exit::Failed })
    }

    /// Whether neither ids nor a filter are given: this must not select all tasks.
    fn means_all(&self) -> bool {
        let filters =
            [!self.status.is_empty(), self.flow.is_some(), self.since.is_some(), self.until.is_some()];
        self.ids.is_empty() && self.labels.is_empty() && !filters.contains(&true)
    }

    fn filter(&self) -> BulkFilter {
        BulkFilter {
            status: self.status.clone(),
            flow: self.flow.clone(),
            labels: self.labels.iter().cloned().collect(),
            since: self.since.map(|time| time.to_string()),
            until: self.until.map(|time| time.to_string()),
        }
    }
}

fn action(change: Change) -> BulkAction {
    match change {
        Change::Cancel => BulkAction::Cancel,
        Change::Pause => BulkAction::Pause,
        Change::Stop => BulkAction::Stop,
        Change::Resume => BulkAction::Resume,
    }
}

/// Asks the operator at the terminal.
fn is_wanted(action: BulkAction, count: u64) -> anyhow::Result<bool> {
    if !io::stdin().is_terminal() {
        return Err(UsageError(format!(
            "cannot ask whether to {} {count} tasks: standard input is not a terminal; add --yes",
            action.as_str()
        ))
        .into());
    }
    eprint!("{} {count} task{}? [y/N] ", action.as_str(), if count == 1 { "" } else { "s" });
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn render(action: BulkAction, sum: &BulkAnswer) -> String {
    let done = match action {
        BulkAction::Cancel => "cancelled",
        BulkAction::Pause => "paused",
        BulkAction::Stop => "paused and stopped",
        BulkAction::Resume => "resumed",
    };
    let mut text = format!("{} of {} tasks {done}", sum.done, sum.matched);
    if sum.refused > 0 {
        text.push_str(&format!(", {} had changed meanwhile", sum.refused));
    }
    if sum.left > 0 {
        text.push_str(&format!(", {} left", sum.left));
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: ChangeArgs,
    }

    fn parse(words: &[&str]) -> Result<ChangeArgs, clap::Error> {
        Line::try_parse_from(["cancel"].iter().chain(words)).map(|line| line.args)
    }

    #[test]
    fn it_is_ids_or_a_filter_and_never_nothing() {
        assert!(parse(&[]).unwrap().means_all());
        assert!(parse(&["--yes"]).unwrap().means_all());
        assert!(!parse(&["a"]).unwrap().means_all() && !parse(&["--flow", "f"]).unwrap().means_all());
        assert!(parse(&["some-id", "--flow", "f"]).is_err());
        assert!(parse(&["some-id", "--yes"]).is_err());
        assert!(parse(&["--status", "succeeded"]).is_err(), "it has ended");
        assert_eq!(parse(&["a", "b"]).unwrap().ids, ["a", "b"]);
        let filter =
            parse(&["--flow", "f", "--label", "team=a", "--status", "running,paused", "-y"]).unwrap();
        assert!(filter.yes);
        let filter = filter.filter();
        assert_eq!(
            (filter.flow.as_deref(), &*filter.status),
            (Some("f"), &[TaskStatus::Running, TaskStatus::Paused][..])
        );
        assert_eq!(filter.labels["team"], "a");
    }

    #[test]
    fn what_was_not_done_is_told() {
        let sum = BulkAnswer { matched: 10, done: 7, refused: 1, left: 2 };
        assert_eq!(
            render(BulkAction::Pause, &sum),
            "7 of 10 tasks paused, 1 had changed meanwhile, 2 left\n"
        );
    }
}

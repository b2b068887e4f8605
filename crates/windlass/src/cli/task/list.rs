//! `windlass task list`.

use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser as _},
};
use jiff::Timestamp;
use windlass_api::{Task, TaskStatus};
use windlass_client::TaskFilter;

use super::steps::task_status;
use crate::cli::{
    connection::Context,
    exit::Exit,
    output::{Format, Style},
    params::parse_label,
    table::Table,
    time::{age, parse_past},
};

/// All statuses, as users see them.
pub(super) const STATUSES: [TaskStatus; 11] = [
    TaskStatus::Scheduled,
    TaskStatus::Pending,
    TaskStatus::Running,
    TaskStatus::Pausing,
    TaskStatus::Paused,
    TaskStatus::RollingBack,
    TaskStatus::Succeeded,
    TaskStatus::RolledBack,
    TaskStatus::Failed,
    TaskStatus::Cancelled,
    TaskStatus::Stuck,
];

/// Which tasks to list.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only those in this status
    #[arg(long, value_name = "STATUS", value_parser = PossibleValuesParser::new(STATUSES.map(TaskStatus::as_str)).try_map(|word| status_of(&word)))]
    status: Option<TaskStatus>,

    /// Only those of this flow
    #[arg(long, value_name = "FLOW")]
    flow: Option<String>,

    /// Only those with this label; all of them when given more than once
    #[arg(long = "label", value_name = "K=V", value_parser = parse_label)]
    labels: Vec<(String, String)>,

    /// Only those accepted since then: RFC 3339, or 15m ago
    #[arg(long, value_name = "TIME", value_parser = parse_past)]
    since: Option<Timestamp>,

    /// Only those accepted until then: RFC 3339, or 15m ago
    #[arg(long, value_name = "TIME", value_parser = parse_past)]
    until: Option<Timestamp>,

    /// At most this many, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,

    /// Go on where a list before ended: its `next`
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
}

impl ListArgs {
    /// Runs the command.
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let filter = TaskFilter {
            status: self.status,
            flow: self.flow,
            labels: self.labels,
            since: self.since.map(|time| time.to_string()),
            until: self.until.map(|time| time.to_string()),
            cursor: self.cursor,
            limit: Some(self.limit),
        };
        let tasks = context.client.tasks(&filter).await?;
        context.output.show(&tasks, |tasks, style| render(&tasks.items, Timestamp::now(), style))?;
        if let (Format::Table, Some(cursor)) = (context.output.format, &tasks.next) {
            eprintln!("there are more: add --cursor {cursor}");
        }
        Ok(Exit::Done)
    }
}

pub(super) fn status_of(word: &str) -> Result<TaskStatus, String> {
    STATUSES.into_iter().find(|status| status.as_str() == word).ok_or_else(|| format!("{word} is no status"))
}

fn render(tasks: &[Task], now: Timestamp, style: Style) -> String {
    let mut table = Table::new(["ID", "STATUS", "ACCEPTED", "FLOW"]);
    for task in tasks {
        table.row([
            (&task.id).into(),
            task_status(task.status),
            age(task.created_at, now).into(),
            format!("{}@{}", task.flow, task.version).into(),
        ]);
    }
    table.text(style)
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;
    use crate::cli::task::fixture;

    #[test]
    fn a_list_fits_eighty_columns() {
        let running = fixture::running();
        let rolled_back = Task { status: TaskStatus::RolledBack, ..fixture::stuck() };
        let text = render(&[running, rolled_back], fixture::now(), Style { color: false, width: Some(80) });
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert_snapshot!(text, @"
        ID                                    STATUS       ACCEPTED  FLOW
        01990a6e-0000-7000-8000-000000000001  running      3m ago    create_instance@2
        01990a6e-0000-7000-8000-000000000002  rolled_back  2h ago    create_instance@2
        ");
    }

    #[test]
    fn every_status_is_known_by_its_word() {
        for status in STATUSES {
            assert_eq!(status_of(status.as_str()), Ok(status));
        }
        assert!(status_of("done").is_err());
    }
}

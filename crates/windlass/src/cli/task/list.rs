//! `windlass task list`.

use clap::Args;
use jiff::Timestamp;
use windlass_api::{Task, TaskCounts, TaskStatus};
use windlass_client::TaskFilter;

use super::steps::task_status;
use crate::cli::{
    connection::Context,
    exit::Exit,
    output::{
        Format, Style,
        table::{Cell, Color, Overflow, Table},
        time::{age, parse_past},
        write,
    },
    params::{parse_label, status_parser},
};

/// From this width a terminal has room for the step, labels and message beside id, status, age and flow.
const WIDE: usize = 120;

/// The indent of lines that belong to the line above.
const INDENT: &str = "    ";

/// Page size for `--all`.
const PAGE_OF_ALL: u32 = 1000;

/// The tasks to list.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only tasks with this status; several with commas between them
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = status_parser(|_| true))]
    status: Vec<TaskStatus>,

    /// Only tasks of this flow
    #[arg(long, value_name = "FLOW")]
    flow: Option<String>,

    /// Only tasks with this label; given more than once, all labels must match
    #[arg(long = "label", value_name = "K=V", value_parser = parse_label)]
    labels: Vec<(String, String)>,

    /// Only tasks accepted since this time: RFC 3339, or 15m ago
    #[arg(long, value_name = "TIME", value_parser = parse_past)]
    since: Option<Timestamp>,

    /// Only tasks accepted until this time: RFC 3339, or 15m ago
    #[arg(long, value_name = "TIME", value_parser = parse_past)]
    until: Option<Timestamp>,

    /// Only the task that was started with this idempotency key; without --flow one task per flow
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,

    /// Only tasks with this unique key
    #[arg(long, value_name = "KEY")]
    unique_key: Option<String>,

    /// Only tasks with this parameter; given more than once, all must match. PATH is a name, `outer.inner` or
    /// a JSON pointer; VALUE is parsed as JSON if possible, otherwise it is a string
    #[arg(short = 'p', long = "param", value_name = "PATH=VALUE", value_parser = parse_filter)]
    params: Vec<(String, String)>,

    /// The most tasks to list, 1 to 1000 [default: 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: Option<u32>,

    /// Continue after an earlier list: its `next`
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,

    /// List all tasks, page after page
    #[arg(long, conflicts_with = "limit")]
    all: bool,

    /// Print only the number of tasks, in total and by status
    #[arg(long, conflicts_with_all = ["limit", "cursor", "all"])]
    count: bool,
}

impl ListArgs {
    /// Runs the command.
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let filter = TaskFilter {
            status: self.status,
            flow: self.flow,
            labels: self.labels,
            idempotency_key: self.idempotency_key,
            unique_key: self.unique_key,
            params: self.params,
            since: self.since.map(|time| time.to_string()),
            until: self.until.map(|time| time.to_string()),
            cursor: self.cursor,
            limit: if self.all { Some(PAGE_OF_ALL) } else { self.limit },
            // A table shows no parameters, so the server may leave them out.
            brief: context.output.format == Format::Table,
        };
        match (self.count, self.all) {
            (true, _) => {
                let counts = context.client.count_tasks(&filter).await?;
                context.output.show(&counts, render_counts)?;
            }
            (false, true) => all(filter, context).await?,
            (false, false) => {
                let tasks = context.client.tasks(&filter).await?;
                context.output.show(&tasks, |tasks, style| render(&tasks.items, Timestamp::now(), style))?;
                if let (Format::Table, Some(cursor)) = (context.output.format, &tasks.next) {
                    eprintln!("there are more: add --all, or --cursor {cursor}");
                }
            }
        }
        Ok(Exit::Done)
    }
}

/// Prints each page as it arrives, so that only one is in memory: one table after another, or one JSON
/// document with a line for each task.
async fn all(mut filter: TaskFilter, context: &Context) -> anyhow::Result<()> {
    let format = context.output.format;
    let mut is_first = true;
    loop {
        let page = context.client.tasks(&filter).await?;
        match format {
            Format::Table if page.items.is_empty() && !(is_first && page.next.is_none()) => {}
            Format::Table => write(&render(&page.items, Timestamp::now(), context.output.style))?,
            Format::Json => write(&lines(&page.items, is_first)?)?,
        }
        is_first &= page.items.is_empty();
        let is_last = page.next.is_none() || page.next == filter.cursor;
        filter.cursor = page.next;
        if is_last {
            break;
        }
    }
    if format == Format::Json {
        write(if is_first { "{\"items\":[],\"next\":null}\n" } else { "],\"next\":null}\n" })?;
    }
    Ok(())
}

/// A part of the JSON document of all tasks. `is_first` when nothing was printed yet.
fn lines(tasks: &[Task], is_first: bool) -> anyhow::Result<String> {
    let mut text = String::new();
    for (index, task) in tasks.iter().enumerate() {
        text.push_str(if is_first && index == 0 { "{\"items\":[\n" } else { "," });
        text.push_str(&serde_json::to_string(task)?);
        text.push('\n');
    }
    Ok(text)
}

/// Parses `PATH=VALUE`. The server parses path and value, but a colon ends the path there.
fn parse_filter(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((path, _)) if path.contains(':') => Err("cannot filter by a path with a colon".to_owned()),
        Some((path, value)) if !path.is_empty() => Ok((path.to_owned(), value.to_owned())),
        _ => Err("write a parameter as PATH=VALUE, for example size=3 or disk.kind=ssd".to_owned()),
    }
}

fn render(tasks: &[Task], now: Timestamp, style: Style) -> String {
    let is_narrow = style.width.is_some_and(|width| width < WIDE);
    let mut table = Table::new(["ID", "STATUS", "ACCEPTED", "FLOW", "STEP", "LABELS", "MESSAGE"]);
    for task in tasks {
        let details = |text: String| if is_narrow { Cell::default() } else { text.into() };
        table.row([
            (&task.id).into(),
            task_status(task.status),
            age(task.created_at, now).into(),
            format!("{}@{}", task.flow, task.version).into(),
            details(step(task)),
            details(labels(task)),
            details(message(task, now)),
        ]);
    }
    let mut lines = table.lines(style, Overflow::Cut).into_iter();
    let mut text = lines.next().map(|heads| heads + "\n").unwrap_or_default();
    for (line, task) in lines.zip(tasks) {
        text.push_str(&line);
        text.push('\n');
        if is_narrow {
            text.push_str(&below(task, now, style));
        }
    }
    text
}

/// The cells that do not fit on a narrow terminal, on a line of their own; empty if all of them are.
fn below(task: &Task, now: Timestamp, style: Style) -> String {
    let parts = [step(task), message(task, now), labels(task)];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    if parts.is_empty() {
        return String::new();
    }
    let mut table = Table::headless();
    table.row([Cell::colored(parts.join("; "), Some(Color::Faint))]);
    let style = Style { width: style.width.map(|width| width.saturating_sub(INDENT.len())), ..style };
    table.lines(style, Overflow::Cut).iter().map(|line| format!("{INDENT}{line}\n")).collect()
}

/// The current step of a task, and the number of further ones.
fn step(task: &Task) -> String {
    match &task.current[..] {
        [] => String::new(),
        [step] => step.name.clone(),
        [step, others @ ..] => format!("{} +{}", step.name, others.len()),
    }
}

fn labels(task: &Task) -> String {
    let labels: Vec<String> = task.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    labels.join(" ")
}

/// The message for a task: the failure of a step or of the task, then the next event.
fn message(task: &Task, now: Timestamp) -> String {
    let named = task.current.len() > 1;
    let trouble = task.current.iter().find_map(|step| {
        let message = step.message.as_deref()?;
        Some(if named { format!("{}: {message}", step.name) } else { message.to_owned() })
    });
    let due = task.current.iter().filter_map(|step| step.due_at).min().filter(|due| *due > now);
    let waits = task.current.iter().find_map(|step| step.waits_for.as_ref());
    let parts = [
        trouble.or_else(|| task.message.clone()),
        due.map(|due| format!("next try {}", age(due, now))),
        waits.map(|what| format!("waits for {what}")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn render_counts(counts: &TaskCounts, style: Style) -> String {
    let mut table = Table::headless();
    for status in TaskStatus::ALL {
        if let Some(count) = counts.by_status.get(status.as_str()) {
            table.row([task_status(status), count.to_string().into()]);
        }
    }
    table.row(["total".into(), counts.total.to_string().into()]);
    table.text(style)
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use windlass_api::{CurrentStep, StepStatus};

    use super::*;
    use crate::cli::task::fixture;

    fn tasks() -> [Task; 2] {
        let step = |name: &str, message: Option<&str>| CurrentStep {
            name: name.to_owned(),
            status: StepStatus::Running,
            message: message.map(str::to_owned),
            attempts: 2,
            due_at: None,
            waits_for: None,
        };
        let running = Task { current: vec![step("init", Some("disk\nbusy"))], ..fixture::running() };
        let current = vec![step("init", None), step("deduct", Some("no quota left"))];
        [running, Task { status: TaskStatus::RollingBack, current, ..fixture::stuck() }]
    }

    #[test]
    fn a_list_has_the_step_the_message_and_the_labels() {
        assert_snapshot!(render(&tasks(), fixture::now(), Style::PLAIN), @"
        ID                                    STATUS        ACCEPTED  FLOW               STEP     LABELS        MESSAGE
        01990a6e-0000-7000-8000-000000000001  running       3m ago    create_instance@2  init     team=storage  disk busy
        01990a6e-0000-7000-8000-000000000002  rolling_back  2h ago    create_instance@2  init +1                deduct: no quota left
        ");
    }

    #[test]
    fn a_list_fits_eighty_columns() {
        let text = render(&tasks(), fixture::now(), Style { color: false, width: Some(80) });
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert_snapshot!(text, @"
        ID                                    STATUS        ACCEPTED  FLOW
        01990a6e-0000-7000-8000-000000000001  running       3m ago    create_instance@2
            init; disk busy; team=storage
        01990a6e-0000-7000-8000-000000000002  rolling_back  2h ago    create_instance@2
            init +1; deduct: no quota left
        ");
    }

    #[test]
    fn pages_make_one_document() {
        let [one, other] = tasks();
        let text =
            [lines(&[one], true), lines(&[other], false)].map(Result::unwrap).concat() + "],\"next\":null}";
        let list: windlass_api::List<Task> = serde_json::from_str(&text).unwrap();
        assert_eq!(list.items.len(), 2);
    }

    #[test]
    fn counts_are_in_the_order_of_statuses() {
        let by_status = [("stuck", 1), ("pending", 20)].map(|(status, count)| (status.to_owned(), count));
        let counts = TaskCounts { total: 21, by_status: by_status.into(), next: None };
        assert_snapshot!(render_counts(&counts, Style::PLAIN), @"
        pending  20
        stuck    1
        total    21
        ");
    }
}

//! `windlass task show`: one task on one page.

use clap::Args;
use jiff::Timestamp;
use windlass_api::{Payload, Task, TaskQueue, TaskQueueState, TaskStatus};

use super::{members, steps};
use crate::cli::{
    connection::Context,
    exit::Exit,
    output::{
        Style, one_line,
        table::{Cell, Color, Table},
        time::{age, elapsed},
    },
};

/// The most characters printed of the parameters and of each result.
const PAYLOAD_CHARS_MAX: usize = 500;

/// What to show of a task.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Id of the task
    #[arg(value_name = "ID")]
    id: String,

    /// Show the items of this step with `each` instead
    #[arg(long, value_name = "STEP", alias = "members")]
    items: Option<String>,
}

impl ShowArgs {
    /// Shows a task and its steps, or the items of one step.
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        if let Some(step) = &self.items {
            return members::run(&self.id, step, context).await;
        }
        let task = context.client.task(&self.id).await?;
        context.output.show(&task, |task, style| page(task, Timestamp::now(), style))?;
        Ok(Exit::Done)
    }
}

/// The whole page.
pub(crate) fn page(task: &Task, now: Timestamp, style: Style) -> String {
    let mut head = Table::headless();
    let mut add = |name: &str, value: Cell| head.row([Cell::colored(name, Some(Color::Faint)), value]);
    add("task", (&task.id).into());
    add("flow", format!("{}@{}", task.flow, task.version).into());
    add("status", steps::task_status(task.status));
    if let Some(message) = &task.message {
        add("message", message.into());
    }
    add("accepted", format!("{} ({})", age(task.created_at, now), whole_seconds(task.created_at)).into());
    if let Some(at) = task.at.filter(|_| task.started_at.is_none()) {
        add("starts", format!("{} ({})", age(at, now), whole_seconds(at)).into());
    }
    if let Some(started) = task.started_at {
        add("took", elapsed(started, task.ended_at.unwrap_or(now)).into());
    }
    if let Some(deadline) = task.deadline_at.filter(|_| task.ended_at.is_none()) {
        add("deadline", format!("{} ({})", age(deadline, now), whole_seconds(deadline)).into());
    }
    if let Some(parent) = &task.parent {
        add("parent", (&parent.task).into());
    }
    if let Some(old) = &task.rerun_of {
        add("rerun of", old.into());
    }
    if let Some(unique) = &task.unique {
        add("unique", unique.into());
    }
    if let Some(TaskQueue { queue, state, fence }) = &task.exclusive {
        let state = match state {
            TaskQueueState::Granted => format!("has it (fence {})", fence.unwrap_or_default()),
            TaskQueueState::Waiting => "waiting".to_owned(),
            TaskQueueState::Out => "not in it".to_owned(),
        };
        add("exclusive", format!("{queue}: {state}").into());
    }
    if task.priority != 0 {
        add("priority", task.priority.to_string().into());
    }
    if !task.labels.is_empty() {
        let labels: Vec<String> = task.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        add("labels", labels.join(" ").into());
    }
    // The result of a task contains its parameters, so only the results of steps are shown.
    add("params", shortened(&task.params).into());
    let mut page = format!("{}\n{}", head.text(style), steps::table(task, now).text(style));
    if let Some(results) = results(task) {
        page.push('\n');
        page.push_str(&results.text(style));
    }
    let advice = advice(task);
    if !advice.is_empty() {
        page.push('\n');
        page.push_str(&advice);
    }
    page
}

/// The output after waiting for a task: its steps if it did not succeed, and its end.
pub(crate) fn outcome(task: &Task, now: Timestamp, style: Style) -> String {
    let verdict = verdict(task, style);
    if task.status == TaskStatus::Succeeded {
        return verdict;
    }
    format!("{}\n{verdict}", steps::table(task, now).text(style))
}

/// How a task ended.
pub(crate) fn verdict(task: &Task, style: Style) -> String {
    let status = task.status.as_str();
    let status = steps::task_color(task.status).map_or(status.to_owned(), |color| color.paint(status, style));
    let took = match (task.started_at, task.ended_at) {
        (Some(started), Some(ended)) => format!(" in {}", elapsed(started, ended)),
        _ => String::new(),
    };
    let message =
        task.message.as_deref().map(|message| format!(": {}", one_line(message))).unwrap_or_default();
    format!("{status}{took}{message}\n{}", advice(task))
}

/// What the operator must do next, if anything.
fn advice(task: &Task) -> String {
    match settling(task) {
        Some(command) => format!("It waits for an operator: {command}\n"),
        None => String::new(),
    }
}

/// The command that continues a stuck task, with the possible decisions.
pub(crate) fn settling(task: &Task) -> Option<String> {
    let (id, stuck) = (&task.id, task.stuck.as_ref()?);
    let Some(step) = &stuck.step else { return Some(format!("windlass task resume {id}")) };
    let choices: Vec<&str> = stuck.choices.iter().map(|choice| choice.as_str()).collect();
    Some(format!("windlass task resolve {id} {step} {}", choices.join("|")))
}

/// The results of the steps and of their rollbacks; none where no step returned anything.
fn results(task: &Task) -> Option<Table> {
    let mut table = Table::new(["STEP", "RESULT"]);
    let mut has_any = false;
    for step in &task.steps {
        let rollback = step.rollback.as_ref().and_then(|rollback| rollback.result.as_ref());
        let rollback = rollback.map(|result| (format!("{} (rollback)", step.name), result));
        for (name, result) in step.result.iter().map(|result| (step.name.clone(), result)).chain(rollback) {
            table.row([name.into(), shortened(result).into()]);
            has_any = true;
        }
    }
    has_any.then_some(table)
}

/// The start of a payload on one line, and its length if it was cut.
fn shortened(payload: &Payload) -> String {
    let mut text = compact(payload);
    if let Some((end, _)) = text.char_indices().nth(PAYLOAD_CHARS_MAX) {
        let bytes = payload.get().len();
        text.truncate(end);
        text.push_str(&format!("… ({bytes} bytes; -o json prints all)"));
    }
    text
}

/// A payload on one line, as short as possible without changing a digit.
fn compact(payload: &Payload) -> String {
    let text = payload.get();
    let mut short = String::with_capacity(text.len());
    let (mut in_string, mut escaped) = (false, false);
    for c in text.chars() {
        if !in_string && c.is_ascii_whitespace() {
            continue;
        }
        short.push(c);
        match c {
            _ if escaped => escaped = false,
            '\\' if in_string => escaped = true,
            '"' => in_string = !in_string,
            _ => {}
        }
    }
    short
}

fn whole_seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::{super::fixture, *};

    #[test]
    fn a_running_task() {
        assert_snapshot!(page(&fixture::running(), fixture::now(), Style::PLAIN), @r#"
        task      01990a6e-0000-7000-8000-000000000001
        flow      create_instance@2
        status    running
        accepted  3m ago (2030-03-17T17:43:20Z)
        took      3m 19s
        labels    team=storage
        params    {"name":"db1","size":3}

        STEP    STATUS     TRIES  TIME   MESSAGE
        check   succeeded  1      12s
        init    running    2      3m 7s  disk busy; 40% copying; on worker-1
        deduct  pending

        STEP   RESULT
        check  {"free":12}
        "#);
    }

    #[test]
    fn a_stuck_task_on_a_narrow_terminal() {
        let style = Style { color: false, width: Some(80) };
        assert_snapshot!(page(&fixture::stuck(), fixture::now(), style), @r#"
        task      01990a6e-0000-7000-8000-000000000002
        flow      create_instance@2
        status    stuck
        message   the rollback of step init failed: directory not empty
        accepted  2h ago (2030-03-17T15:45:00Z)
        took      2h 1m
        priority  3
        params    {"name":"db2"}

        STEP    STATUS           TRIES  TIME    ROLLBACK          MESSAGE
        check   succeeded        1      1.0s
        init    rollback_failed  1      1m 39s  failed (4 tries)  directory not empty
        deduct  rolled_back      1      1m 40s  succeeded         no quota left

        It waits for an operator: windlass task resolve 01990a6e-0000-7000-8000-000000000002 init retry|skip|done
        "#);
    }

    #[test]
    fn outcomes() {
        let now = fixture::now();
        let succeeded = Task { status: TaskStatus::Succeeded, ended_at: Some(now), ..fixture::running() };
        assert_eq!(outcome(&succeeded, now, Style::PLAIN), "succeeded in 3m 19s\n");
        assert_snapshot!(outcome(&fixture::stuck(), now, Style::PLAIN), @"
        STEP    STATUS           TRIES  TIME    ROLLBACK          MESSAGE
        check   succeeded        1      1.0s
        init    rollback_failed  1      1m 39s  failed (4 tries)  directory not empty
        deduct  rolled_back      1      1m 40s  succeeded         no quota left

        stuck: the rollback of step init failed: directory not empty
        It waits for an operator: windlass task resolve 01990a6e-0000-7000-8000-000000000002 init retry|skip|done
        ");
    }

    #[test]
    fn parameters_are_printed_once_and_results_step_by_step() {
        let mut task =
            Task { status: TaskStatus::Succeeded, ended_at: Some(fixture::now()), ..fixture::running() };
        task.result = serde_json::from_str(r#"{"name":"db1","size":3,"free":12}"#).ok();
        let text = page(&task, fixture::now(), Style::PLAIN);
        assert_eq!(text.matches("\"db1\"").count(), 1, "{text}");
        assert_eq!(text.matches("\"free\":12").count(), 1, "{text}");
    }

    #[test]
    fn long_payloads_are_cut_and_say_so() {
        let long = format!("{{\"text\": \"{}\"}}", "é".repeat(600));
        let text = shortened(&serde_json::from_str(&long).unwrap());
        assert!(text.ends_with("é… (1212 bytes; -o json prints all)"), "{text}");
        assert_eq!(text.chars().take_while(|c| *c != '…').count(), PAYLOAD_CHARS_MAX);
    }

    #[test]
    fn payloads_lose_only_white_space() {
        let payload: Payload = serde_json::from_str("{\"a b\" : [1.10,\n 2],\t\"q\\\"  \": null}").unwrap();
        assert_eq!(compact(&payload), r#"{"a b":[1.10,2],"q\"  ":null}"#);
    }
}

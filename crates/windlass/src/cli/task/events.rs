//! `windlass task events`: prints the events of a task.

use std::collections::HashSet;

use clap::Args;
use futures_util::StreamExt as _;
use serde_json::Value;
use windlass_api::{Direction, Event};

use super::watch;
use crate::cli::{
    connection::Context,
    exit::Exit,
    output::{Style, one_line, table::Color},
};

/// The events to print.
#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    /// Id of the task
    #[arg(value_name = "ID")]
    id: String,

    /// Continue with new events until the task has ended
    #[arg(short = 'f', long)]
    follow: bool,

    /// Only events after this number
    #[arg(long, value_name = "N", default_value_t = 0)]
    after: u64,
}

impl EventsArgs {
    /// Runs the command.
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        if self.follow {
            return self.follow(context).await;
        }
        let events = context.client.task_events(&self.id, self.after).await?;
        context.output.show(&events, |events, style| {
            events.items.iter().map(|event| line(event, style) + "\n").collect()
        })?;
        Ok(Exit::Done)
    }

    async fn follow(self, context: &Context) -> anyhow::Result<Exit> {
        let mut events = context.client.follow_events(&self.id, self.after).await?;
        let mut starts = Starts::default();
        while let Some(event) = events.next().await {
            let event = event?;
            if starts.is_repeated(&event) {
                continue;
            }
            context.output.show_line(&event, line)?;
            if watch::is_end(&event) {
                break;
            }
        }
        Ok(Exit::Done)
    }
}

/// Starts already shown live. Their stored events arrive only with the ends of the attempts, and would repeat
/// them.
#[derive(Debug, Default)]
pub(crate) struct Starts {
    shown: HashSet<Start>,
}

/// A start of an attempt.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Start {
    step: Option<String>,
    member: Option<u32>,
    attempt: Option<u32>,
    is_rollback: bool,
}

impl Starts {
    /// Records an event. Returns whether it is a start that was already shown.
    pub(crate) fn is_repeated(&mut self, event: &Event) -> bool {
        if !event.kind.ends_with(".started") || event.step.is_none() {
            return false;
        }
        let start = Start {
            step: event.step.clone(),
            member: event.member,
            attempt: event.attempt,
            is_rollback: event.direction == Some(Direction::Rollback),
        };
        match event.n {
            None => !self.shown.insert(start),
            Some(_) => self.shown.contains(&start),
        }
    }
}

/// An event on one line.
pub(crate) fn line(event: &Event, style: Style) -> String {
    let color = match event.kind.rsplit('.').next().unwrap_or_default() {
        "succeeded" => Some(Color::Good),
        "failed" | "stuck" | "lost" | "raised" => Some(Color::Bad),
        "retrying" | "rolling_back" => Some(Color::Warning),
        "progress" => Some(Color::Faint),
        _ => None,
    };
    let kind = format!("{:<20}", one_line(&event.kind));
    let mut line = format!(
        "{}  {}",
        event.at.strftime("%Y-%m-%dT%H:%M:%S%.3fZ"),
        color.map_or(kind.clone(), |color| color.paint(&kind, style))
    );
    let mut add = |text: &str| {
        line.push(' ');
        line.push(' ');
        line.push_str(&one_line(text));
    };
    if let Some(step) = &event.step {
        let member = event.member.map(|member| format!("[{member}]")).unwrap_or_default();
        add(&format!("{step}{member}"));
    }
    if let Some(attempt) = event.attempt {
        let rollback = if event.direction == Some(Direction::Rollback) { "rollback " } else { "" };
        add(&format!("{rollback}attempt {attempt}"));
    }
    if let Some(actor) = &event.actor {
        add(&format!("by {actor}"));
    }
    let details = details(&event.data);
    if !details.is_empty() {
        add(&details);
    }
    line.truncate(line.trim_end().len());
    line
}

/// The data of an event, its message first.
fn details(data: &Value) -> String {
    let Value::Object(fields) = data else {
        return if data.is_null() { String::new() } else { data.to_string() };
    };
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let message = fields.get("message").filter(|message| !message.is_null()).map(text);
    let others = fields
        .iter()
        .filter(|(name, value)| *name != "message" && !value.is_null())
        .map(|(name, value)| format!("{name}={}", text(value)));
    message.into_iter().chain(others).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_is_a_line() {
        let event = |kind: &str, more: Value| -> Event {
            let mut event = json!({
                "n": 3, "task": "01990a6e-0000-7000-8000-000000000001", "at": "2030-03-17T17:46:40.25Z",
                "kind": kind, "data": null,
            });
            event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            serde_json::from_value(event).unwrap()
        };
        let events = [
            event("task.accepted", json!({"actor": "operator"})),
            event("step.ready", json!({"step": "init", "attempt": 1, "direction": "forward"})),
            event(
                "step.failed",
                json!({"step": "init", "attempt": 2, "data": {"code": 3, "message": "no\nspace"}}),
            ),
            event("step.lost", json!({"step": "resize", "member": 3, "attempt": 1})),
            event("rollback.succeeded", json!({"step": "init", "attempt": 1, "direction": "rollback"})),
            event("task.ended", json!({"data": {"status": "rolled_back"}})),
        ];
        let lines: Vec<String> = events.iter().map(|event| line(event, Style::PLAIN)).collect();
        assert_snapshot!(lines.join("\n"), @"
        2030-03-17T17:46:40.250Z  task.accepted         by operator
        2030-03-17T17:46:40.250Z  step.ready            init  attempt 1
        2030-03-17T17:46:40.250Z  step.failed           init  attempt 2  no space code=3
        2030-03-17T17:46:40.250Z  step.lost             resize[3]  attempt 1
        2030-03-17T17:46:40.250Z  rollback.succeeded    init  rollback attempt 1
        2030-03-17T17:46:40.250Z  task.ended            status=rolled_back
        ");
    }

    #[test]
    fn a_start_that_was_shown_live_is_not_shown_again() {
        let start = |n| Event {
            member: None,
            n,
            task: String::new(),
            at: jiff::Timestamp::UNIX_EPOCH,
            kind: "step.started".to_owned(),
            step: Some("one".to_owned()),
            attempt: Some(1),
            direction: Some(Direction::Forward),
            actor: None,
            data: Value::Null,
        };
        let mut starts = Starts::default();
        assert!(!starts.is_repeated(&start(None)));
        assert!(starts.is_repeated(&start(Some(3))));
        assert!(
            !starts.is_repeated(&Event { attempt: Some(2), ..start(Some(5)) }),
            "that one was not seen live"
        );
        assert!(!starts.is_repeated(&Event { member: Some(1), ..start(Some(6)) }), "nor that member");
    }
}

//! `windlass alarm`: problems that need an operator.

use clap::Subcommand;
use jiff::Timestamp;
use windlass_api::{Alarm, AlarmState};

use super::{
    connection::Context,
    exit::Exit,
    output::{Style, one_line},
};
use crate::cli::output::{
    table::{Cell, Color, Table},
    time::age,
};

/// Commands for alarms.
#[derive(Debug, Subcommand)]
pub(crate) enum AlarmCommand {
    /// List the unresolved alarms
    List {
        /// Include the resolved ones
        #[arg(long)]
        all: bool,
    },
    /// Acknowledge an alarm: you have seen it
    Ack {
        /// Id of the alarm
        id: String,
    },
    /// Resolve an alarm
    Resolve {
        /// Id of the alarm
        id: String,
    },
}

impl AlarmCommand {
    /// Runs the command.
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let client = &context.client;
        let show = |alarm: &Alarm| {
            context
                .output
                .show(alarm, |alarm, style| render(std::slice::from_ref(alarm), Timestamp::now(), style))
        };
        match self {
            Self::List { all } => {
                let alarms = client.alarms(all).await?;
                context.output.show(&alarms, |alarms, style| match alarms.items.as_slice() {
                    [] => "no alarms\n".to_owned(),
                    alarms => render(alarms, Timestamp::now(), style),
                })?;
            }
            Self::Ack { id } => show(&client.acknowledge_alarm(&id).await?)?,
            Self::Resolve { id } => show(&client.resolve_alarm(&id).await?)?,
        }
        Ok(Exit::Done)
    }
}

/// Renders an alarm as a paragraph, not a row: its message stays readable, and both ids can be copied.
fn render(alarms: &[Alarm], now: Timestamp, style: Style) -> String {
    let paragraphs = alarms.iter().map(|alarm| paragraph(alarm, now, style));
    paragraphs.collect::<Vec<_>>().join("\n")
}

fn paragraph(alarm: &Alarm, now: Timestamp, style: Style) -> String {
    let by = alarm.by.as_deref().map(|by| format!(" by {}", one_line(by))).unwrap_or_default();
    let raised = format!("raised {}", age(alarm.raised_at, now));
    let state = match alarm.state {
        AlarmState::Raised => Color::Bad.paint(&raised, style),
        AlarmState::Acknowledged => format!("{}{by}, {raised}", Color::Warning.paint("acknowledged", style)),
        AlarmState::Resolved => format!("{}{by}, {raised}", Color::Good.paint("resolved", style)),
    };
    let kind = Color::Head.paint(&one_line(&alarm.kind), style);
    let head = format!("{}  {kind}  {state}\n", one_line(&alarm.id));

    let mut body = Table::headless();
    let mut add = |name: &str, value: &str| {
        if !value.is_empty() {
            body.row([Cell::colored(name, Some(Color::Faint)), value.into()]);
        }
    };
    add("task", alarm.task.as_deref().unwrap_or_default());
    add("step", alarm.step.as_deref().unwrap_or_default());
    add("message", &alarm.message);
    head + &body.text(style)
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn alarms_are_paragraphs() {
        let now = Timestamp::constant(1_900_000_000, 0);
        let raised = Alarm {
            id: "a-17".to_owned(),
            kind: "rollback_failed".to_owned(),
            task: Some("01990a6e-0000-7000-8000-000000000001".to_owned()),
            step: Some("init".to_owned()),
            message:
                "the rollback of step init failed 4 times: disk busy; settle it with `windlass task resolve`"
                    .to_owned(),
            raised_at: now - SignedDuration::from_secs(300),
            state: AlarmState::Raised,
            by: None,
        };
        let seen = Alarm {
            id: "a-18".to_owned(),
            step: None,
            state: AlarmState::Acknowledged,
            by: Some("operator".to_owned()),
            ..raised.clone()
        };
        assert_snapshot!(render(&[raised, seen], now, Style { color: false, width: Some(70) }), @"
        a-17  rollback_failed  raised 5m ago
        task     01990a6e-0000-7000-8000-000000000001
        step     init
        message  the rollback of step init failed 4 times: disk busy; settle
                 it with `windlass task resolve`

        a-18  rollback_failed  acknowledged by operator, raised 5m ago
        task     01990a6e-0000-7000-8000-000000000001
        message  the rollback of step init failed 4 times: disk busy; settle
                 it with `windlass task resolve`
        ");
    }
}

//! `windlass limit`: limits how many attempts of a queue run concurrently, and how many start in a span of
//! time.

use std::str::FromStr;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use windlass_api::{Limit, LimitStarts, SetLimit};

use super::{
    connection::Context,
    exit::Exit,
    output::{Style, one_line},
};
use crate::cli::output::{table::Table, time::age};

/// Commands for limits.
#[derive(Debug, Subcommand)]
pub(crate) enum LimitCommand {
    /// List the limits and their current use
    List,
    /// Show one limit and the attempts that count under it
    Show {
        /// Name of the limit
        name: String,
    },
    /// Set a limit, or replace the one with this name; takes effect at once
    Set(SetArgs),
    /// Remove a limit
    Remove {
        /// Name of the limit
        name: String,
    },
}

/// A limit to set.
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// Name of the limit
    name: String,
    /// The module whose attempts are limited
    #[arg(long, value_name = "MODULE")]
    queue: String,
    /// Only this command of the module
    #[arg(long, value_name = "COMMAND")]
    command: Option<String>,
    /// Count each concurrency key separately; the `key` of a step computes it from the parameters
    #[arg(long)]
    per_key: bool,
    /// The most attempts that may run concurrently
    #[arg(long, value_name = "N")]
    running: Option<u32>,
    /// The most attempts that may start in a span of time, such as 100/1m
    #[arg(long, value_name = "N/SPAN")]
    starts: Option<Starts>,
}

/// Parsed from `100/1m`.
#[derive(Debug, Clone, Copy)]
struct Starts(LimitStarts);

impl FromStr for Starts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let hint = "write a number and a span, such as 100/1m";
        let (count, per) = text.split_once('/').ok_or(hint)?;
        let count = count.trim().parse().map_err(|_| format!("invalid number {count:?}: {hint}"))?;
        Ok(Self(LimitStarts { count, per: per.parse()? }))
    }
}

impl LimitCommand {
    /// Runs the command.
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let client = &context.client;
        let show = |limit: &Limit| {
            context.output.show(limit, |limit, style| paragraph(limit, Timestamp::now(), style))
        };
        match self {
            Self::List => {
                let limits = client.limits().await?;
                context.output.show(&limits, |limits, style| match limits.items.as_slice() {
                    [] => "no limits\n".to_owned(),
                    limits => render(limits, style),
                })?;
            }
            Self::Show { name } => show(&client.limit(&name).await?)?,
            Self::Set(SetArgs { name, queue, command, per_key, running, starts }) => {
                let starts = starts.map(|starts| starts.0);
                let limit = SetLimit { queue, command, per_key, running, starts };
                show(&client.set_limit(&name, &limit).await?)?;
            }
            Self::Remove { name } => {
                let limit = client.remove_limit(&name).await?;
                context.output.show(&limit, |limit, _| format!("removed {}\n", limit.name))?;
            }
        }
        Ok(Exit::Done)
    }
}

fn render(limits: &[Limit], style: Style) -> String {
    let mut table = Table::new(["LIMIT", "WORK", "RUNNING", "STARTS"]);
    for limit in limits {
        table.row([(&limit.name).into(), work(limit).into(), running(limit).into(), starts(limit).into()]);
    }
    table.text(style)
}

/// The limited module and command.
fn work(limit: &Limit) -> String {
    let command = limit.command.as_ref().map(|command| format!(".{command}")).unwrap_or_default();
    let per_key = if limit.per_key { " per key" } else { "" };
    format!("{}{command}{per_key}", limit.queue)
}

fn running(limit: &Limit) -> String {
    match limit.running {
        // With `per_key` the limit applies to each key; only the total is known here.
        Some(most) if limit.per_key => format!("{} (at most {most} of a key)", limit.usage.running),
        Some(most) => format!("{} of {most}", limit.usage.running),
        None => limit.usage.running.to_string(),
    }
}

fn starts(limit: &Limit) -> String {
    match limit.starts {
        Some(LimitStarts { count, per }) if limit.per_key => {
            format!("{} in {per} (at most {count} of a key)", limit.usage.started)
        }
        Some(LimitStarts { count, per }) => format!("{} of {count} in {per}", limit.usage.started),
        None => String::new(),
    }
}

/// A limit and the attempts that count under it.
fn paragraph(limit: &Limit, now: Timestamp, style: Style) -> String {
    let mut text = render(std::slice::from_ref(limit), style);
    for warning in &limit.warnings {
        text += &format!("note: {}\n", one_line(warning));
    }
    if limit.holders.is_empty() {
        return text;
    }
    let mut table = Table::new(["TASK", "STEP", "ATTEMPT", "KEY", "SINCE", "WORKER"]);
    for holder in &limit.holders {
        let member = holder.member.map(|member| format!("[{member}]")).unwrap_or_default();
        table.row([
            (&holder.task).into(),
            format!("{}{member}", holder.step.as_deref().unwrap_or("(damaged)")).into(),
            holder.attempt.to_string().into(),
            one_line(holder.key.as_deref().unwrap_or_default()).into(),
            age(holder.since, now).into(),
            one_line(&holder.worker).into(),
        ]);
    }
    text.push('\n');
    text += &table.text(style);
    text
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use jiff::SignedDuration;
    use windlass_api::{Direction, LimitHolder, LimitUsage};

    use super::*;

    #[test]
    fn a_limit_says_what_counts_and_who_holds_it() {
        let now = Timestamp::constant(1_900_000_000, 0);
        let limit = Limit {
            name: "gentle".to_owned(),
            queue: "mysql".to_owned(),
            command: Some("init".to_owned()),
            per_key: true,
            running: Some(2),
            starts: Some("100/1m".parse::<Starts>().expect("a limit by starts").0),
            usage: LimitUsage { running: 1, started: 7, next_start_at: None },
            holders: vec![LimitHolder {
                task: "0190".to_owned(),
                step: Some("each".to_owned()),
                member: Some(3),
                direction: Direction::Forward,
                attempt: 1,
                key: Some("tenant-7".to_owned()),
                since: now - SignedDuration::from_secs(5),
                worker: "build-1".to_owned(),
            }],
            warnings: vec!["it is odd".to_owned()],
        };
        assert_snapshot!(paragraph(&limit, now, Style::PLAIN), @"
        LIMIT   WORK                RUNNING                 STARTS
        gentle  mysql.init per key  1 (at most 2 of a key)  7 in 1m (at most 100 of a key)
        note: it is odd

        TASK  STEP     ATTEMPT  KEY       SINCE   WORKER
        0190  each[3]  1        tenant-7  5s ago  build-1
        ");
    }

    #[test]
    fn starts_are_a_number_and_a_span() {
        for bad in ["", "5", "x/1m", "5/x", "5/"] {
            assert!(bad.parse::<Starts>().is_err(), "{bad}");
        }
    }
}

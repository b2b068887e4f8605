//! `windlass trigger`: what starts tasks by itself.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use jiff::Timestamp;
use windlass_api::{
    FireTrigger, FlowChange, List, Trigger, TriggerApplied, TriggerDocument, TriggerEntry, TriggerFired,
};

use super::{
    connection::Context,
    exit::Exit,
    output::{Style, one_line},
    params::ParamArgs,
};
use crate::{
    cli::output::{
        table::{Cell, Color, Table},
        time::age,
    },
    flowfile::{self, FlowError, Format},
};

/// The entries of a history where the command line does not say.
const ENTRIES_DEFAULT: usize = 20;

/// Commands for triggers.
#[derive(Debug, Subcommand)]
pub(crate) enum TriggerCommand {
    /// Create the triggers of files, or give them other definitions
    Apply {
        /// Trigger files: YAML, TOML or JSON; a YAML file may contain several triggers
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// List the triggers
    List,
    /// Show a trigger as a trigger file, without its secret
    Show {
        /// Name of the trigger
        name: String,
    },
    /// Fire a trigger now, even if it is paused; prints the ids of the tasks
    Fire {
        /// Name of the trigger
        name: String,
        #[command(flatten)]
        params: ParamArgs,
    },
    /// Pause a trigger: it does not fire by itself and refuses requests
    Pause {
        /// Name of the trigger
        name: String,
    },
    /// Resume a paused trigger; the instants of its pause are not fired
    Resume {
        /// Name of the trigger
        name: String,
    },
    /// Show what a trigger did, newest first
    History {
        /// Name of the trigger
        name: String,
        /// The most entries, from 1 to 1000
        #[arg(long, value_name = "N", default_value_t = ENTRIES_DEFAULT)]
        limit: usize,
    },
    /// Remove a trigger; the tasks that it has started go on
    Remove {
        /// Name of the trigger
        name: String,
    },
}

impl TriggerCommand {
    /// Runs the command.
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let (client, output) = (&context.client, &context.output);
        let show = |trigger: &Trigger| {
            output
                .show(trigger, |trigger, style| table(std::slice::from_ref(trigger), Timestamp::now(), style))
        };
        match self {
            Self::Apply { files } => apply(&files, context).await?,
            Self::List => {
                let triggers = client.triggers().await?;
                output.show(&triggers, |triggers, style| match triggers.items.as_slice() {
                    [] => "no triggers\n".to_owned(),
                    triggers => table(triggers, Timestamp::now(), style),
                })?;
            }
            Self::Show { name } => {
                let trigger = client.trigger(&name).await?;
                let file = file(&trigger, Timestamp::now())?;
                output.show(&trigger, |_, _| file)?;
            }
            Self::Fire { name, params } => {
                let fire = FireTrigger { params: params.object()? };
                let fired = client.fire_trigger(&name, &fire).await?;
                output.show(&fired, |fired, _| started(fired))?;
                if fired.tasks.iter().any(|task| task.problem.is_some()) {
                    return Ok(Exit::Failed);
                }
            }
            Self::Pause { name } => show(&client.pause_trigger(&name).await?)?,
            Self::Resume { name } => show(&client.resume_trigger(&name).await?)?,
            Self::History { name, limit } => {
                let history = client.trigger_history(&name, limit).await?;
                output.show(&history, |history, style| match history.items.as_slice() {
                    [] => "it has done nothing yet\n".to_owned(),
                    entries => self::history(entries, style),
                })?;
            }
            Self::Remove { name } => {
                let trigger = client.remove_trigger(&name).await?;
                output.show(&trigger, |trigger, _| format!("removed {}\n", trigger.name))?;
            }
        }
        Ok(Exit::Done)
    }
}

/// Applies the triggers of all files. Reads all of them first: a mistake in the last file must not leave only some of them
/// applied.
async fn apply(files: &[PathBuf], context: &Context) -> anyhow::Result<()> {
    let (mut triggers, mut is_refused) = (Vec::new(), false);
    for path in files {
        match read(path) {
            Ok(read) => triggers.extend(read.into_iter().map(|trigger| (path, trigger))),
            Err(FlowError { message, line, column, .. }) => {
                let place = line.zip(column).map(|(line, column)| format!(":{line}:{column}"));
                eprintln!("{}{}: {message}", path.display(), place.unwrap_or_default());
                is_refused = true;
            }
        }
    }
    if is_refused {
        anyhow::bail!("nothing was applied");
    }
    let mut applied = Vec::new();
    for (path, trigger) in triggers {
        let name = trigger.trigger.clone().unwrap_or_default();
        let answer = context.client.apply_trigger(&name, &trigger).await;
        applied.push(answer.map_err(|error| {
            anyhow::Error::from(error).context(format!("{}: trigger {name}", path.display()))
        })?);
    }
    let list = List { items: applied, next: None };
    context.output.show(&list, |list, style| render_applied(&list.items, Timestamp::now(), style))
}

fn read(path: &Path) -> Result<Vec<TriggerDocument>, FlowError> {
    let of_file = |message| FlowError::new(message);
    let format = Format::of_path(path)?;
    let text = std::fs::read_to_string(path).map_err(|error| of_file(format!("cannot read it: {error}")))?;
    flowfile::read_triggers(&text, format)
}

fn render_applied(applied: &[TriggerApplied], now: Timestamp, style: Style) -> String {
    let mut table = Table::new(["TRIGGER", "CHANGE", "NEXT"]);
    let mut warnings = String::new();
    for TriggerApplied { trigger, change } in applied {
        let change = match change {
            FlowChange::Created => Cell::colored("created", Some(Color::Good)),
            FlowChange::Updated => Cell::colored("updated", Some(Color::Good)),
            FlowChange::Unchanged => Cell::colored("unchanged", Some(Color::Faint)),
        };
        table.row([(&trigger.name).into(), change, next(trigger, now).into()]);
        for warning in &trigger.warnings {
            warnings += &format!("note: {}: {}\n", trigger.name, one_line(warning));
        }
    }
    table.text(style) + &warnings
}

fn table(triggers: &[Trigger], now: Timestamp, style: Style) -> String {
    let mut table = Table::new(["TRIGGER", "FIRES", "FLOWS", "LAST", "NEXT"]);
    for trigger in triggers {
        let flows: Vec<&str> = trigger.definition.flows.iter().map(|flow| flow.flow.as_str()).collect();
        table.row([
            (&trigger.name).into(),
            source(&trigger.definition).into(),
            flows.join(" ").into(),
            trigger.last_at.map(|last| age(last, now)).unwrap_or_default().into(),
            next(trigger, now).into(),
        ]);
    }
    let warnings = triggers.iter().flat_map(|trigger| &trigger.warnings);
    let warnings: String = warnings.map(|warning| format!("note: {}\n", one_line(warning))).collect();
    table.text(style) + &warnings
}

/// When it fires next.
fn next(trigger: &Trigger, now: Timestamp) -> String {
    match trigger.next_at {
        _ if trigger.paused => "paused".to_owned(),
        Some(next) => age(next, now),
        None => String::new(),
    }
}

/// What fires it.
fn source(document: &TriggerDocument) -> String {
    match (&document.cron, document.every, &document.mqtt) {
        (Some(cron), ..) => match document.timezone.as_deref() {
            None | Some("UTC") => one_line(cron),
            Some(zone) => format!("{} {zone}", one_line(cron)),
        },
        (None, Some(every), _) => format!("every {every}"),
        (None, None, Some(mqtt)) => format!("mqtt {}", one_line(&mqtt.topic)),
        (None, None, None) if document.intake == Some(true) => "intake".to_owned(),
        (None, None, None) => "http".to_owned(),
    }
}

/// The trigger as a file that `trigger apply` accepts once its secret is added.
fn file(trigger: &Trigger, now: Timestamp) -> anyhow::Result<String> {
    let mut text = format!("# changed {}\n", trigger.changed_at);
    if trigger.paused {
        let by = trigger.paused_by.as_deref().map(|by| format!(" by {}", one_line(by))).unwrap_or_default();
        text += &format!("# paused{by}\n");
    }
    if let Some(next) = trigger.next_at {
        text += &format!("# next {next} ({})\n", age(next, now));
    }
    if trigger.waiting > 0 {
        text += &format!("# {} instants wait for the end of earlier tasks\n", trigger.waiting);
    }
    for warning in &trigger.warnings {
        text += &format!("# note: {}\n", one_line(warning));
    }
    Ok(text + &serde_saphyr::to_string(&trigger.definition)?)
}

fn started(fired: &TriggerFired) -> String {
    let line = |task: &windlass_api::TriggerTask| match (&task.task, &task.problem) {
        (Some(task), _) => format!("{task}\n"),
        (None, Some(problem)) => format!("{}: {}\n", task.flow, one_line(&problem.detail)),
        (None, None) => String::new(),
    };
    fired.tasks.iter().map(line).collect()
}

fn history(entries: &[TriggerEntry], style: Style) -> String {
    let mut table = Table::new(["AT", "CAUSE", "INSTANT", "OUTCOME", "TASKS"]);
    for entry in entries {
        let task = |task: &windlass_api::TriggerEntryTask| match (&task.task, &task.problem) {
            (Some(task), _) => task.clone(),
            (None, problem) => format!("{}: {}", task.flow, one_line(problem.as_deref().unwrap_or_default())),
        };
        let tasks: Vec<_> = entry.tasks.iter().map(task).collect();
        let outcome = match (entry.missed, entry.outcome.as_str()) {
            (0, outcome) => outcome.to_owned(),
            (missed, "missed") => format!("{missed} missed"),
            (missed, outcome) => format!("{outcome} ({missed} missed)"),
        };
        let cause = match &entry.by {
            Some(by) => format!("{} {}", entry.cause, one_line(by)),
            None => entry.cause.clone(),
        };
        table.row([
            entry.at.to_string().into(),
            cause.into(),
            entry.instant.map(|instant| instant.to_string()).unwrap_or_default().into(),
            outcome.into(),
            tasks.join(" ").into(),
        ]);
    }
    table.text(style)
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use jiff::SignedDuration;

    use super::*;

    fn trigger() -> Trigger {
        let at = Timestamp::constant(1_900_000_000, 0);
        let text = "trigger: nightly\ncron: 0 3 * * *\ntimezone: Europe/Berlin\nflows: [{flow: report}]\n";
        Trigger {
            name: "nightly".to_owned(),
            definition: flowfile::read_triggers(text, Format::Yaml).expect("it is valid").remove(0),
            paused: false,
            paused_at: None,
            paused_by: None,
            next_at: Some(at + SignedDuration::from_mins(90)),
            last_at: Some(at - SignedDuration::from_hours(20)),
            waiting: 0,
            created_at: at,
            changed_at: at,
            warnings: vec!["there is no flow report yet".to_owned()],
        }
    }

    #[test]
    fn a_trigger_is_listed_and_shown_as_a_file() {
        let now = Timestamp::constant(1_900_000_000, 0);
        assert_snapshot!(table(&[trigger()], now, Style::PLAIN), @"
        TRIGGER  FIRES                    FLOWS   LAST     NEXT
        nightly  0 3 * * * Europe/Berlin  report  20h ago  in 1h
        note: there is no flow report yet
        ");
        let file = file(&trigger(), now).unwrap();
        assert_snapshot!(file, @"
        # changed 2030-03-17T17:46:40Z
        # next 2030-03-17T19:16:40Z (in 1h)
        # note: there is no flow report yet
        trigger: nightly
        cron: 0 3 * * *
        timezone: Europe/Berlin
        flows:
        - flow: report
        ");
        assert_eq!(flowfile::read_triggers(&file, Format::Yaml).unwrap().len(), 1);
    }

    #[test]
    fn a_history_says_what_was_started() {
        let at = Timestamp::constant(1_900_000_000, 0);
        let task = |task: Option<&str>, problem: Option<&str>| windlass_api::TriggerEntryTask {
            flow: "report".to_owned(),
            task: task.map(ToOwned::to_owned),
            problem: problem.map(ToOwned::to_owned),
        };
        let entry = |cause: &str, outcome: &str, missed, tasks| TriggerEntry {
            at,
            cause: cause.to_owned(),
            instant: (cause == "schedule").then_some(at),
            outcome: outcome.to_owned(),
            missed,
            tasks,
            by: (cause == "operator").then(|| "ann (claimed)".to_owned()),
        };
        let entries = [
            entry("operator", "fired", 0, vec![task(Some("0190"), None)]),
            entry("schedule", "fired", 3, vec![task(None, Some("there is no flow report"))]),
            entry("schedule", "missed", 7, Vec::new()),
        ];
        assert_snapshot!(history(&entries, Style::PLAIN), @"
        AT                    CAUSE                   INSTANT               OUTCOME           TASKS
        2030-03-17T17:46:40Z  operator ann (claimed)                        fired             0190
        2030-03-17T17:46:40Z  schedule                2030-03-17T17:46:40Z  fired (3 missed)  report: there is no flow report
        2030-03-17T17:46:40Z  schedule                2030-03-17T17:46:40Z  7 missed
        ");
    }
}

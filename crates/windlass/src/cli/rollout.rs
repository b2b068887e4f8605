//! `windlass rollout`: a flow for each device of a fleet.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};
use jiff::Timestamp;
use windlass_api::{
    List, Rollout, RolloutCounts, RolloutDocument, RolloutEntry, RolloutNote, RolloutOnAbort, RolloutRate,
    RolloutStatus,
};

use super::{
    connection::Context,
    exit::Exit,
    output::{Style, one_line},
    params::ParamArgs,
};
use crate::{
    cli::output::{table::Table, time::age},
    flowfile::{self, FlowError, Format},
};

/// The entries of a history where the command line does not say.
const ENTRIES_DEFAULT: usize = 20;

/// Commands for rollouts.
#[derive(Debug, Subcommand)]
pub(crate) enum RolloutCommand {
    /// Start the rollouts of a file, or one that the options describe
    Start(Box<StartArgs>),
    /// List the rollouts
    List,
    /// Show a rollout with its progress in total and by group
    Show {
        /// Name of the rollout
        name: String,
    },
    /// Pause a rollout: it starts no tasks, and those that run go on
    Pause(ChangeArgs),
    /// Resume a paused rollout
    Resume {
        /// Name of the rollout
        name: String,
    },
    /// Abort a rollout: cancel its tasks that run; with `on_abort: rollback`, roll back those that succeeded
    Abort(ChangeArgs),
    /// Show what happened to a rollout, newest first
    History {
        /// Name of the rollout
        name: String,
        /// The most entries, from 1 to 1000
        #[arg(long, value_name = "N", default_value_t = ENTRIES_DEFAULT)]
        limit: usize,
    },
    /// Remove a rollout that has ended; its tasks stay
    Remove {
        /// Name of the rollout
        name: String,
    },
}

/// A rollout, in a file or by options.
#[derive(Debug, Args)]
pub(crate) struct StartArgs {
    /// A rollout file: YAML, TOML or JSON; with --flow the name of the rollout
    #[arg(value_name = "FILE|NAME")]
    target: PathBuf,
    /// The flow that is started for each device
    #[arg(long, value_name = "FLOW")]
    flow: Option<String>,
    /// Only devices with this label; may be given more than once
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label, requires = "flow")]
    labels: Vec<(String, String)>,
    /// How many devices are started per minute
    #[arg(long, value_name = "N", requires = "flow")]
    per_minute: Option<u32>,
    /// The maximum number of tasks that run at the same time
    #[arg(long, value_name = "N", requires = "flow")]
    max_running: Option<u32>,
    /// Roll back tasks that succeeded when the rollout is aborted
    #[arg(long, requires = "flow")]
    rollback: bool,
    /// Count progress by the values of this label
    #[arg(long, value_name = "LABEL", requires = "flow")]
    group_by: Option<String>,
    #[command(flatten)]
    params: ParamArgs,
}

/// An operator's change of a rollout.
#[derive(Debug, Args)]
pub(crate) struct ChangeArgs {
    /// Name of the rollout
    name: String,
    /// The reason, for the history
    #[arg(long)]
    reason: Option<String>,
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("invalid label {text:?}: use KEY=VALUE, for example site=nord")),
    }
}

impl RolloutCommand {
    /// Runs the command.
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let (client, output) = (&context.client, &context.output);
        let show = |rollout: &Rollout| {
            output.show(rollout, |rollout, style| details(rollout, Timestamp::now(), style))
        };
        match self {
            Self::Start(args) => start(*args, context).await?,
            Self::List => {
                let rollouts = client.rollouts().await?;
                output.show(&rollouts, |rollouts, style| match rollouts.items.as_slice() {
                    [] => "no rollouts\n".to_owned(),
                    rollouts => table(rollouts, Timestamp::now(), style),
                })?;
            }
            Self::Show { name } => show(&client.rollout(&name).await?)?,
            Self::Pause(ChangeArgs { name, reason }) => show(&client.pause_rollout(&name, reason).await?)?,
            Self::Resume { name } => show(&client.resume_rollout(&name).await?)?,
            Self::Abort(ChangeArgs { name, reason }) => show(&client.abort_rollout(&name, reason).await?)?,
            Self::History { name, limit } => {
                let history = client.rollout_history(&name, limit).await?;
                output.show(&history, |history, style| match history.items.as_slice() {
                    [] => "nothing happened to it yet\n".to_owned(),
                    entries => self::history(entries, style),
                })?;
            }
            Self::Remove { name } => {
                let rollout = client.remove_rollout(&name).await?;
                output.show(&rollout, |rollout, _| format!("removed {}\n", rollout.name))?;
            }
        }
        Ok(Exit::Done)
    }
}

/// Starts the rollouts of a file, or the one that the options describe.
async fn start(args: StartArgs, context: &Context) -> anyhow::Result<()> {
    let rollouts = match args.flow {
        Some(_) => vec![described(args)?],
        None if args.params.object()?.is_some() => {
            anyhow::bail!("a rollout file has its parameters in `params`: leave -p and --params out")
        }
        None => match read(&args.target) {
            Ok(rollouts) => rollouts,
            Err(FlowError { message, line, column, .. }) => {
                let place = line.zip(column).map(|(line, column)| format!(":{line}:{column}"));
                anyhow::bail!("{}{}: {message}", args.target.display(), place.unwrap_or_default());
            }
        },
    };
    let mut items = Vec::new();
    for rollout in rollouts {
        let name = rollout.rollout.clone().unwrap_or_default();
        let started = context.client.start_rollout(&name, &rollout).await;
        items.push(started.map_err(|error| anyhow::Error::from(error).context(format!("rollout {name}")))?);
    }
    let list = List { items, next: None };
    context.output.show(&list, |list, style| table(&list.items, Timestamp::now(), style))
}

fn described(args: StartArgs) -> anyhow::Result<RolloutDocument> {
    let params = args.params.object()?.map(|params| serde_json::from_str(params.get())).transpose()?;
    let rate = args
        .per_minute
        .map(|per_minute| RolloutRate { per_minute: Some(per_minute), ..RolloutRate::default() });
    Ok(RolloutDocument {
        rollout: Some(args.target.display().to_string()),
        flow: args.flow.unwrap_or_default(),
        params,
        select: args.labels.into_iter().collect::<BTreeMap<_, _>>(),
        rate,
        max_running: args.max_running,
        on_abort: args.rollback.then_some(RolloutOnAbort::Rollback),
        group_by: args.group_by,
        ..RolloutDocument::default()
    })
}

fn read(path: &Path) -> Result<Vec<RolloutDocument>, FlowError> {
    let of_file = |message| FlowError::new(message);
    let format = Format::of_path(path)?;
    let text = std::fs::read_to_string(path).map_err(|error| of_file(format!("cannot read it: {error}")))?;
    flowfile::read_rollouts(&text, format)
}

fn status(status: RolloutStatus) -> &'static str {
    match status {
        RolloutStatus::Running => "running",
        RolloutStatus::Paused => "paused",
        RolloutStatus::Cancelling => "cancelling",
        RolloutStatus::RollingBack => "rolling back",
        RolloutStatus::Completed => "completed",
        RolloutStatus::Aborted => "aborted",
    }
}

/// Devices that did not succeed.
fn bad(counts: &RolloutCounts) -> u64 {
    counts.failed + counts.timed_out + counts.cancelled + counts.refused + counts.stuck + counts.gone
}

fn table(rollouts: &[Rollout], now: Timestamp, style: Style) -> String {
    let mut table =
        Table::new(["ROLLOUT", "STATUS", "FLOW", "DEVICES", "STARTED", "OK", "BAD", "RUNNING", "SINCE"]);
    for rollout in rollouts {
        let total = &rollout.total;
        table.row([
            (&rollout.name).into(),
            status(rollout.status).into(),
            (&rollout.definition.flow).into(),
            total.matched.to_string().into(),
            total.started.to_string().into(),
            total.succeeded.to_string().into(),
            bad(total).to_string().into(),
            total.running.to_string().into(),
            age(rollout.created_at, now).into(),
        ]);
    }
    table.text(style)
}

fn details(rollout: &Rollout, now: Timestamp, style: Style) -> String {
    let mut text = table(std::slice::from_ref(rollout), now, style);
    let note = |what: &str, note: &RolloutNote| {
        let by = note.by.as_deref().map(|by| format!(" by {}", one_line(by))).unwrap_or_default();
        let reason = note.reason.as_deref().map(|reason| format!(": {}", one_line(reason)));
        format!("{what} {}{by}{}\n", age(note.at, now), reason.unwrap_or_default())
    };
    if let Some(paused) = &rollout.paused {
        text += &note("paused", paused);
    }
    if let Some(aborted) = &rollout.aborted {
        let what = if aborted.threshold.is_some() { "aborted by a threshold" } else { "aborted" };
        text += &note(what, aborted);
    }
    if rollout.waiting > 0 {
        text += &format!("{} running tasks wait for an operator\n", rollout.waiting);
    }
    text += "\n";
    text + &progress(rollout, style)
}

/// The progress by group, and in total.
fn progress(rollout: &Rollout, style: Style) -> String {
    let is_shown = |value: u64| if value > 0 { value.to_string() } else { "-".to_owned() };
    let mut table = Table::new([
        "GROUP",
        "DEVICES",
        "STARTED",
        "RUNNING",
        "OK",
        "FAILED",
        "TIMED OUT",
        "CANCELLED",
        "OTHER",
        "ROLLED BACK",
    ]);
    let groups = rollout
        .groups
        .iter()
        .filter(|group| group.value.is_some() || group.counts != RolloutCounts::default());
    let groups =
        groups.map(|group| (group.value.clone().unwrap_or_else(|| "(others)".to_owned()), &group.counts));
    for (group, counts) in groups.chain([("total".to_owned(), &rollout.total)]) {
        let rolled_back = match (counts.rolling_back, counts.rollback_stuck) {
            (0, 0) => is_shown(counts.rolled_back),
            (running, stuck) => format!("{} ({running} running, {stuck} stuck)", counts.rolled_back),
        };
        table.row([
            one_line(&group).into(),
            counts.matched.to_string().into(),
            counts.started.to_string().into(),
            is_shown(counts.running).into(),
            is_shown(counts.succeeded).into(),
            is_shown(counts.failed).into(),
            is_shown(counts.timed_out).into(),
            is_shown(counts.cancelled).into(),
            is_shown(counts.refused + counts.stuck + counts.gone).into(),
            rolled_back.into(),
        ]);
    }
    table.text(style)
}

fn history(entries: &[RolloutEntry], style: Style) -> String {
    let mut table = Table::new(["AT", "EVENT", "BY", "DEVICE", "MESSAGE"]);
    for entry in entries {
        let text = |text: &Option<String>| text.as_deref().map(one_line).unwrap_or_default();
        table.row([
            entry.at.to_string().into(),
            entry.event.replace('_', " ").into(),
            text(&entry.by).into(),
            text(&entry.device).into(),
            text(&entry.message).into(),
        ]);
    }
    table.text(style)
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use jiff::SignedDuration;
    use windlass_api::{RolloutGroup, RolloutThreshold};

    use super::*;

    #[test]
    fn a_rollout_is_shown_with_its_groups() {
        let now = Timestamp::constant(1_900_000_000, 0);
        let text = "rollout: valves\nflow: update\nselect: {site: nord}\ngroup_by: model\n";
        let counts = |matched, succeeded, failed, rolled_back| RolloutCounts {
            matched,
            started: succeeded + failed + 1,
            running: 1,
            succeeded,
            failed,
            rolled_back,
            rolling_back: 2,
            ..RolloutCounts::default()
        };
        let threshold = RolloutThreshold {
            of: windlass_api::RolloutAbortOf::Any,
            percent: Some(10),
            count: None,
            at_least: Some(20),
        };
        let rollout = Rollout {
            name: "valves".to_owned(),
            definition: flowfile::read_rollouts(text, Format::Yaml).expect("it is valid").remove(0),
            flow_version: 3,
            status: RolloutStatus::RollingBack,
            started_by: None,
            created_at: now - SignedDuration::from_mins(90),
            ended_at: None,
            paused: None,
            aborted: Some(RolloutNote { at: now, by: None, reason: None, threshold: Some(threshold) }),
            per_minute: 60,
            waiting: 2,
            total: counts(100, 20, 3, 5),
            groups: vec![
                RolloutGroup { value: None, counts: RolloutCounts::default() },
                RolloutGroup { value: Some("p7".to_owned()), counts: counts(100, 20, 3, 5) },
            ],
        };
        assert_snapshot!(details(&rollout, now, Style::PLAIN), @"
        ROLLOUT  STATUS        FLOW    DEVICES  STARTED  OK  BAD  RUNNING  SINCE
        valves   rolling back  update  100      24       20  3    1        1h ago
        aborted by a threshold now
        2 running tasks wait for an operator

        GROUP  DEVICES  STARTED  RUNNING  OK  FAILED  TIMED OUT  CANCELLED  OTHER  ROLLED BACK
        p7     100      24       1        20  3       -          -          -      5 (2 running, 0 stuck)
        total  100      24       1        20  3       -          -          -      5 (2 running, 0 stuck)
        ");
    }
}

//! `windlass device`: declares and shows devices.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde_json::Value;
use windlass_api::{Device, DeviceDocument, DeviceLogEntry, DeviceLogKind, DeviceMessage, DevicesApplied};

use super::{
    connection::Context,
    exit::Exit,
    lock,
    output::{Style, one_line},
};
use crate::{
    cli::output::{
        table::{Cell, Color, Table},
        time::age,
    },
    flowfile::{self, FlowError, Format},
};

/// Devices in one call.
const DEVICES_APPLIED: usize = 5_000;

/// Entries of a log where the command line does not say.
const ENTRIES_DEFAULT: usize = 20;

/// Commands for devices.
#[derive(Debug, Subcommand)]
pub(crate) enum DeviceCommand {
    /// Declare the devices of files: create them, or replace their declarations
    Apply {
        /// Files of devices: YAML, TOML or JSON, with one device or a list
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// List the devices with their presence and their tasks
    List(ListArgs),
    /// Show a device and the tasks that wait for it
    Show {
        /// Name of the device
        name: String,
    },
    /// Show what happened to a device, newest first: its jobs, and for a day its messages
    Log {
        /// Name of the device
        name: String,
        /// The most entries, from 1 to 1000
        #[arg(long, value_name = "N", default_value_t = ENTRIES_DEFAULT)]
        limit: usize,
    },
    /// Show messages of devices, newest first; they are kept for a day, and as long as there is room
    Messages(MessagesArgs),
    /// Take a device from its task; the next task that waits gets it
    Unlock {
        /// Name of the device
        name: String,
        /// The reason, for the history of the task that had the device
        #[arg(long)]
        reason: String,
    },
    /// Remove a device
    Remove {
        /// Name of the device
        name: String,
        /// Also while a task has it or waits for it
        #[arg(long)]
        force: bool,
    },
}

/// Which devices are listed.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only devices with this label; may be given more than once
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<String>,
    /// Only devices that are online
    #[arg(long, conflicts_with = "offline")]
    online: bool,
    /// Only devices that are offline
    #[arg(long)]
    offline: bool,
}

/// Which messages are shown.
#[derive(Debug, Args)]
pub(crate) struct MessagesArgs {
    /// Only messages that are kept for this device
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Only messages on topics that this filter matches, for example site/+/done
    #[arg(long, value_name = "FILTER")]
    topic: Option<String>,
    /// Only messages since this time, or since so long ago, for example 15m
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// The most messages
    #[arg(long, value_name = "N", default_value_t = ENTRIES_DEFAULT)]
    limit: usize,
}

fn label(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some((key, _)) if !key.is_empty() => Ok(text.to_owned()),
        _ => Err(format!("invalid label {text:?}: use KEY=VALUE, for example site=nord")),
    }
}

impl DeviceCommand {
    /// Runs the command.
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let (client, output) = (&context.client, &context.output);
        match self {
            Self::Apply { files } => {
                let applied = apply(&files, context).await?;
                output.show(&applied, |applied, _| told(*applied))?;
            }
            Self::List(ListArgs { labels, online, offline }) => {
                let online = (online || offline).then_some(online);
                let devices = client.devices(&labels, online).await?;
                output.show(&devices, |devices, style| match devices.items.as_slice() {
                    [] => "no devices\n".to_owned(),
                    devices => render(devices, Timestamp::now(), style),
                })?;
            }
            Self::Show { name } => {
                let device = client.device(&name).await?;
                output.show(&device, |device, style| details(device, Timestamp::now(), style))?;
            }
            Self::Log { name, limit } => {
                let log = client.device_log(&name, limit).await?;
                output.show(&log, |log, style| match log.items.as_slice() {
                    [] => "nothing happened to it yet\n".to_owned(),
                    entries => entries_text(entries, style),
                })?;
            }
            Self::Messages(MessagesArgs { device, topic, since, limit }) => {
                let filter = [("device", device), ("topic", topic), ("since", since)];
                let filter: Vec<(&str, String)> =
                    filter.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
                let messages = client.device_messages(&filter, limit).await?;
                output.show(&messages, |messages, style| match messages.items.as_slice() {
                    [] => "no messages\n".to_owned(),
                    messages => messages_text(messages, style),
                })?;
            }
            Self::Unlock { name, reason } => {
                let released = client.unlock_device(&name, &reason).await?;
                output.show(&released, |released, style| lock::told(released, Timestamp::now(), style))?;
            }
            Self::Remove { name, force } => {
                let device = client.remove_device(&name, force).await?;
                output.show(&device, |device, _| format!("removed {}\n", device.name))?;
            }
        }
        Ok(Exit::Done)
    }
}

/// Declares the devices of all files. Reads all of them first: a mistake in the last file must not leave only some of the
/// devices declared.
async fn apply(files: &[PathBuf], context: &Context) -> anyhow::Result<DevicesApplied> {
    let mut devices = Vec::new();
    let mut names: HashMap<String, &Path> = HashMap::new();
    let mut is_refused = false;
    for path in files {
        let read = read(path).and_then(|read| {
            for name in read.iter().filter_map(|device| device.name.as_ref()) {
                if let Some(other) = names.insert(name.clone(), path) {
                    return Err(without_place(format!("device {name} is in {} as well", other.display())));
                }
            }
            Ok(read)
        });
        match read {
            Ok(read) => devices.extend(read),
            Err(FlowError { message, line, column, .. }) => {
                let place = line.zip(column).map(|(line, column)| format!(":{line}:{column}"));
                eprintln!("{}{}: error: {message}", path.display(), place.unwrap_or_default());
                is_refused = true;
            }
        }
    }
    if is_refused {
        anyhow::bail!("nothing was applied");
    }
    let mut total = DevicesApplied::default();
    for portion in devices.chunks(DEVICES_APPLIED) {
        let applied = context.client.apply_devices(portion.to_vec()).await?;
        total.created += applied.created;
        total.updated += applied.updated;
        total.unchanged += applied.unchanged;
    }
    Ok(total)
}

fn read(path: &Path) -> Result<Vec<DeviceDocument>, FlowError> {
    let format = Format::of_path(path)?;
    let text =
        std::fs::read_to_string(path).map_err(|error| without_place(format!("cannot read it: {error}")))?;
    flowfile::read_devices(&text, format)
}

fn without_place(message: String) -> FlowError {
    FlowError::new(message)
}

fn told(applied: DevicesApplied) -> String {
    let DevicesApplied { created, updated, unchanged } = applied;
    format!("{created} created, {updated} updated, {unchanged} unchanged\n")
}

fn render(devices: &[Device], now: Timestamp, style: Style) -> String {
    let mut table = Table::new(["DEVICE", "PRESENCE", "SINCE", "TASK", "LOCKED", "WAITING", "LABELS"]);
    for device in devices {
        let labels: Vec<String> = device.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let when = |at: Option<Timestamp>| at.map(|at| age(at, now)).unwrap_or_default();
        table.row([
            (&device.name).into(),
            presence(device),
            when(device.online_changed_at).into(),
            holder(device).into(),
            when(device.locked_since.filter(|_| device.task.is_some())).into(),
            device.waiting.to_string().into(),
            one_line(&labels.join(" ")).into(),
        ]);
    }
    table.text(style)
}

fn presence(device: &Device) -> Cell {
    match (device.online, &device.presence) {
        (_, None) => Cell::colored("not watched", Some(Color::Faint)),
        (true, _) => Cell::colored("online", Some(Color::Good)),
        (false, _) if device.online_changed_at.is_none() => {
            Cell::colored("never heard", Some(Color::Warning))
        }
        (false, _) => Cell::colored("offline", Some(Color::Bad)),
    }
}

fn holder(device: &Device) -> String {
    match &device.task {
        None if device.locked => "(closed: damaged row)".to_owned(),
        task => task.clone().unwrap_or_default(),
    }
}

/// One device with the tasks that wait for it.
fn details(device: &Device, now: Timestamp, style: Style) -> String {
    let mut text = render(std::slice::from_ref(device), now, style);
    if device.learned {
        text += "\nlearned from its status; `windlass device apply` declares it\n";
    }
    if device.queue.is_empty() {
        return text;
    }
    let mut table = Table::new(["WAITS", "TASK"]);
    for (place, task) in (1_u64..).zip(&device.queue) {
        table.row([place.to_string().into(), task.into()]);
    }
    text += "\n";
    text += &table.text(style);
    let more = device.waiting.saturating_sub(device.queue.len() as u64);
    if more > 0 {
        text += &format!("and {more} more\n");
    }
    text
}

fn entries_text(entries: &[DeviceLogEntry], style: Style) -> String {
    let mut table = Table::new(["TIME", "WHAT", "TASK", "ATTEMPT", "DETAILS"]);
    for entry in entries {
        let data: Value = serde_json::from_str(entry.data.get()).unwrap_or_default();
        let text = |key: &str| data[key].as_str().unwrap_or_default().to_owned();
        let (what, details) = match entry.kind {
            DeviceLogKind::Message => ("message".into(), format!("{} {}", text("topic"), text("payload"))),
            DeviceLogKind::Job => (what_of(&text("what")), details_of_job(&data)),
        };
        let attempt = data["attempt"].as_u64().filter(|attempt| *attempt > 0);
        table.row([
            entry.at.to_string().into(),
            what,
            text("task").into(),
            attempt.map(|attempt| attempt.to_string()).unwrap_or_default().into(),
            one_line(&details).into(),
        ]);
    }
    table.text(style)
}

fn messages_text(messages: &[DeviceMessage], style: Style) -> String {
    let mut table = Table::new(["TIME", "DEVICE", "TOPIC", "PAYLOAD"]);
    for message in messages {
        table.row([
            message.at.to_string().into(),
            (&message.device).into(),
            one_line(&message.topic).into(),
            one_line(&message.payload).into(),
        ]);
    }
    table.text(style)
}

fn what_of(what: &str) -> Cell {
    let color = match what {
        "succeeded" => Some(Color::Good),
        "failed" | "timed_out" | "deadline_passed" => Some(Color::Bad),
        "ignored" | "unlocked" | "stopped" => Some(Color::Warning),
        _ => None,
    };
    Cell::colored(what.replace('_', " "), color)
}

/// What an entry says beside what happened: a topic, an error, a reason, when the next attempt is.
fn details_of_job(data: &Value) -> String {
    let text = |key: &str| data[key].as_str();
    let mut details: Vec<String> = Vec::new();
    details.extend(["topic", "error", "why", "reason"].into_iter().filter_map(text).map(str::to_owned));
    details.extend(text("retry_in").map(|span| format!("next attempt in {span}")));
    details.extend(text("by").map(|by| format!("by {by}")));
    details.extend(data["answered"].as_u64().map(|answered| format!("the answer has attempt {answered}")));
    details.join("; ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use insta::assert_snapshot;
    use jiff::SignedDuration;
    use windlass_api::DevicePresence;

    use super::*;

    #[test]
    fn a_device_says_whether_it_is_there_who_has_it_and_who_waits() {
        let now = Timestamp::constant(1_900_000_000, 0);
        let device = Device {
            name: "press-1".to_owned(),
            labels: BTreeMap::from([("site".to_owned(), "nord".to_owned())]),
            presence: Some(DevicePresence::default()),
            echoes_attempt: true,
            learned: false,
            online: true,
            online_changed_at: Some(now - SignedDuration::from_secs(300)),
            online_changes: 0,
            lock: "device..press-1".to_owned(),
            locked: true,
            locked_since: Some(now - SignedDuration::from_secs(5)),
            task: Some("task-1".to_owned()),
            waiting: 3,
            queue: vec!["task-2".to_owned()],
        };
        assert_snapshot!(details(&device, now, Style::PLAIN), @"
        DEVICE   PRESENCE  SINCE   TASK    LOCKED  WAITING  LABELS
        press-1  online    5m ago  task-1  5s ago  3        site=nord

        WAITS  TASK
        1      task-2
        and 2 more
        ");
        let other = Device { online: false, online_changed_at: None, ..device.clone() };
        assert!(render(&[other], now, Style::PLAIN).contains("never heard"));
        let unwatched = Device { presence: None, task: None, ..device };
        let text = render(&[unwatched], now, Style::PLAIN);
        assert!(text.contains("not watched") && text.contains("damaged"), "{text}");
    }
}

//! Tasks and changes for the tests, made by the real rules, and a sink to write them to.

use std::{
    collections::BTreeMap,
    future::Future,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
};

use tempfile::TempDir;
use windlass_core::{
    Action, Attempt, Command, Context, Effect, Event, EventKind, Failure, Flow, Input, Json, Millis, Name,
    OnFailure, Outcome, Report, StepDefinition, Task, TaskId, Timestamp, apply,
};
use windlass_store::{
    Change, Envelope, MessageId, Now, StoreError, StoredFlow, TaskChange,
    resident::{Recovered, Room, RowSink},
};
use windlass_stores::sqlite::{SqliteOptions, SqliteSink};

/// 2023-11-14, some time after nine in the evening.
pub(crate) const START: Timestamp = Timestamp(1_700_000_000_000);

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub(crate) fn at(ms: i64) -> Timestamp {
    Timestamp(START.0 + ms)
}

pub(crate) fn now(ms: i64) -> Now {
    Now { wall: at(ms), mono: Millis(0) }
}

/// The id of a task that was accepted `ms` after [`START`].
pub(crate) fn id(ms: i64, n: u64) -> TaskId {
    TaskId(u128::try_from(at(ms).0).unwrap() << 80 | 7 << 76 | 2 << 62 | u128::from(n))
}

/// A flow of `steps` steps in a line, each with a rollback.
pub(crate) fn flow(named: &str, steps: usize, on_failure: OnFailure) -> Arc<Flow> {
    let action = |command: &str| Action {
        timeout: Millis::from_secs(60),
        ..Action::of_worker(name("module"), name(command))
    };
    let step = |index: usize| StepDefinition {
        rollback: Some(action("undo")),
        ..StepDefinition::new(
            name(&format!("step-{index}")),
            action("do"),
            index.checked_sub(1).into_iter().collect(),
        )
    };
    let steps = (0..steps).map(step).collect();
    Arc::new(Flow { on_failure, ..Flow::new(name(named), steps) })
}

pub(crate) fn flow_change(flow: &Arc<Flow>) -> Change {
    Change::Flow(StoredFlow { flow: flow.clone(), created_at: START })
}

/// A task and the changes that made it what it is.
pub(crate) struct Story {
    pub(crate) task: Arc<Task>,
    pub(crate) events: Vec<Event>,
}

impl Story {
    /// A task that is about to be accepted at `ms`.
    pub(crate) fn new(flow: &Arc<Flow>, id: TaskId, ms: i64, labels: &[(&str, &str)]) -> Self {
        let input = Input {
            labels: labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            priority: -3,
            traceparent: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into()),
            ..Input::new(Json::parse(r#"{"z": 1, "a": {"digits": 1.50}}"#).unwrap(), at(ms))
        };
        Self { task: Arc::new(Task::new(id, flow.clone(), input.into())), events: Vec::new() }
    }

    pub(crate) fn with_params(flow: &Arc<Flow>, id: TaskId, params: &str) -> Self {
        let mut story = Self::new(flow, id, 0, &[]);
        let input = Input { params: Json::parse(params).unwrap(), ..(*story.task.input).clone() };
        story.task = Arc::new(Task::new(id, flow.clone(), input.into()));
        story
    }

    pub(crate) fn accept(&mut self, ms: i64) -> Change {
        self.apply(&Command::Accept { done: Vec::new(), overrides_unique: false, by: None }, ms)
    }

    /// The open attempt succeeds with `result`.
    pub(crate) fn succeed(&mut self, ms: i64, result: Option<&str>) -> Change {
        let result = result.map(|text| Json::parse(text).unwrap());
        self.report(ms, Outcome::Succeeded(result))
    }

    /// The open attempt fails for good.
    pub(crate) fn fail(&mut self, ms: i64) -> Change {
        self.report(ms, Outcome::Failed(Failure::new("no space", 28, false)))
    }

    /// The open attempt is put off.
    pub(crate) fn retry_later(&mut self, ms: i64, delay: Millis) -> Change {
        self.report(ms, Outcome::RetryLater { delay: Some(delay), message: "busy".into() })
    }

    fn report(&mut self, ms: i64, outcome: Outcome) -> Change {
        let (key, number) =
            self.task.acts().find(|(_, act)| act.is_open()).map(|(key, act)| (key, act.attempt)).unwrap();
        let attempt = Attempt { key, number, started_at: Some(at(ms)) };
        self.apply(&Command::Report(Report { attempt, outcome }), ms)
    }

    pub(crate) fn apply(&mut self, command: &Command, ms: i64) -> Change {
        let before = self.task.state.events;
        let transition = apply(&self.task, command, &Context::at(at(ms))).unwrap();
        let results = transition.events.iter().filter_map(|event| match &event.kind {
            EventKind::ActSucceeded { key, result: Some(result), .. } => Some((*key, result.clone())),
            _ => None,
        });
        let results = results.collect();
        let messages = transition.effects.iter().filter_map(|effect| match effect {
            Effect::Send(message) => Some(message.clone()),
            _ => None,
        });
        let messages = messages
            .zip(0..)
            .map(|(message, place)| Envelope {
                id: MessageId::of_task(self.task.id, before + 1, place),
                message,
            })
            .collect();
        self.task = Arc::new(transition.task);
        self.events.extend(transition.events.clone());
        Change::Task(Box::new(TaskChange {
            before,
            generation: 0,
            task: self.task.clone(),
            events: transition.events,
            waits: Vec::new(),
            results,
            logs: Vec::new(),
            journal: Vec::new(),
            messages,
            submit_key: None,
            consumes: None,
            lost: Vec::new(),
            reported: Vec::new(),
            offered: Vec::new(),
            handed_out: Vec::new(),
            announces: false,
            fence: None,
        }))
    }

    /// All changes of a task that runs to its end.
    pub(crate) fn run(&mut self, ms: i64) -> Vec<Change> {
        let mut changes = vec![self.accept(ms)];
        while !self.task.is_ended() {
            changes.push(self.succeed(ms, Some(r#"{"ok": true}"#)));
        }
        changes
    }

    /// The task's events as they are read back: numbered, results apart.
    pub(crate) fn stored_events(&self) -> Vec<(u64, Event)> {
        let mut events = self.events.clone();
        for event in &mut events {
            if let EventKind::ActSucceeded { result, .. } | EventKind::ActResolved { result, .. } =
                &mut event.kind
            {
                *result = None;
            }
        }
        (1..).zip(events).collect()
    }
}

/// A directory with a store in it.
pub(crate) struct Place {
    pub(crate) directory: TempDir,
}

/// A log that is made in no time.
pub(crate) fn options() -> SqliteOptions {
    SqliteOptions { wal_bytes: 1 << 20, ..SqliteOptions::default() }
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("windlass.db")
    }

    pub(crate) fn open(&self) -> (SqliteSink, Recovered) {
        open(&self.path(), options())
    }
}

pub(crate) fn open(path: &Path, options: SqliteOptions) -> (SqliteSink, Recovered) {
    let sink = SqliteSink::open(path, options).unwrap();
    let recovered = wait(sink.recover(Room::ENDLESS)).unwrap();
    (sink, recovered)
}

pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// Writes a batch and waits for it.
pub(crate) fn try_write(sink: &SqliteSink, changes: Vec<Change>) -> Result<(), StoreError> {
    let (sender, receiver) = mpsc::channel();
    sink.write(Arc::new(changes.into()), Box::new(move |result| sender.send(result).unwrap()));
    receiver.recv().unwrap()
}

pub(crate) fn write(sink: &SqliteSink, changes: Vec<Change>) {
    try_write(sink, changes).unwrap();
}

/// What was recovered as tasks, by id.
pub(crate) fn tasks(recovered: &Recovered) -> BTreeMap<TaskId, Task> {
    let flows: BTreeMap<_, _> =
        recovered.flows.iter().map(|stored| (stored.flow.name.to_string(), stored.flow.clone())).collect();
    let task = |row: &windlass_store::resident::TaskRow| {
        (row.id, row.clone().into_task(|name, _| flows.get(name).cloned()).unwrap())
    };
    recovered.tasks.iter().map(task).collect()
}

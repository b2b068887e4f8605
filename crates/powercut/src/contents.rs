//! The contents of a store, as lines that can be compared.

use std::{
    collections::BTreeSet,
    fmt::Debug,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use windlass_core::TaskId;
use windlass_store::{
    Change, StoreError,
    resident::{Recovered, RowSink},
};

use crate::ledger::{Entry, Work};

/// The ids and keys of everything that was passed to a store. They are needed to read the whole store.
#[derive(Debug, Default)]
pub(crate) struct Names {
    tasks: Vec<TaskId>,
    keys: Vec<[u8; 32]>,
}

impl Names {
    /// The ids and keys in these entries.
    pub(crate) fn of(entries: &[Arc<Entry>]) -> Self {
        let (mut tasks, mut keys) = (BTreeSet::new(), BTreeSet::new());
        for entry in entries {
            let Work::Batch(batch) = &entry.work else { continue };
            for change in &batch.changes {
                if let Change::Task(change) = change {
                    tasks.insert(change.task.id);
                    keys.extend(change.submit_key.as_ref().map(|key| key.scope));
                }
            }
        }
        Self { tasks: tasks.into_iter().collect(), keys: keys.into_iter().collect() }
    }
}

/// The contents of a store: one line for each item, sorted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Contents(BTreeSet<String>);

impl Contents {
    /// Reads everything from `sink`, which has just returned `recovered`.
    pub(crate) async fn read(
        sink: &dyn RowSink,
        recovered: Recovered,
        names: &Names,
    ) -> Result<Self, StoreError> {
        let mut lines = BTreeSet::new();
        let mut add = |what: &str, thing: &dyn Debug| {
            lines.insert(format!("{what}: {thing:?}"));
        };
        add("latest time", &recovered.latest_at);
        recovered.flows.iter().for_each(|flow| add("flow", flow));
        recovered.lines.iter().for_each(|line| add("line", line));
        recovered.tasks.iter().for_each(|task| add("active task", task));
        recovered.queues.iter().for_each(|queue| add("paused queue", queue));
        recovered.messages.iter().for_each(|message| add("message", message));
        for task in sink.load(&names.tasks).await?.into_iter().flatten() {
            add("task at rest", &task);
        }
        for (scope, found) in names.keys.iter().zip(sink.submit_keys(&names.keys).await?) {
            add("key", &(scope, found));
        }
        for alarm in sink.alarms(true, usize::MAX).await? {
            let alarm = alarm.map_err(|damaged| StoreError::Damaged(damaged.reason.into()))?;
            add("alarm", &sink.alarm(&alarm.id).await?);
        }
        for told in sink.unannounced(TaskId::NONE, usize::MAX).await? {
            add("to be announced", &told);
        }
        for task in &names.tasks {
            for event in sink.events(*task, 0, usize::MAX).await? {
                add("event", &(task, event));
            }
            for line in &sink.logs(*task, 0, usize::MAX).await? {
                add("log line", &(task, line));
            }
        }
        Ok(Self(lines))
    }

    /// A hash of the contents. Different contents have the same hash only by a negligible chance.
    pub(crate) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        hasher.finish()
    }

    /// The lines that are not in `other`.
    pub(crate) fn lines_beyond<'c>(&'c self, other: &'c Self) -> impl Iterator<Item = &'c str> {
        self.0.difference(&other.0).map(String::as_str)
    }
}

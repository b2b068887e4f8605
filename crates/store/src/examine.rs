//! Looking at a store without working on it: how much is in it, and what is wrong with it.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{ActKey, Millis, TaskId, TaskStatus, Timestamp, Wakeup, is_adhoc, task_status, waits};

use crate::port::{Loaded, Now, RowSnapshot, Store, StoreError};

/// Tasks read at once.
const TASKS: usize = 100;

/// Events and locks read at once.
const ROWS: usize = 1000;

/// At most this many problems are listed.
const PROBLEMS_MAX: usize = 100;

/// What is in a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// How many tasks have not ended.
    pub active: u64,
    /// How many tasks have ended in each way.
    pub ended: BTreeMap<TaskStatus, u64>,
    /// How many flows there are, in how many versions together.
    pub flows: (u64, u64),
    /// How many alarms are open.
    pub open_alarms: u64,
    /// What is wrong, at most a hundred things. Empty: all that was read is sound.
    pub problems: Vec<String>,
}

/// Reads a store whole, as it was at one moment, page by page.
///
/// # Errors
/// When it cannot be read any further. What cannot be understood is one of its problems.
pub async fn examine(snapshot: &mut dyn RowSnapshot) -> Result<Findings, StoreError> {
    let mut findings = Findings::default();
    findings.catalogue(snapshot.store()).await?;
    let mut after = None;
    let mut lost = 0;
    loop {
        let submitted = snapshot.submitted(after, TASKS).await?;
        let ids: Vec<TaskId> = submitted.iter().map(|submitted| submitted.id).collect();
        let rows = snapshot.waits(after.map(TaskId), ids.last().copied()).await?;
        let mut woken_by: BTreeMap<TaskId, BTreeSet<Wakeup>> =
            ids.iter().map(|id| (*id, BTreeSet::new())).collect();
        for (task, wakeup) in rows {
            match woken_by.get_mut(&task) {
                Some(wakeups) => drop(wakeups.insert(wakeup)),
                None => lost += 1,
            }
        }
        for loaded in findings.load(snapshot.store(), &ids).await? {
            findings.task(snapshot.store(), &loaded, &woken_by[&loaded.task.id]).await?;
        }
        let Some(last) = submitted.last() else { break };
        after = Some(last.place);
    }
    for damaged in snapshot.store().quarantine().rows() {
        findings.note(format!("{}: {}", damaged.row, damaged.reason));
    }
    if lost > 0 {
        findings.note(format!("waits of tasks that are not there: {lost}"));
    }
    Ok(findings)
}

impl Findings {
    fn note(&mut self, problem: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        }
    }

    /// What was read; nothing where it cannot be understood, which is noted.
    fn readable<T>(&mut self, what: &str, read: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
        match read {
            Ok(read) => Ok(Some(read)),
            Err(StoreError::Damaged(why)) => {
                self.note(format!("{what}: {why}"));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// What is not a task's.
    async fn catalogue(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        let flows = self.readable("flows", store.flows().await)?.unwrap_or_default();
        for newest in flows.iter().filter(|stored| !is_adhoc(stored.flow.name.as_str())) {
            let name = &newest.flow.name;
            self.flows.0 += 1;
            for version in 1..=newest.flow.version {
                let found = store.flow(name.as_str(), Some(version)).await;
                match found {
                    Ok(Some(_)) => self.flows.1 += 1,
                    // The quarantine has it.
                    Err(StoreError::Damaged(_)) => {}
                    Err(error) => return Err(error),
                    Ok(None) => self.note(format!("version {version} of flow {name} is missing")),
                }
            }
        }
        let alarms = self.readable("alarms", store.alarms(false, usize::MAX >> 1).await)?;
        self.open_alarms = alarms.map_or(0, |alarms| alarms.len() as u64);
        self.readable("messages between tasks and locks", store.messages(ROWS).await)?;
        self.readable("what is to be announced", store.unannounced(TaskId::NONE, ROWS).await)?;
        let beginning = Now { wall: Timestamp(0), mono: Millis(0) };
        self.readable("limits", store.limits(beginning).await)?;
        self.readable("queues", store.queues().await)?;
        self.readable("free locks", store.free_locks(ROWS).await)?;
        let mut after = None;
        while let Some(locks) = self.readable("locks", store.locks(after.as_ref(), ROWS).await)? {
            let Some(last) = locks.last() else { break };
            after = Some(last.name.clone());
        }
        Ok(())
    }

    /// Those of these tasks that can be read.
    async fn load(&mut self, store: &dyn Store, ids: &[TaskId]) -> Result<Vec<Loaded>, StoreError> {
        let loaded = store.load(ids).await?;
        for (id, _) in ids.iter().zip(&loaded).filter(|(_, loaded)| loaded.is_none()) {
            if let Some(damaged) = store.quarantine().error(*id) {
                self.note(format!("state of task {id}: {damaged}"));
            }
        }
        Ok(loaded.into_iter().flatten().collect())
    }

    async fn task(
        &mut self,
        store: &dyn Store,
        loaded: &Loaded,
        wakeups: &BTreeSet<Wakeup>,
    ) -> Result<(), StoreError> {
        let task = &loaded.task;
        if task.is_ended() {
            *self.ended.entry(task_status(task, &BTreeSet::<ActKey>::new())).or_default() += 1;
        } else {
            self.active += 1;
        }
        let is_missing = |wakeup: &Wakeup| !wakeups.contains(wakeup);
        if waits(task).iter().any(|waiting| is_missing(&waiting.key)) {
            self.note(format!("active task {} without what would wake it", task.id));
        }
        let mut events = 0;
        loop {
            let page = store.events(task.id, events, ROWS).await;
            let Some(page) = self.readable(&format!("events of task {}", task.id), page)? else {
                return Ok(());
            };
            if page.is_empty() {
                break;
            }
            events += page.len() as u64;
        }
        if events != task.state.events {
            let had = task.state.events;
            self.note(format!("history of task {}: {events} of its {had} events are there", task.id));
        }
        Ok(())
    }
}

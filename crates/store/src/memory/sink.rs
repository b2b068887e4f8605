//! Rows in memory for a resident store.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use windlass_core::{ActKey, Alarm, AlarmId, Event, Members, Name, Step, Task, TaskId, Timestamp};

use super::tables::Tables;
use crate::{
    port::{
        Change, Claim, DamagedTask, JournalEntry, JournalQuery, JournalSize, LogLine, Now, Page, QueueChange,
        Retention, SizeQuery, StoreError, StoredAlarm, SubmitKey, TaskQuery, Unannounced, UniqueKey,
    },
    resident::{
        Batch, DamagedLocks, Line, LinePlace, Params, ReadTask, Recovered, Rest, Room, RowSink, TaskRow,
        WakePlace, Written,
    },
};

/// Keeps the rows of a resident store as long as a handle of it lives. A clone is a handle of the same rows:
/// a resident store opened on one finds what another has written, as after a restart.
#[derive(Debug, Clone)]
pub struct MemorySink {
    token_key: [u8; 32],
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    tables: Tables,
    /// How often the rows were opened.
    epoch: u32,
    /// Tasks whose rows cannot be read.
    damaged: BTreeSet<TaskId>,
    /// Claims that outlive a start.
    claims: BTreeMap<(TaskId, ActKey), Claim>,
}

impl Inner {
    /// A task as it is read.
    fn read(&self, row: TaskRow) -> ReadTask {
        if self.damaged.contains(&row.id) {
            let reason = format!("task {}: its rows are not as they were written", row.id).into();
            return Err(DamagedTask { id: row.id, row: Box::default(), reason });
        }
        Ok(row)
    }
}

impl MemorySink {
    /// No rows yet. `token_key` is what tokens are signed with.
    #[must_use]
    pub fn new(token_key: [u8; 32]) -> Self {
        Self { token_key, inner: Arc::default() }
    }

    /// An empty store. Its claims have higher numbers than those of this one, so the two have none in common.
    #[must_use]
    pub fn successor(&self, token_key: [u8; 32]) -> Self {
        let successor = Self::new(token_key);
        successor.inner().epoch = self.inner().epoch;
        successor
    }

    /// Reads the rows.
    pub(super) fn read<T>(&self, read: impl FnOnce(&Tables) -> T) -> T {
        read(&self.inner().tables)
    }

    /// Damages the rows of a task: from now on they cannot be read.
    pub fn damage(&self, task: TaskId) {
        self.inner().damaged.insert(task);
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl RowSink for MemorySink {
    async fn recover(&self, mut room: Room) -> Result<Recovered, StoreError> {
        let mut inner = self.inner();
        inner.epoch += 1;
        let tables = &inner.tables;
        let paused = |(name, pause): (&_, &_)| QueueChange {
            name: Clone::clone(name),
            paused: Some(Clone::clone(pause)),
        };
        let in_lines = tables.up_to_limits().map(|task| TaskRow { never_handed_out: true, ..row(task) });
        let tasks = tables.awake().map(|task| row(task)).chain(in_lines).map(|row| inner.read(row));
        let (mut readable, mut damaged) = (Vec::new(), Vec::new());
        for task in tasks {
            match task {
                Ok(mut row) => {
                    room.admit(&mut row);
                    readable.push(row);
                }
                Err(found) => damaged.push(found),
            }
        }
        Ok(Recovered {
            epoch: inner.epoch,
            token_key: self.token_key,
            flows: tables.flows().flatten().cloned().collect(),
            damaged_flows: Vec::new(),
            lines: tables.limited().collect(),
            tasks: readable,
            damaged,
            queues: tables.paused().iter().map(paused).collect(),
            limits: tables.limits().cloned().collect(),
            records: tables.records().all().cloned().collect(),
            messages: tables.messages().cloned().collect(),
            locks: tables.locks().values().cloned().collect(),
            damaged_locks: DamagedLocks::new(),
            lock_floor: tables.lock_floor(),
            latest_at: tables.latest_at(),
            claims: inner.claims.iter().map(|((task, _), claim)| (*task, claim.clone())).collect(),
        })
    }

    fn write(&self, batch: Arc<Batch>, written: Written) {
        let refused = {
            let mut inner = self.inner();
            let tables = &mut inner.tables;
            let refused = batch.changes.iter().find_map(|change| tables.refuses_staged(change));
            for change in &batch.changes {
                if let Change::Task(change) = change {
                    tables.lay_down(change.task.id, batch.resting.get(&change.task.id).cloned());
                }
            }
            for (line, limit) in &batch.limits {
                tables.set_limit(line, *limit);
            }
            for flow in &batch.unused_flows {
                tables.delete_flow(flow);
            }
            for (act, claim) in &batch.claims {
                match claim {
                    Some(claim) => drop(inner.claims.insert(*act, claim.clone())),
                    None => drop(inner.claims.remove(act)),
                }
            }
            refused
        };
        written(match refused {
            None => Ok(()),
            // Changes come checked, so this is a defect of the resident store.
            Some(outcome) => Err(StoreError::Damaged(format!("a change does not fit the rows: {outcome:?}"))),
        });
    }

    async fn load_active(&self, ids: &[TaskId]) -> Result<Vec<Option<ReadTask>>, StoreError> {
        let inner = self.inner();
        let load = |id: &TaskId| {
            let task = inner.tables.task(*id)?;
            let never_handed_out = inner.tables.rest(*id).is_some_and(|rest| rest.never_handed_out);
            Some(inner.read(TaskRow { never_handed_out, ..row(task) }))
        };
        Ok(ids.iter().map(load).collect())
    }

    async fn load(&self, ids: &[TaskId]) -> Result<Vec<Option<ReadTask>>, StoreError> {
        let inner = self.inner();
        let tables = &inner.tables;
        let load = |id: &TaskId| {
            let task = tables.task(*id)?;
            match tables.rest(*id) {
                Some(rest) => Some(TaskRow { never_handed_out: rest.never_handed_out, ..row(task) }),
                None => task.is_ended().then(|| row(task)),
            }
        };
        Ok(ids.iter().map(|id| load(id).map(|row| inner.read(row))).collect())
    }

    async fn resting_page(
        &self,
        before: TaskId,
        limit: usize,
        _: Params,
    ) -> Result<Vec<ReadTask>, StoreError> {
        let inner = self.inner();
        let newest = inner.tables.resting(before).take(limit);
        let row = |(task, rest): (&Arc<Task>, &Rest)| TaskRow {
            never_handed_out: rest.never_handed_out,
            ..row(&without_results(task))
        };
        Ok(newest.map(row).map(|row| inner.read(row)).collect())
    }

    async fn line_page(
        &self,
        line: &Line,
        after: LinePlace,
        limit: usize,
        mut room: Room,
    ) -> Result<Vec<(LinePlace, ReadTask)>, StoreError> {
        let inner = self.inner();
        let next = inner.tables.behind(line, after).take(limit);
        let row = |task| inner.read(TaskRow { never_handed_out: true, ..row(task) });
        let mut found: Vec<_> = next.map(|(place, task)| (place, row(task))).collect();
        found.iter_mut().for_each(|(_, read)| room.admit_read(read));
        Ok(found)
    }

    async fn line_count(&self, line: &Line, after: LinePlace, before: LinePlace) -> Result<u64, StoreError> {
        let inner = self.inner();
        Ok(inner.tables.behind(line, after).take_while(|(place, _)| *place < before).count() as u64)
    }

    async fn waking(
        &self,
        after: WakePlace,
        until: Timestamp,
        limit: usize,
        mut room: Room,
    ) -> Result<Vec<(WakePlace, ReadTask)>, StoreError> {
        let inner = self.inner();
        let waking = inner.tables.waking(after, until).take(limit).map(|(place, task, rest)| {
            (place, inner.read(TaskRow { never_handed_out: rest.never_handed_out, ..row(task) }))
        });
        let mut found: Vec<_> = waking.collect();
        found.iter_mut().for_each(|(_, read)| room.admit_read(read));
        Ok(found)
    }

    async fn ended_page(&self, query: &TaskQuery) -> Result<Page<ReadTask, TaskId>, StoreError> {
        let inner = self.inner();
        let nothing_held = std::collections::BTreeSet::<ActKey>::new();
        Ok(inner.tables.page(query, |task| {
            let wanted = task.is_ended() && query.matches(task, &nothing_held);
            wanted.then(|| inner.read(row(&without_results(task))))
        }))
    }

    async fn submit_keys(&self, scopes: &[[u8; 32]]) -> Result<Vec<Option<(TaskId, SubmitKey)>>, StoreError> {
        let inner = self.inner();
        Ok(scopes.iter().map(|scope| inner.tables.submit_key(scope)).collect())
    }

    async fn unique_tasks(&self, keys: &[UniqueKey]) -> Result<Vec<Option<TaskId>>, StoreError> {
        let inner = self.inner();
        Ok(keys.iter().map(|key| inner.tables.unique_task(key)).collect())
    }

    async fn events(&self, task: TaskId, after: u64, limit: usize) -> Result<Vec<(u64, Event)>, StoreError> {
        Ok(self.inner().tables.events(task, after, limit))
    }

    async fn unannounced(
        &self,
        above: TaskId,
        limit: usize,
    ) -> Result<Vec<Result<Unannounced, DamagedTask>>, StoreError> {
        Ok(self.inner().tables.unannounced(above, limit).into_iter().map(Ok).collect())
    }

    async fn journal(&self, query: &JournalQuery) -> Result<Vec<(u64, JournalEntry)>, StoreError> {
        Ok(self.inner().tables.records().journal(query))
    }

    async fn journal_sizes(&self, query: SizeQuery) -> Result<Vec<JournalSize>, StoreError> {
        Ok(self.inner().tables.records().journal_sizes(query))
    }

    async fn logs(&self, task: TaskId, after: u64, limit: usize) -> Result<Vec<(u64, LogLine)>, StoreError> {
        Ok(self.inner().tables.logs(task, after, limit))
    }

    async fn alarm(&self, id: &AlarmId) -> Result<Option<StoredAlarm>, StoreError> {
        Ok(self.inner().tables.alarm(id).cloned())
    }

    async fn alarms(&self, all: bool, limit: usize) -> Result<Vec<Result<Alarm, DamagedTask>>, StoreError> {
        Ok(self.inner().tables.alarms(all, limit).into_iter().map(Ok).collect())
    }

    async fn have_tasks(&self, flows: &[Name]) -> Result<Vec<bool>, StoreError> {
        let inner = self.inner();
        Ok(flows.iter().map(|flow| inner.tables.has_tasks(flow)).collect())
    }

    async fn sweep(&self, retention: &Retention, now: Now, limit: usize) -> Result<u64, StoreError> {
        let (rows, _) = self.inner().tables.sweep(retention, now.wall, limit);
        Ok(rows as u64)
    }
}

/// A task as rows keep it.
fn row(task: &Task) -> TaskRow {
    TaskRow {
        id: task.id,
        flow: task.flow.name.clone(),
        version: task.flow.version,
        input: Clone::clone(&task.input),
        state: task.state.clone(),
        never_handed_out: false,
        is_body_away: false,
    }
}

/// The task as lists show it, without members and results.
pub(super) fn without_results(task: &Task) -> Task {
    let mut task = task.clone();
    let has_any =
        |step: &Step| step.forward.result.is_some() || step.undo.result.is_some() || step.members.is_some();
    for step in task.state.steps.iter_mut().filter(|step| has_any(step)) {
        let step = Arc::make_mut(step);
        step.forward.result = None;
        step.undo.result = None;
        // A list shows only the number of items.
        if let Some(members) = &mut step.members {
            **members = Members::new(members.total());
        }
    }
    task
}

//! Where a resident store writes its rows, and reads back what it does not keep in memory.

mod front;

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use windlass_core::{
    ActKey, Alarm, AlarmId, Direction, Event, Flow, Input, Json, Lock, Name, State, TaskId, Timestamp,
};

use super::{Line, LinePlace, Rest, Room, WakePlace};
use crate::port::{
    Change, Claim, DamagedTask, Envelope, JournalEntry, JournalQuery, JournalSize, Limit, LogLine, Now, Page,
    QueueChange, Record, Retention, SizeQuery, StoreError, StoredAlarm, StoredFlow, SubmitKey, TaskQuery,
    Unannounced, UniqueKey,
};

pub use front::Front;

/// Called once when a batch was written, from any thread.
pub type Written = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// Changes that are written together.
#[derive(Debug, Default)]
pub struct Batch {
    /// The changes, in their order.
    pub changes: Vec<Change>,
    /// Those of its tasks that rest by their last change in it.
    pub resting: BTreeMap<TaskId, Rest>,
    /// Up to where attempts may be handed out from now on, of lines with tasks at rest.
    pub limits: BTreeMap<Line, LinePlace>,
    /// Flows that came with tasks and have none any more: they go.
    pub unused_flows: Vec<Name>,
    /// Claims that outlive a start.
    pub claims: ClaimRows,
}

/// Changes to rows of claims: `None` deletes the row. Claims of workers have none, since workers name what they have after a
/// start. Nobody names what was offered on a broker, or runs where only the broker is known.
pub type ClaimRows = BTreeMap<(TaskId, ActKey), Option<Claim>>;

impl From<Vec<Change>> for Batch {
    fn from(changes: Vec<Change>) -> Self {
        Self { changes, ..Self::default() }
    }
}

/// Whether tasks are read with their parameters, which may be 1 MiB each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Params {
    /// They are read.
    Read,
    /// They are left out: the task comes with an empty object.
    LeftOut,
}

/// Where a resident store keeps its rows. Changes come checked: versions agree and keys are free.
#[async_trait]
pub trait RowSink: Send + Sync + 'static {
    /// Reads what is active and does not rest. Called once before anything is written, which begins a new boot
    /// epoch, and again after a failed write: everything that was written and not confirmed is then either there
    /// whole or not at all. The epoch may be the same then, as claim numbers go on in it; reading must not fail
    /// because nothing can be written. Bodies of tasks come as far as there is `room`.
    async fn recover(&self, room: Room) -> Result<Recovered, StoreError>;

    /// Writes a batch after those before it, all of it or nothing, and calls `written` once it is on disk.
    /// After a failure every batch fails until [`RowSink::recover`] is called.
    fn write(&self, batch: Arc<Batch>, written: Written);

    /// Tasks that rest or have ended, with their members and results; in the order of `ids`.
    async fn load(&self, ids: &[TaskId]) -> Result<Vec<Option<ReadTask>>, StoreError>;

    /// As [`RowSink::load`], and active tasks as well: as they are on disk at one moment, members and results included.
    async fn load_active(&self, ids: &[TaskId]) -> Result<Vec<Option<ReadTask>>, StoreError>;

    /// Tasks that have ended, newest first, without members and results. Looks at no more than
    /// [`crate::port::SCAN_MAX`] of them. Damaged ones come on top of the query's limit.
    async fn ended_page(&self, query: &TaskQuery) -> Result<Page<ReadTask, TaskId>, StoreError>;

    /// At most `limit` tasks that rest, newest first, without members and results: those older than `before`. With
    /// `params` they come with their parameters.
    async fn resting_page(
        &self,
        before: TaskId,
        limit: usize,
        params: Params,
    ) -> Result<Vec<ReadTask>, StoreError>;

    /// At most `limit` tasks that rest in a line behind the place `after`, in their order; with their bodies as far as
    /// there is `room`.
    async fn line_page(
        &self,
        line: &Line,
        after: LinePlace,
        limit: usize,
        room: Room,
    ) -> Result<Vec<(LinePlace, ReadTask)>, StoreError>;

    /// How many tasks rest in a line behind `after` and before `before`.
    async fn line_count(&self, line: &Line, after: LinePlace, before: LinePlace) -> Result<u64, StoreError>;

    /// At most `limit` tasks that rest and are to be woken after the place `after`, and at `until` at the latest; in
    /// this order, with their bodies as far as there is `room`.
    async fn waking(
        &self,
        after: WakePlace,
        until: Timestamp,
        limit: usize,
        room: Room,
    ) -> Result<Vec<(WakePlace, ReadTask)>, StoreError>;

    /// The tasks that were submitted under these keys, in their order.
    async fn submit_keys(&self, scopes: &[[u8; 32]]) -> Result<Vec<Option<(TaskId, SubmitKey)>>, StoreError>;

    /// The newest tasks with these keys, in their order.
    async fn unique_tasks(&self, keys: &[UniqueKey]) -> Result<Vec<Option<TaskId>>, StoreError>;

    /// Whether there are tasks of these flows, which came with tasks; in their order.
    async fn have_tasks(&self, flows: &[Name]) -> Result<Vec<bool>, StoreError>;

    /// Events of a task with numbers above `after`, in order.
    async fn events(&self, task: TaskId, after: u64, limit: usize) -> Result<Vec<(u64, Event)>, StoreError>;

    /// At most `limit` entries of the outbox, of tasks with ids above `above`: those of the oldest tasks first, by their ids;
    /// those of one task in the order in which they happened. Damaged rows are added to these. The entries behind a damaged one
    /// of the same task are left out.
    async fn unannounced(
        &self,
        above: TaskId,
        limit: usize,
    ) -> Result<Vec<Result<Unannounced, DamagedTask>>, StoreError>;

    /// Log lines of a task with numbers above `after`, in the order they came, each with its number. The numbers of a
    /// task's lines only grow, with gaps: none comes again once its line was deleted, and none becomes visible after
    /// a greater one.
    async fn logs(&self, task: TaskId, after: u64, limit: usize) -> Result<Vec<(u64, LogLine)>, StoreError>;

    /// Entries of a journal, the newest first, each with its number. Numbers only grow, with gaps.
    async fn journal(&self, query: &JournalQuery) -> Result<Vec<(u64, JournalEntry)>, StoreError>;

    /// The sizes of entries of a journal, ordered by time, and by number where times are equal.
    async fn journal_sizes(&self, query: SizeQuery) -> Result<Vec<JournalSize>, StoreError>;

    /// The alarm with this id; nothing where its row is damaged, which the next change of the alarm replaces.
    async fn alarm(&self, id: &AlarmId) -> Result<Option<StoredAlarm>, StoreError>;

    /// At most `limit` alarms, those raised last first; resolved ones only with `all`. Some may be damaged.
    async fn alarms(&self, all: bool, limit: usize) -> Result<Vec<Result<Alarm, DamagedTask>>, StoreError>;

    /// Deletes at most `limit` of what is kept too long, but for flows. Returns how many rows were deleted.
    async fn sweep(&self, retention: &Retention, now: Now, limit: usize) -> Result<u64, StoreError>;
}

/// What a resident store begins with.
#[derive(Debug)]
pub struct Recovered {
    /// How often the data was opened, this time included. Claim numbers begin with it.
    pub epoch: u32,
    /// What tokens are signed with.
    pub token_key: [u8; 32],
    /// All flows in all versions, but for damaged ones.
    pub flows: Vec<StoredFlow>,
    /// Versions of flows whose rows are damaged.
    pub damaged_flows: Vec<(Name, u32)>,
    /// Lines with a limit.
    pub lines: Vec<LimitedLine>,
    /// Tasks that have not ended and do not rest, with their results; also those that rest up to the limit of
    /// their line, whose attempts may have been handed out.
    pub tasks: Vec<TaskRow>,
    /// Tasks like those whose rows are damaged.
    pub damaged: Vec<DamagedTask>,
    /// Queues that are paused.
    pub queues: Vec<QueueChange>,
    /// Limits.
    pub limits: Vec<Limit>,
    /// Records, but for damaged ones.
    pub records: Vec<Record>,
    /// Messages that were not consumed.
    pub messages: Vec<Envelope>,
    /// Locks that somebody has or waits for, and free ones that were not deleted yet.
    pub locks: Vec<Lock>,
    /// Which of them have damaged rows.
    pub damaged_locks: DamagedLocks,
    /// No deleted lock had a higher version.
    pub lock_floor: u64,
    /// The latest time known to be written: the clock must not be behind it.
    pub latest_at: Timestamp,
    /// Claims that outlive a start, with their tasks. One that is unreadable may be missing.
    pub claims: Vec<(TaskId, Claim)>,
}

/// Locks whose rows are damaged, with what is wrong; no name where it cannot be read.
pub type DamagedLocks = BTreeMap<Option<Name>, String>;

/// A task as it was read, or what is wrong with its rows. Damage never fails what else is read with it.
pub type ReadTask = Result<TaskRow, DamagedTask>;

/// A line of which tasks rest, or have rested.
#[derive(Debug, Clone)]
pub struct LimitedLine {
    /// Which.
    pub line: Line,
    /// Up to here attempts may have been handed out.
    pub limit: LinePlace,
    /// How many tasks rest behind the limit.
    pub resting: u64,
}

/// A task as rows keep it: the flow by name and version.
#[derive(Debug, Clone)]
pub struct TaskRow {
    /// Its id.
    pub id: TaskId,
    /// Name of its flow.
    pub flow: Name,
    /// Version of its flow.
    pub version: u32,
    /// What was submitted.
    pub input: Input,
    /// What changes. Members and results are in it where they were read.
    pub state: State,
    /// It rests, and none of its current attempts was ever handed out.
    pub never_handed_out: bool,
    /// There was no [`Room`] for its parameters and results: they are left out.
    pub is_body_away: bool,
}

impl TaskRow {
    /// Puts a result where it belongs; one for a step or a member that the task does not have is skipped.
    pub fn set_result(&mut self, key: ActKey, result: Json) {
        if key.step >= self.state.steps.len() {
            return;
        }
        let step = self.state.step_mut(key.step);
        if key.is_member() {
            if let Some(members) = &mut step.members {
                members.set_result(key.member, key.direction, result);
            }
            return;
        }
        match key.direction {
            Direction::Forward => step.forward.result = Some(result),
            Direction::Rollback => step.undo.result = Some(result),
        }
    }

    /// The task, with its flow found by `flow`.
    ///
    /// # Errors
    /// When its flow is not there.
    pub fn into_task(
        self,
        flow: impl FnOnce(&str, u32) -> Option<std::sync::Arc<Flow>>,
    ) -> Result<windlass_core::Task, StoreError> {
        let Some(flow) = flow(&self.flow, self.version) else {
            return Err(StoreError::Damaged(format!(
                "task {} is of flow {} version {}, which is not there",
                self.id, self.flow, self.version
            )));
        };
        if flow.steps.len() != self.state.steps.len() {
            return Err(StoreError::Damaged(format!("task {} does not have the steps of its flow", self.id)));
        }
        Ok(windlass_core::Task { id: self.id, flow, input: self.input.into(), state: self.state })
    }
}

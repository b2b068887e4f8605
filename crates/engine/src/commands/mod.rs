//! Commands to the engine: to tasks, alarms, flows and queues.

mod access;
mod audit;
mod devices;
mod flows_on_disk;
pub(crate) mod leaders;
mod limits;
mod rerun;
pub(crate) mod rollouts;
pub(crate) mod submit;
pub(crate) mod triggers;

use std::sync::Arc;

use windlass_core::{
    Actor, Alarm, AlarmCommand, AlarmId, AlarmRejection, Command, Flow, Leader, Lock, LockCommand,
    LockHolder, LockName, LockOwner, LockRejection, Name, TaskId,
};
use windlass_store::{Change, Leadership, Loaded, Now, QueueChange, QueuePause, StoredFlow};

use crate::{
    Engine, EngineError,
    deciding::inbox::{Item, Replies, Reply},
};

pub use access::*;
pub(crate) use audit::current_operation;
pub use audit::{AuditFilter, AuditRecord, AuditedOperation, audited};
pub use devices::*;
pub(crate) use flows_on_disk::FlowsOnDisk;
pub use leaders::*;
pub use limits::*;
pub use rerun::*;
pub use rollouts::*;
pub use submit::*;
pub use triggers::*;

/// The result of applying a flow.
#[derive(Debug, Clone)]
pub struct FlowApplication {
    /// The flow as it is in the catalogue now.
    pub stored: StoredFlow,
    /// Whether anything changed.
    pub changed: bool,
}

/// A lock that an operator took from its holder.
#[derive(Debug, Clone)]
pub struct SeizedLock {
    /// The lock as it is now.
    pub lock: Lock,
    /// Its previous holder.
    pub from: LockHolder,
    /// What is known of that, if it was a leader.
    pub leader: Option<Arc<Leader>>,
}

/// An exclusive queue that an operator moved past a task.
#[derive(Debug, Clone)]
pub struct SkippedQueue {
    /// The task that had it.
    pub task: TaskId,
    /// The queue as it is now. The grant to the next task may be in transit.
    pub queue: Lock,
}

impl Engine {
    /// Sends a command to a task. When this returns, the result is on disk.
    ///
    /// # Errors
    /// When the task does not exist or the rules refuse it.
    pub async fn tell(&self, id: TaskId, command: Command) -> Result<Loaded, EngineError> {
        let item = Item::Task { id, command, claim: None, logs: Vec::new() };
        match only(self.inbox.decide(vec![item]).await)? {
            Reply::Task(loaded) => Ok(loaded),
            Reply::Missing => Err(EngineError::UnknownTask(id)),
            Reply::Damaged(error) => Err(error.into()),
            Reply::Rejected(rejection) => Err(rejection.into()),
            _ => Err(EngineError::Conflict),
        }
    }

    /// Sends the same command to several tasks, to each separately and all in one commit. When this returns, the
    /// results are on disk.
    ///
    /// # Errors
    /// When the store fails; for each task separately when it does not exist or the rules refuse the command.
    pub async fn tell_all(
        &self,
        tasks: &[TaskId],
        command: &Command,
    ) -> Result<Vec<Result<(), EngineError>>, EngineError> {
        let item =
            |id: &TaskId| Item::Task { id: *id, command: command.clone(), claim: None, logs: Vec::new() };
        let replies = self.inbox.decide(tasks.iter().map(item).collect()).await?;
        let told = |(id, reply): (&TaskId, Reply)| match reply {
            Reply::Task(_) | Reply::Done => Ok(()),
            Reply::Missing => Err(EngineError::UnknownTask(*id)),
            Reply::Damaged(error) => Err(error.into()),
            Reply::Rejected(rejection) => Err(rejection.into()),
            _ => Err(EngineError::Conflict),
        };
        Ok(tasks.iter().zip(replies).map(told).collect())
    }

    /// Sends a command to an alarm.
    ///
    /// # Errors
    /// When the alarm does not exist or its rules refuse it.
    pub async fn tell_alarm(&self, id: AlarmId, command: AlarmCommand) -> Result<Alarm, EngineError> {
        self.tell_alarm_as(None, id, command).await
    }

    /// As [`Engine::tell_alarm`]; `led`: the caller is the leader of a service.
    pub(crate) async fn tell_alarm_as(
        &self,
        led: Option<Leadership>,
        id: AlarmId,
        command: AlarmCommand,
    ) -> Result<Alarm, EngineError> {
        let item = Item::Alarm { id: id.clone(), command };
        match only(self.inbox.decide_as(led, vec![item]).await)? {
            Reply::Alarm(alarm) => Ok(alarm),
            Reply::AlarmRejected(AlarmRejection::Unknown) => Err(EngineError::UnknownAlarm(id)),
            Reply::AlarmRejected(rejection) => Err(rejection.into()),
            _ => Err(EngineError::Conflict),
        }
    }

    /// Takes a lock from its holder, for the next waiter. The previous holder continues with an outdated fence.
    ///
    /// # Errors
    /// When the lock has no holder.
    pub async fn seize_lock(
        &self,
        name: LockName,
        reason: &str,
        by: Option<Actor>,
    ) -> Result<SeizedLock, EngineError> {
        let command = LockCommand::Seize { reason: reason.into(), by };
        match only(self.inbox.decide(vec![Item::Lock { name: name.clone(), command }]).await)? {
            Reply::Lock { lock, before: (Some(from), leader) } => Ok(SeizedLock { lock, from, leader }),
            Reply::LockRejected(LockRejection::Free) => Err(EngineError::UnknownLock(name)),
            _ => Err(EngineError::Conflict),
        }
    }

    /// Moves an exclusive queue past the task that has it, for the next task. Nothing of the task may be under way.
    ///
    /// # Errors
    /// When no task has the queue, or the rules of the task refuse it.
    pub async fn skip_queue(
        &self,
        name: LockName,
        reason: &str,
        by: Option<Actor>,
    ) -> Result<SkippedQueue, EngineError> {
        let holder = match self.lock(&name).await {
            Err(EngineError::UnknownLock(_)) => None,
            found => found?.holder,
        };
        let Some(owner) = holder.map(|holder| holder.owner).filter(LockOwner::is_task) else {
            return Err(EngineError::NoQueueHolder(name));
        };
        let command = Command::SkipQueue { reason: reason.into(), by };
        self.tell(owner.task, command).await?;
        let queue = match self.lock(&name).await {
            // The last task of the queue left it.
            Err(EngineError::UnknownLock(name)) => Lock::new(name, 0),
            found => found?,
        };
        Ok(SkippedQueue { task: owner.task, queue })
    }

    /// Adds a flow to the catalogue under the next version; an unchanged flow gets no new version.
    ///
    /// # Errors
    /// When the store fails. The flow must have been checked.
    pub async fn apply_flow(&self, flow: Flow, now: Now) -> Result<FlowApplication, EngineError> {
        const TRIES_MAX: usize = 8;
        let is_same =
            |stored: &StoredFlow| *stored.flow == (Flow { version: stored.flow.version, ..flow.clone() });
        for _ in 0..TRIES_MAX {
            let known = self.store.flow(&flow.name, None).await?;
            if let Some(stored) =
                known.filter(|stored| is_same(stored) && self.flows_on_disk.contains(stored))
            {
                return Ok(FlowApplication { stored, changed: false });
            }
            let newest = self.on_disk(|| self.store.flow(&flow.name, None)).await?;
            let version = newest.as_ref().map_or(0, |stored| stored.flow.version);
            if let Some(stored) = newest.filter(is_same) {
                self.flows_on_disk.insert(&stored);
                return Ok(FlowApplication { stored, changed: false });
            }
            let flow = Arc::new(Flow { version: version + 1, ..flow.clone() });
            let stored = StoredFlow { flow, created_at: now.wall };
            match only(self.inbox.decide(vec![Item::Change(Change::Flow(stored.clone()))]).await)? {
                Reply::Done => return Ok(FlowApplication { stored, changed: true }),
                _ => continue,
            }
        }
        Err(EngineError::Conflict)
    }

    /// Pauses or resumes a queue.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn set_queue_paused(
        &self,
        name: Name,
        paused: bool,
        by: Option<Actor>,
        now: Now,
    ) -> Result<(), EngineError> {
        let paused = paused.then_some(QueuePause { at: now.wall, by });
        let change = Change::Queue(QueueChange { name, paused });
        match only(self.inbox.decide(vec![Item::Change(change)]).await)? {
            Reply::Done => Ok(()),
            _ => Err(EngineError::Conflict),
        }
    }
}

/// The only reply of an operation of one item.
fn only(replies: Replies) -> Result<Reply, EngineError> {
    Ok(replies?.pop().unwrap_or(Reply::Conflict))
}

//! Exclusive queues: at most one task of a queue is under way at any time, the others wait in order.
//!
//! An exclusive queue is a lock ([`crate::Lock`]) that a task as a whole holds from its start until it has ended,
//! rollback included.

use serde::{Deserialize, Serialize};

use crate::{
    ActState, Awaited, LockName, LockOwner, Task,
    planted::{Bug, is_planted},
};

/// The place of a task in its exclusive queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuePlace {
    /// The number of its request for the queue, from 1; 0 before the first one.
    pub turn: u32,
    /// Whether it has the queue.
    pub state: QueueState,
}

/// Whether a task has its exclusive queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueueState {
    /// It is not in the queue: it has not started, has ended, or an operator moved the queue past it.
    #[default]
    Out,
    /// It waits for the queue.
    Waiting,
    /// It has the queue.
    Granted {
        /// The fencing token.
        fence: u64,
    },
}

impl Task {
    /// Its exclusive queue, and the fencing token under which it has the queue; `None` if it does not have it.
    #[must_use]
    pub fn queue_fence(&self) -> Option<(&LockName, u64)> {
        match self.state.queue.state {
            QueueState::Granted { fence } => Some((self.input.exclusive.as_ref()?, fence)),
            QueueState::Out | QueueState::Waiting => None,
        }
    }

    /// The owner under which it is in its exclusive queue, holding it or waiting for it.
    #[must_use]
    pub fn queue_owner(&self) -> Option<LockOwner> {
        let is_in = self.state.queue.state != QueueState::Out;
        is_in.then(|| LockOwner::task(self.id, self.state.queue.turn))
    }

    /// Whether it has an exclusive queue to wait for and does not have it.
    #[must_use]
    pub fn lacks_queue(&self) -> bool {
        let has = matches!(self.state.queue.state, QueueState::Granted { .. });
        self.input.exclusive.is_some() && !has && !is_planted(Bug::QueueIgnored)
    }

    /// Whether it waits for its exclusive queue.
    #[must_use]
    pub fn waits_for_queue(&self) -> bool {
        self.state.queue.state == QueueState::Waiting
    }

    /// Whether it is paused and has its exclusive queue: no other task of the queue can start.
    #[must_use]
    pub fn blocks_queue(&self) -> bool {
        self.state.pause.is_paused() && self.queue_fence().is_some()
    }

    /// Whether something of it is under way: an attempt that a worker has or may take, or a child task.
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        let runs = |state: ActState| matches!(state, ActState::Ready | ActState::Awaiting(Awaited::Child));
        self.open_acts().any(|(_, act)| runs(act.state))
    }
}

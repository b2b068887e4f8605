//! Which attempts sessions have.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use windlass_core::{ActKey, Millis, Task, TaskId, Timestamp};

use super::{ClaimRows, Line, limits::Key, scheduler::Scheduler};
use crate::port::{AttemptId, Claim, Claimed, Now, SessionId};

/// All attempts that sessions have.
#[derive(Debug, Default)]
pub(super) struct Claims {
    claims: BTreeMap<(TaskId, ActKey), Held>,
    /// By when each is over its timeout, in order.
    timeouts: BTreeSet<(Millis, TaskId, ActKey)>,
    /// When it is to be written down since when each is claimed, in order, of those where a deadline counts from there.
    to_keep: BTreeSet<(Millis, TaskId, ActKey)>,
    /// What is to be written of claims that outlive a start, with the next batch.
    rows: ClaimRows,
}

/// An attempt that a session has.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) key: ActKey,
    pub(super) attempt: u32,
    pub(super) number: u64,
    pub(super) session: SessionId,
    pub(super) at: Timestamp,
    pub(super) timeout_at: Millis,
    /// When it is to be written down since when it is claimed; absent where no deadline counts from there.
    pub(super) keep_at: Option<Millis>,
    pub(super) line: Line,
    /// What it counts under where a limit is by key.
    pub(super) fairness: Option<Key>,
    /// When it was handed out, for limits by starts.
    pub(super) started: Millis,
}

impl Held {
    fn claim(&self) -> Claim {
        Claim {
            key: self.key,
            attempt: self.attempt,
            number: self.number,
            session: self.session,
            at: self.at,
        }
    }
}

impl Claims {
    pub(super) fn get(&self, task: TaskId, key: ActKey) -> Option<&Held> {
        self.claims.get(&(task, key))
    }

    pub(super) fn insert(&mut self, task: TaskId, held: Held) {
        self.remove(task, held.key);
        self.timeouts.insert((held.timeout_at, task, held.key));
        self.to_keep.extend(held.keep_at.map(|at| (at, task, held.key)));
        if held.session.is_own() {
            self.rows.insert((task, held.key), Some(held.claim()));
        }
        self.claims.insert((task, held.key), held);
    }

    pub(super) fn remove(&mut self, task: TaskId, key: ActKey) -> Option<Held> {
        let held = self.claims.remove(&(task, key))?;
        self.timeouts.remove(&(held.timeout_at, task, key));
        if let Some(at) = held.keep_at {
            self.to_keep.remove(&(at, task, key));
        }
        if held.session.is_own() {
            self.rows.insert((task, key), None);
        }
        Some(held)
    }

    /// The deadline of an act runs by a change that is staged: since when its attempt is claimed is in it.
    pub(super) fn kept(&mut self, task: TaskId, key: ActKey) {
        if let Some(at) = self.claims.get(&(task, key)).and_then(|held| held.keep_at) {
            self.to_keep.remove(&(at, task, key));
        }
    }

    /// A claim that was read is over: its row is to go.
    pub(super) fn forget_row(&mut self, task: TaskId, key: ActKey) {
        self.rows.insert((task, key), None);
    }

    /// What is to be written of claims.
    pub(super) fn take_rows(&mut self) -> ClaimRows {
        mem::take(&mut self.rows)
    }

    /// Whether a session has an attempt of a task.
    pub(super) fn any(&self, task: TaskId) -> bool {
        self.range(task).next().is_some()
    }

    /// The acts of a task whose attempts sessions have.
    pub(super) fn acts_of(&self, task: TaskId) -> Vec<ActKey> {
        self.range(task).map(|held| held.key).collect()
    }

    /// The claims of a task that are of its current attempts.
    pub(super) fn of_task(&self, id: TaskId, task: &Task) -> Vec<Claim> {
        self.range(id)
            .filter(|held| task.act(held.key).is_some_and(|act| act.attempt == held.attempt))
            .map(Held::claim)
            .collect()
    }

    pub(super) fn timed_out(&self, now: Now) -> impl Iterator<Item = Claimed> + '_ {
        self.timeouts
            .iter()
            .take_while(move |(at, ..)| *at <= now.mono)
            .filter_map(|(_, task, key)| self.claimed(*task, *key))
    }

    /// Claims of which it is to be written down since when they are.
    pub(super) fn to_keep(&self, now: Now) -> impl Iterator<Item = Claimed> + '_ {
        self.to_keep
            .iter()
            .take_while(move |(at, ..)| *at <= now.mono)
            .filter_map(|(_, task, key)| self.claimed(*task, *key))
    }

    pub(super) fn claimed(&self, task: TaskId, key: ActKey) -> Option<Claimed> {
        self.get(task, key).map(|held| Claimed {
            id: AttemptId { task, key, attempt: held.attempt, claim: held.number },
            session: held.session,
            at: held.at,
            module: held.line.module.clone(),
        })
    }

    /// When the first timeout is over, or the first claim is to be written down.
    pub(super) fn next_time(&self) -> Option<Millis> {
        [&self.timeouts, &self.to_keep]
            .into_iter()
            .filter_map(|times| times.first())
            .map(|(at, ..)| *at)
            .min()
    }

    /// All claims with their tasks, oldest tasks first.
    pub(super) fn all(&self) -> impl Iterator<Item = (TaskId, &Held)> {
        self.claims.iter().map(|((task, _), held)| (*task, held))
    }

    /// All claims with their tasks, for a scheduler that is built again.
    pub(super) fn into_all(self) -> impl Iterator<Item = (TaskId, Held)> {
        self.claims.into_iter().map(|((task, _), held)| (task, held))
    }

    fn range(&self, task: TaskId) -> impl Iterator<Item = &Held> {
        let from = (task, ActKey::forward(0));
        self.claims.range(from..).take_while(move |((of, _), _)| *of == task).map(|(_, held)| held)
    }
}

impl Scheduler {
    /// Whether the deadline of an act counts from a claim of its current attempt.
    pub(super) fn begins_deadline(&self, id: TaskId, key: ActKey) -> bool {
        let Some(task) = self.active.get(&id).map(|entry| &entry.task) else { return false };
        let has_deadline = task.action(key).is_some_and(|action| action.deadline.is_some());
        has_deadline && task.act(key).is_some_and(|act| act.deadline_at.is_none())
    }
}

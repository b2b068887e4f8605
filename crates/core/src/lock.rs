//! Locks: a named resource with one holder, waiters in order of arrival, and a fencing token that only grows.
//!
//! ```text
//! task ──Acquire──▶ lock ──Granted{fence}──▶ task … ──Release──▶ lock ──Granted──▶ the next waiter
//! ```
//!
//! Each arrow is a message: written in its sender's commit, consumed in its receiver's commit.
//!
//! Lock names may come from parameters, so their number is not bounded and free locks must be deleted. The fence of a
//! deleted lock must still grow when the name is used again. The store therefore keeps one *floor* for all locks: it
//! deletes a free lock and raises the floor to the lock's version in one commit, and a lock that is not stored counts
//! as free at the version of the floor. This does not depend on a clock.

use std::sync::Arc;

use rpds::RedBlackTreeMapSync;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    ActKey, Actor, Candidacy, Leader, Message, Name, TaskId, Timestamp,
    leader::Standing,
    planted::{Bug, is_planted},
};

/// The name of a lock.
pub type LockName = Name;

/// An execution that holds a lock or waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LockOwner {
    /// The task.
    pub task: TaskId,
    /// The execution; [`ActKey::TASK`] if the task as a whole owns it as its exclusive queue.
    pub key: ActKey,
    /// The number of the request, from 1. Distinguishes current locks from earlier ones.
    pub turn: u32,
}

impl LockOwner {
    /// A process that leads, by the number of its campaign.
    #[must_use]
    pub const fn leader(campaign: u128) -> Self {
        Self { task: TaskId(campaign), key: ActKey::LEADER, turn: 0 }
    }

    /// A task as a whole, which owns its exclusive queue or waits for it.
    #[must_use]
    pub const fn task(task: TaskId, turn: u32) -> Self {
        Self { task, key: ActKey::TASK, turn }
    }

    /// Whether this is a task as a whole.
    #[must_use]
    pub fn is_task(&self) -> bool {
        self.key == ActKey::TASK
    }

    /// Whether this is a process that leads.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.key == ActKey::LEADER
    }
}

/// A version above every version that a damaged row may have had. `known` are the readable versions, including the
/// damaged ones. A damaged bit lowers a version below 2^42 by less than that, and versions begin at 0 or at a time in
/// milliseconds. They stay below 2^53, so that JSON preserves them.
pub fn version_after_damage(known: impl IntoIterator<Item = u64>) -> u64 {
    let plausible = known.into_iter().filter(|version| *version < VERSION_PLAUSIBLE_MAX);
    plausible.max().unwrap_or(0) + VERSIONS_SKIPPED
}

/// Versions from here on are damaged.
const VERSION_PLAUSIBLE_MAX: u64 = 1 << 52;

/// Above every time in milliseconds at which a version may have begun.
const VERSIONS_SKIPPED: u64 = 1 << 42;

/// The holder of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockHolder {
    /// The execution.
    pub owner: LockOwner,
    /// The fencing token under which it holds the lock.
    pub fence: u64,
    /// Since when it holds the lock.
    pub since: Timestamp,
}

impl LockHolder {
    /// Stands in for an unknown holder: the lock is closed ([`Lock::close`]).
    #[must_use]
    pub const fn unknown(fence: u64) -> Self {
        let owner = LockOwner { task: TaskId::NONE, key: ActKey::forward(0), turn: 0 };
        Self { owner, fence, since: Timestamp(0) }
    }

    /// Whether the holder is unknown.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.owner.task == TaskId::NONE
    }

    /// Whether this task holds the lock under this fencing token.
    #[must_use]
    pub fn is(&self, task: TaskId, fence: u64) -> bool {
        (self.owner.task, self.fence) == (task, fence)
    }

    /// Whether this task keeps the lock that it got under this fencing token: it holds it, or the holder is unknown. No
    /// other owner gets a closed lock.
    #[must_use]
    pub fn leaves_it_to(&self, task: TaskId, fence: u64) -> bool {
        self.is_unknown() || self.is(task, fence)
    }
}

/// A waiter for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockWaiter {
    /// The execution.
    pub owner: LockOwner,
    /// Since when it waits. Waiters are served in the order of this time.
    pub since: Timestamp,
}

/// The position of a waiter: since when it waits, and its place, which no other waiter has.
type Position = (Timestamp, u64);

/// A named resource. Cheap to clone, for any number of waiters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    /// Its name.
    pub name: LockName,
    /// Grows with every change. The fence of a holder is the version at which it got the lock.
    pub version: u64,
    /// The holder.
    pub holder: Option<LockHolder>,
    /// What is known of the holder, if it is a leader.
    pub leader: Option<Arc<Leader>>,
    waiters: RedBlackTreeMapSync<Position, LockWaiter>,
    positions: RedBlackTreeMapSync<LockOwner, Position>,
}

/// A command to a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockCommand {
    /// An execution requests it.
    Acquire {
        /// The execution.
        owner: LockOwner,
    },
    /// An execution releases it, or stops waiting.
    Release {
        /// The execution.
        owner: LockOwner,
    },
    /// An operator takes it from its holder.
    Seize {
        /// The operator's reason.
        reason: Box<str>,
        /// The operator.
        by: Option<Actor>,
    },
    /// A task requests it as its exclusive queue.
    Join {
        /// The task as a whole.
        owner: LockOwner,
        /// The time that determines its position; `None` = behind all waiters.
        order: Option<Timestamp>,
    },
    /// A process requests it as a leader, or renews it. It never waits in the lock.
    Lead(Candidacy),
    /// Its leader has not renewed for long: it is deposed, unless it has renewed meanwhile.
    Depose {
        /// The version that a server has seen for long.
        version: u64,
    },
}

/// The result of a command to a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockTransition {
    /// The lock afterwards.
    pub lock: Lock,
    /// The new waiter, and its place.
    pub joined: Option<(u64, LockWaiter)>,
    /// The place that became free.
    pub left: Option<u64>,
    /// Its messages, each with a number that no other message of this lock ever has.
    pub messages: Vec<(u64, Message)>,
}

/// Why a lock does not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum LockRejection {
    /// It has no holder.
    #[error("nobody has this lock")]
    Free,
}

impl Lock {
    /// A free lock that is not stored. `floor` is the store's floor: no deleted lock had a higher version.
    #[must_use]
    pub fn new(name: LockName, floor: u64) -> Self {
        Self {
            name,
            version: floor,
            holder: None,
            leader: None,
            waiters: RedBlackTreeMapSync::new_sync(),
            positions: RedBlackTreeMapSync::new_sync(),
        }
    }

    /// The waiters, in the order in which they are served.
    pub fn waiters(&self) -> impl Iterator<Item = &LockWaiter> {
        self.waiters.values()
    }

    /// The number of waiters.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiters.size()
    }

    /// The number of waiters before this one, if it waits.
    #[must_use]
    pub fn place(&self, owner: &LockOwner) -> Option<usize> {
        let position = self.positions.get(owner)?;
        Some(self.waiters.range(..*position).count())
    }

    /// Whether it has neither a holder nor waiters.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.holder.is_none() && self.waiters.is_empty()
    }

    /// The highest place of a waiter. The cost grows with the number of waiters.
    #[must_use]
    pub fn last_place(&self) -> Option<u64> {
        self.waiters.keys().map(|(_, place)| *place).max()
    }

    /// Closes the lock: it is unknown which execution holds it. Its waiters keep waiting. The holder cannot release it:
    /// only an operator can determine when it is free. Its next fence is above `version`.
    pub fn close(&mut self, version: u64) {
        self.version = version;
        self.holder = (!is_planted(Bug::DamagedLockOpened)).then(|| LockHolder::unknown(version));
        self.leader = None;
    }

    /// Whether the lock is closed, until an operator opens it.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.holder.is_some_and(|holder| holder.is_unknown())
    }

    /// Whether a waiter of a damaged row may be restored: neither the holder nor another waiter has its place or its
    /// owner.
    #[must_use]
    pub fn may_restore(&self, place: u64, owner: &LockOwner) -> bool {
        let is_holder = self.holder.is_some_and(|holder| holder.owner == *owner);
        place <= self.version
            && !is_holder
            && self.waiters.keys().all(|(_, taken)| *taken != place)
            && !self.positions.contains_key(owner)
    }

    /// Adds a stored waiter.
    pub fn restore(&mut self, place: u64, waiter: LockWaiter) {
        self.waiters.insert_mut((waiter.since, place), waiter);
        self.positions.insert_mut(waiter.owner, (waiter.since, place));
    }

    /// The result of `command` on the lock. `None`: nothing changes.
    ///
    /// # Errors
    /// When an operator takes a lock that has no holder.
    pub fn apply(
        &self,
        command: &LockCommand,
        now: Timestamp,
    ) -> Result<Option<LockTransition>, LockRejection> {
        let mut next = LockTransition {
            lock: Self { version: self.version + 1, ..self.clone() },
            joined: None,
            left: None,
            messages: Vec::new(),
        };
        match command {
            LockCommand::Acquire { owner } | LockCommand::Join { owner, .. } if self.has(owner) => {
                return Ok(None);
            }
            LockCommand::Join { owner, order: Some(order) } if !is_planted(Bug::QueueOrderIgnored) => {
                next.join(*owner, *order);
            }
            LockCommand::Acquire { owner } | LockCommand::Join { owner, .. } => {
                next.join(*owner, self.behind_all(now));
            }
            LockCommand::Release { .. } if is_planted(Bug::LockNotReleased) => return Ok(None),
            LockCommand::Release { owner } => match (self.holder, self.positions.get(owner)) {
                (Some(holder), _) if holder.owner == *owner => next.free(),
                (_, Some(position)) => next.leave(*position),
                _ => return Ok(None),
            },
            LockCommand::Seize { reason, by } => {
                let Some(holder) = self.holder else { return Err(LockRejection::Free) };
                next.free();
                // A leader learns of it with its next renewal.
                if !holder.owner.is_leader() {
                    let (name, reason, by) = (self.name.clone(), reason.clone(), by.clone());
                    next.tell(Message::Seized { owner: holder.owner, name, fence: holder.fence, reason, by });
                }
            }
            LockCommand::Lead(candidacy) => match self.standing(candidacy) {
                Standing::Leads => next.lock.leader = Some(candidacy.leader.clone()),
                Standing::IsElected => next.elect(candidacy, now),
                Standing::StandsBy => return Ok(None),
            },
            LockCommand::Depose { version } => {
                let stands = self.version == *version || is_planted(Bug::RenewalOvertaken);
                if self.leader.is_none() || !stands {
                    return Ok(None);
                }
                next.free();
            }
        }
        let released = matches!(command, LockCommand::Release { .. });
        if !(released && is_planted(Bug::LockNotPassedOn)) {
            next.give(now);
        }
        Ok(Some(next))
    }

    /// Whether this owner holds the lock or waits for it.
    #[must_use]
    pub fn has(&self, owner: &LockOwner) -> bool {
        self.holder.is_some_and(|holder| holder.owner == *owner) || self.positions.contains_key(owner)
    }

    /// The time for a waiter that is served after all others: clocks of servers differ.
    fn behind_all(&self, now: Timestamp) -> Timestamp {
        self.waiters.last().map_or(now, |((since, _), _)| now.max(*since))
    }
}

impl LockTransition {
    fn free(&mut self) {
        (self.lock.holder, self.lock.leader) = (None, None);
    }

    fn join(&mut self, owner: LockOwner, since: Timestamp) {
        let (place, waiter) = (self.lock.version, LockWaiter { owner, since });
        self.lock.restore(place, waiter);
        self.joined = Some((place, waiter));
    }

    fn leave(&mut self, position: Position) {
        if let Some(waiter) = self.lock.waiters.get(&position).copied() {
            self.lock.waiters.remove_mut(&position);
            self.lock.positions.remove_mut(&waiter.owner);
        }
        // A new waiter that gets the lock at once never waits.
        match self.joined {
            Some((joined, _)) if joined == position.1 => self.joined = None,
            _ => self.left = Some(position.1),
        }
    }

    /// Grants a free lock to the first waiter.
    fn give(&mut self, now: Timestamp) {
        if self.lock.holder.is_some() && !is_planted(Bug::LockHeldTwice) {
            return;
        }
        let Some((position, waiter)) = self.lock.waiters.first().map(|(key, waiter)| (*key, *waiter)) else {
            return;
        };
        self.leave(position);
        let (owner, name) = (waiter.owner, self.lock.name.clone());
        let fence = if is_planted(Bug::FenceReused) { 1 } else { self.lock.version + 1 };
        self.lock.holder = Some(LockHolder { owner, fence, since: now });
        self.tell(Message::Granted { owner, name, fence });
    }

    fn tell(&mut self, message: Message) {
        self.lock.version += 1;
        self.messages.push((self.lock.version, message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(task: u128) -> LockOwner {
        LockOwner { task: TaskId(task), key: ActKey::forward(0), turn: 1 }
    }

    fn tell(lock: &mut Lock, command: &LockCommand, now: i64) -> Vec<Message> {
        let next = lock.apply(command, Timestamp(now)).expect("it applies");
        let Some(next) = next else { return Vec::new() };
        assert!(next.lock.version > lock.version);
        *lock = next.lock;
        next.messages.into_iter().map(|(_, message)| message).collect()
    }

    fn granted(messages: &[Message]) -> Option<(u128, u64)> {
        messages.iter().find_map(|message| match message {
            Message::Granted { owner, fence, .. } => Some((owner.task.0, *fence)),
            _ => None,
        })
    }

    #[test]
    fn one_after_the_other_has_it_under_a_higher_fence() {
        let mut lock = Lock::new(Name::new("disk").expect("a name"), 0);
        let (_, first) = granted(&tell(&mut lock, &LockCommand::Acquire { owner: owner(1) }, 5)).unwrap();
        for (task, now) in [(2, 6), (3, 6), (4, 6), (2, 6)] {
            assert_eq!(tell(&mut lock, &LockCommand::Acquire { owner: owner(task) }, now), []);
        }
        assert_eq!((lock.waiting(), lock.place(&owner(3))), (3, Some(1)));
        assert_eq!(tell(&mut lock, &LockCommand::Release { owner: owner(3) }, 7), [], "it waits no more");
        assert_eq!(tell(&mut lock, &LockCommand::Release { owner: owner(9) }, 7), [], "a stranger");
        let second = granted(&tell(&mut lock, &LockCommand::Release { owner: owner(1) }, 7)).unwrap();
        assert!(second.0 == 2 && second.1 > first, "{second:?}");
        let third = granted(&tell(&mut lock, &LockCommand::Release { owner: owner(2) }, 7)).unwrap();
        assert!(third.0 == 4 && third.1 > second.1, "{third:?}");
    }

    #[test]
    fn tasks_are_served_in_the_order_of_their_times() {
        let mut lock = Lock::new(Name::new("orders").expect("a name"), 0);
        let join = |task, order: Option<i64>| LockCommand::Join {
            owner: LockOwner::task(TaskId(task), 1),
            order: order.map(Timestamp),
        };
        let (first, _) = granted(&tell(&mut lock, &join(9, None), 100)).unwrap();
        // The clock of the server that handles task 3 is behind.
        for (task, order, now) in [(1, None, 110), (2, Some(90), 111), (3, None, 105), (4, Some(107), 112)] {
            assert_eq!(tell(&mut lock, &join(task, order), now), []);
        }
        assert_eq!(tell(&mut lock, &join(3, None), 120), [], "it waits already");
        let mut order = vec![first];
        while let Some(holder) = lock.holder {
            let release = LockCommand::Release { owner: holder.owner };
            order.extend(granted(&tell(&mut lock, &release, 130)).map(|(task, _)| task));
        }
        assert_eq!(order, [9, 2, 4, 1, 3]);
    }

    #[test]
    fn a_deleted_lock_comes_back_with_a_higher_fence_wherever_the_clock_is() {
        let name = Name::new("disk").expect("a name");
        let mut lock = Lock::new(name.clone(), 0);
        let (_, first) = granted(&tell(&mut lock, &LockCommand::Acquire { owner: owner(1) }, 50)).unwrap();
        assert!(!lock.is_free());
        tell(&mut lock, &LockCommand::Release { owner: owner(1) }, 90);
        assert!(lock.is_free());
        let mut lock = Lock::new(name, lock.version);
        let (_, second) = granted(&tell(&mut lock, &LockCommand::Acquire { owner: owner(2) }, 10)).unwrap();
        assert!(second > first, "{first} {second}");
    }

    #[test]
    fn the_version_after_damage_is_above_what_any_bit_has_changed() {
        for version in [0, 1, 7, 1_900_000_000_000, VERSIONS_SKIPPED - 1] {
            for bit in 0..63 {
                let damaged = version ^ (1 << bit);
                let after = version_after_damage([damaged]);
                assert!(after > version && after < 1 << 53, "{version} {bit}: {after}");
            }
        }
    }

    #[test]
    fn a_closed_lock_is_opened_by_an_operator_alone() {
        let mut lock = Lock::new(Name::new("disk").expect("a name"), 0);
        let (_, first) = granted(&tell(&mut lock, &LockCommand::Acquire { owner: owner(1) }, 5)).unwrap();
        lock.close(first + 10);
        assert!(lock.is_closed() && !lock.is_free());
        assert_eq!(tell(&mut lock, &LockCommand::Acquire { owner: owner(2) }, 6), []);
        assert_eq!(
            tell(&mut lock, &LockCommand::Release { owner: owner(1) }, 7),
            [],
            "nobody knows who has it"
        );
        assert!(lock.is_closed());
        let seize = LockCommand::Seize { reason: "looked".into(), by: None };
        let (task, fence) = granted(&tell(&mut lock, &seize, 8)).unwrap();
        assert!(task == 2 && fence > first + 10, "{task} {fence}");
        assert!(!lock.is_closed());
    }

    #[test]
    fn a_person_takes_it_from_its_holder_and_the_next_one_gets_it() {
        let mut lock = Lock::new(Name::new("disk").expect("a name"), 0);
        let seize = LockCommand::Seize { reason: "gone".into(), by: None };
        assert_eq!(lock.apply(&seize, Timestamp(1)), Err(LockRejection::Free));
        tell(&mut lock, &LockCommand::Acquire { owner: owner(1) }, 5);
        tell(&mut lock, &LockCommand::Acquire { owner: owner(2) }, 5);
        let before = lock.holder.expect("it has one");
        let messages = tell(&mut lock, &seize, 6);
        assert!(matches!(&messages[0], Message::Seized { owner, fence, .. }
            if *owner == before.owner && *fence == before.fence));
        assert!(granted(&messages).unwrap().1 > before.fence);
        assert_eq!(tell(&mut lock, &LockCommand::Release { owner: owner(1) }, 7), [], "it has it no more");
        assert_eq!(lock.holder.map(|holder| holder.owner), Some(owner(2)));
    }
}

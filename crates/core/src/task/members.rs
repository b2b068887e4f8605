//! Items of a fanned-out step: one for each element of a list. A limited number of them runs concurrently.
//!
//! A transition changes a few of them and costs the same for any number of items: they are in a persistent vector that
//! shares unchanged parts, and frequently needed counts are kept.

use std::sync::{Arc, OnceLock};

use rpds::{RedBlackTreeSetSync, VectorSync};
use serde::{Deserialize, Serialize};

use crate::{
    Act, ActState, Direction, Json,
    planted::{Bug, is_planted},
};

/// The items of a fanned-out step. Each item is stored separately.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Members {
    total: u32,
    #[serde(skip)]
    begun: VectorSync<Member>,
    #[serde(skip)]
    forward: Side,
    #[serde(skip)]
    undo: Side,
    #[serde(skip)]
    touched: u32,
    /// The number of items that need a rollback and whose rollback has not started.
    #[serde(skip)]
    to_undo: u32,
    #[serde(skip)]
    undone_from: Option<u32>,
    #[serde(skip)]
    pub(crate) handed: Handed,
}

/// One item: the forward execution and the rollback of the step for one element.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Whether an attempt of it became ready, so that it may have had effects and needs a rollback.
    pub touched: bool,
    /// The forward execution.
    pub forward: Act,
    /// The rollback.
    pub undo: Act,
}

/// The executions of one direction, by state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Side {
    /// Those that are open.
    pub open: RedBlackTreeSetSync<u32>,
    /// Those that failed without a further retry.
    pub failed: RedBlackTreeSetSync<u32>,
    /// Those that must start again.
    pub again: RedBlackTreeSetSync<u32>,
    /// The number of completed or skipped ones.
    pub satisfied: u32,
}

/// The inputs of items: the parameters that all of them get, the part of these that computes concurrency keys and lock
/// names, and the elements as text.
pub(crate) struct Shares {
    pub(crate) common: Json,
    pub(crate) naming: Json,
    pub(crate) elements: Vec<Box<str>>,
}

/// The inputs of a step's items, computed from its parameters once for all of them. Not part of a task's state.
#[derive(Clone, Default)]
pub(crate) struct Handed(Arc<OnceLock<Shares>>);

impl Handed {
    /// The inputs, computed by `make` the first time.
    pub(crate) fn get(&self, make: impl FnOnce() -> Shares) -> &Shares {
        self.0.get_or_init(make)
    }
}

impl PartialEq for Handed {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Handed {}

impl std::fmt::Debug for Handed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Handed")
    }
}

impl Members {
    /// `total` items, none of which has started.
    #[must_use]
    pub fn new(total: u32) -> Self {
        Self {
            total,
            begun: VectorSync::new_sync(),
            forward: Side::default(),
            undo: Side::default(),
            touched: 0,
            to_undo: 0,
            undone_from: None,
            handed: Handed::default(),
        }
    }

    /// The number of items.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.total
    }

    /// The number of started items: those with the numbers 1 to this.
    #[must_use]
    pub fn begun(&self) -> u32 {
        u32::try_from(self.begun.len()).unwrap_or(u32::MAX)
    }

    /// The number of started items that may have had effects.
    #[must_use]
    pub fn touched(&self) -> u32 {
        self.touched
    }

    /// The executions of one direction, by state.
    #[must_use]
    pub fn side(&self, direction: Direction) -> &Side {
        match direction {
            Direction::Forward => &self.forward,
            Direction::Rollback => &self.undo,
        }
    }

    /// The item with this number, from 1, if it has started.
    #[must_use]
    pub fn get(&self, number: u32) -> Option<&Member> {
        self.begun.get(number.checked_sub(1)? as usize)
    }

    /// The started items, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Member)> {
        (1..).zip(self.begun.iter())
    }

    /// Adds a stored item after those with lower numbers.
    pub fn restore(&mut self, member: Member) {
        let number = self.begun() + 1;
        self.count(number, &member, true);
        self.begun.push_back_mut(member);
    }

    /// Changes the item with this number; the one after the last started item starts.
    pub(crate) fn change(&mut self, number: u32, change: impl FnOnce(&mut Member)) {
        if number > self.begun() {
            let mut member = Member::default();
            change(&mut member);
            return self.restore(member);
        }
        let Some(mut member) = self.get(number).cloned() else { return };
        // Only open ones: otherwise a restarted item would start without end.
        let is_open = member.forward.state == ActState::Ready;
        if !(is_open && is_planted(Bug::MembersMiscounted)) {
            self.count(number, &member, false);
        }
        change(&mut member);
        self.count(number, &member, true);
        self.begun.set_mut(number as usize - 1, member);
    }

    /// Sets the result of an item.
    pub fn set_result(&mut self, number: u32, direction: Direction, result: Json) {
        if self.get(number).is_some() {
            self.change(number, |member| member.act_mut(direction).result = Some(result));
        }
    }

    /// Removes all results, as in the stored items.
    pub fn clear_results(&mut self) {
        for number in 1..=self.begun() {
            self.change(number, |member| (member.forward.result, member.undo.result) = (None, None));
        }
    }

    /// Whether a failed item has lost at least this number of workers. The cost grows with the number of failed items.
    #[must_use]
    pub fn has_poisoned(&self, direction: Direction, deaths_max: u32) -> bool {
        let is_poisoned =
            |number: &u32| self.get(*number).is_some_and(|member| member.act(direction).deaths >= deaths_max);
        self.side(direction).failed.iter().any(is_poisoned)
    }

    /// The next item to execute: one that must start again, or the first one that has not started.
    #[must_use]
    pub(crate) fn next_forward(&self) -> Option<u32> {
        let next = self.begun() + 1;
        self.forward.again.first().copied().or((next <= self.total).then_some(next))
    }

    /// The next item to roll back: one that must start again, or the last one that needs it and has not started.
    #[must_use]
    pub(crate) fn next_undo(&self) -> Option<u32> {
        if let Some(again) = self.undo.again.first() {
            return Some(*again);
        }
        if self.to_undo == 0 {
            return None;
        }
        let idle = |number: &u32| {
            self.get(*number).is_some_and(|member| member.touched && member.undo.state == ActState::Idle)
        };
        // Rollbacks start with the last item, so all items above the lowest started rollback are already handled.
        (1..self.undone_from.unwrap_or(self.begun() + 1)).rev().find(idle)
    }

    /// Whether no execution of this direction is open or must start again.
    #[must_use]
    pub fn is_quiet(&self, direction: Direction) -> bool {
        let side = self.side(direction);
        side.open.is_empty() && side.again.is_empty()
    }

    /// Whether the counts match the items. The cost grows with the number of items.
    ///
    /// # Errors
    /// The counts, and the actual numbers.
    pub fn check(&self) -> Result<(), String> {
        let mut again = Self::new(self.total);
        self.begun.iter().for_each(|member| again.restore(member.clone()));
        let counts = |members: &Self| {
            format!("{:?}", (&members.forward, &members.undo, members.touched, members.undone_from))
        };
        if again == *self && self.begun() <= self.total {
            return Ok(());
        }
        Err(format!(
            "of {} items, {} begun, are counted {}; there are {}",
            self.total,
            self.begun(),
            counts(self),
            counts(&again)
        ))
    }

    /// Adds an item to the counts, or subtracts it before it changes.
    fn count(&mut self, number: u32, member: &Member, add: bool) {
        self.touched = step(self.touched, member.touched, add);
        let undo_begun = member.undo.state != ActState::Idle || member.undo.attempt > 0;
        self.to_undo = step(self.to_undo, member.touched && !undo_begun, add);
        if undo_begun {
            self.undone_from = Some(self.undone_from.map_or(number, |lowest| lowest.min(number)));
        }
        // The forward execution starts with the item, even if its parameters were invalid and it never had an attempt.
        self.forward.count(number, &member.forward, true, add);
        self.undo.count(number, &member.undo, member.undo.attempt > 0, add);
    }
}

impl Side {
    fn count(&mut self, number: u32, act: &Act, begun: bool, add: bool) {
        let failed = act.state == ActState::Failed;
        let again = act.state == ActState::Idle && begun;
        let sets = [(&mut self.open, act.is_open()), (&mut self.failed, failed), (&mut self.again, again)];
        for (set, belongs) in sets {
            match (belongs, add) {
                (true, true) => set.insert_mut(number),
                (true, false) => drop(set.remove_mut(&number)),
                (false, _) => {}
            }
        }
        self.satisfied = step(self.satisfied, act.is_satisfied(), add);
    }

    /// The number of settled executions.
    #[must_use]
    pub fn settled(&self) -> u32 {
        self.satisfied + u32::try_from(self.failed.size()).unwrap_or(u32::MAX)
    }
}

impl Member {
    /// One of its two executions.
    #[must_use]
    pub fn act(&self, direction: Direction) -> &Act {
        match direction {
            Direction::Forward => &self.forward,
            Direction::Rollback => &self.undo,
        }
    }

    pub(crate) fn act_mut(&mut self, direction: Direction) -> &mut Act {
        match direction {
            Direction::Forward => &mut self.forward,
            Direction::Rollback => &mut self.undo,
        }
    }
}

fn step(count: u32, belongs: bool, add: bool) -> u32 {
    match (belongs, add) {
        (true, true) => count + 1,
        (true, false) => count.saturating_sub(1),
        (false, _) => count,
    }
}

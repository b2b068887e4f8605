//! A coordinator outside of the servers, which chooses who campaigns at the store. It may be wrong: it ends sessions as late
//! as twice their time, as Consul does, now and then too early, and it may not answer. The store confirms, so none of this may
//! let two lead at once.

use std::cell::Cell;

use crate::world::World;

/// How long a session lasts without a renewal.
const TTL_MS: u64 = 1_800;

/// What is surely left of it by another clock.
const ACTS_MS: u64 = TTL_MS - TTL_MS / 50;

/// Chooses one process at a time, as it believes.
#[derive(Default)]
pub(crate) struct Chooser {
    /// Whom it has chosen, and when it will end that session.
    session: Cell<Option<(usize, u64)>>,
}

/// The answer to a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// It is chosen, and may act until then.
    Chosen(u64),
    /// Somebody else is.
    Other,
    /// There is no answer.
    Silence,
}

impl Chooser {
    /// A candidate requests to be chosen, or renews.
    pub(super) fn ask(&self, world: &World, person: usize) -> Choice {
        if world.chance(100) {
            world.count("chooser: no answer");
            return Choice::Silence;
        }
        let now = world.now();
        match self.session.get() {
            Some((other, ends)) if other != person && now < ends => return Choice::Other,
            Some((same, ends)) if same == person && now >= ends => {
                self.session.set(None);
                return Choice::Other;
            }
            _ => {}
        }
        let is_early = world.chance(50);
        let lasts = if is_early { world.below(TTL_MS) } else { world.within(TTL_MS..=2 * TTL_MS) };
        if is_early {
            world.count("chooser: a session ends early");
        }
        self.session.set(Some((person, now + lasts)));
        Choice::Chosen(now + ACTS_MS)
    }

    /// A leader gives up.
    pub(super) fn resign(&self, person: usize) {
        if self.session.get().is_some_and(|(chosen, _)| chosen == person) {
            self.session.set(None);
        }
    }
}

//! A rollout goes from stage to stage, and what operators do to it changes nothing else.

use windlass_core::{
    AbortCause, Rollout,
    RolloutStage::{Cancelling, Ended, Paused, RollingBack, Running},
};

use super::{changed, violation};
use crate::{
    invariants::Invariant,
    judge::{Seen, Violation},
    truth::Truth,
    world::World,
};

#[derive(Default)]
pub(super) struct Stages;

impl Invariant for Stages {
    fn see(&mut self, seen: &Seen, truth: &Truth, world: &World) -> Result<(), Violation> {
        let Some(known) = changed(seen, truth) else { return Ok(()) };
        let now = &*known.now;
        let Some(before) = known.before.as_deref() else {
            return match now.stage == Running && now.open.is_empty() {
                true => Ok(()),
                false => Err(violation(now, "it begins in the middle")),
            };
        };
        let is_by_operator = match (before.stage, now.stage) {
            (Running, Paused) | (Paused, Running) => true,
            (Running | Paused, Cancelling) => {
                let cause = now.abort.as_ref().map(|abort| &abort.cause);
                if matches!(cause, Some(AbortCause::Threshold(_))) {
                    world.count("rollout: aborted by a threshold");
                }
                matches!(cause, Some(AbortCause::Operator { .. }))
            }
            (Running, Running)
            | (Paused, Paused)
            | (Running, Ended)
            | (Cancelling, Cancelling | RollingBack | Ended)
            | (RollingBack, RollingBack | Ended) => false,
            (from, to) => return Err(violation(now, &format!("it goes from {from:?} to {to:?}"))),
        };
        if now.stage == Ended {
            world.count(if now.abort.is_some() { "rollout: ended after an abort" } else { "rollout: ended" });
        }
        if now.stage == RollingBack && before.stage != RollingBack {
            world.count("rollout: rolls back");
        }
        let Rollout { version, stage, paused, abort, .. } = now.clone();
        let expected = Rollout { version, stage, paused, abort, ..before.clone() };
        if is_by_operator && *now != expected {
            return Err(violation(now, &format!("an operator changed {before:?} to {now:?}")));
        }
        let is_changed = before.abort.is_some() && before.abort != now.abort;
        match is_changed || before.created_at != now.created_at || before.definition != now.definition {
            true => Err(violation(now, &format!("{before:?} has become {now:?}"))),
            false => Ok(()),
        }
    }
}

//! In no minute are more devices started than the rate says.

use std::collections::{BTreeMap, VecDeque};

use windlass_core::{Millis, Rollout, RolloutStage, Timestamp};

use super::{Instance, NAME, added, broken, changed, changed_task, instance, violation};
use crate::{
    config::{Config, Fault},
    invariants::Invariant,
    judge::{Seen, Violation},
    kinds::Kind,
    truth::Truth,
    world::World,
};

const MINUTE_MS: u64 = 60_000;

/// The start of wall time in every world.
const BEGIN_MS: i64 = 1_700_000_000_000;

pub(super) struct Rates {
    /// Whether all clocks are right.
    is_on_time: bool,
    /// When tasks were started in the last minute.
    started: BTreeMap<Instance, VecDeque<u64>>,
}

impl Rates {
    pub(super) fn new(config: &Config) -> Self {
        // Clocks that follow that of a database are wrong by milliseconds.
        let is_on_time = !config.faults.kinds.contains(&Fault::ClockJump) && !config.is(Kind::OwnClocks);
        Self { is_on_time, started: BTreeMap::new() }
    }
}

impl Invariant for Rates {
    fn see(&mut self, seen: &Seen, truth: &Truth, world: &World) -> Result<(), Violation> {
        if let Some(known) = changed(seen, truth) {
            return match &known.before {
                Some(before) => self.check(before, &known.now, added(known).len() as u64, world),
                None => Ok(()),
            };
        }
        let Some((task, name, _, true)) = changed_task(seen) else { return Ok(()) };
        let Some(known) = truth.rollouts.get(name) else { return Ok(()) };
        match self.is_too_fast(&known.now, world) {
            None => Ok(()),
            Some(count) => {
                let rate = known.now.per_minute();
                let message = format!(
                    "task {} is the {count}th that rollout {name} has started in a minute, with {rate} per minute",
                    task.id
                );
                Err(broken(NAME, task.id, message))
            }
        }
    }
}

impl Rates {
    /// The time of the next portion moves by what the recorded devices take at the rate.
    fn check(&self, before: &Rollout, now: &Rollout, started: u64, world: &World) -> Result<(), Violation> {
        if now.next_at < before.next_at {
            return Err(violation(now, "the time of the next devices runs backwards"));
        }
        if now.stage != RolloutStage::Running || started == 0 {
            return Ok(());
        }
        let takes = Millis(started * MINUTE_MS / u64::from(now.per_minute()));
        let message = if now.next_at < before.next_at + takes {
            let (from, to) = (before.next_at, now.next_at);
            format!("{started} devices take {takes:?}, and the next ones follow at {to:?} after {from:?}")
        } else if self.is_on_time && wall(world) < before.next_at {
            format!("{started} devices are started before {:?}", before.next_at)
        } else if now.open.len() > usize::try_from(now.definition.max_running).unwrap_or(usize::MAX) {
            format!("{} devices are open", now.open.len())
        } else {
            return Ok(());
        };
        Err(violation(now, &message))
    }

    /// The number of tasks of a minute, if there are more than the rate says. A server that stands still may start one
    /// portion later than it has decided, as does a pause; and the last portion of a minute may be less late than the first
    /// one (world 1795836177849599).
    fn is_too_fast(&mut self, rollout: &Rollout, world: &World) -> Option<usize> {
        let started = self.started.entry(instance(rollout)).or_default();
        started.push_back(world.now());
        while started.front().is_some_and(|at| at + MINUTE_MS < world.now()) {
            started.pop_front();
        }
        let rate = rollout.per_minute();
        let portion = rate.div_ceil(60).min(rollout.definition.max_running);
        let most = usize::try_from(rate + 2 * portion).unwrap_or(usize::MAX);
        (self.is_on_time && started.len() > most).then_some(started.len())
    }
}

/// The time of a correct clock.
fn wall(world: &World) -> Timestamp {
    Timestamp(BEGIN_MS + i64::try_from(world.now()).unwrap_or(0))
}

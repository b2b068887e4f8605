//! A paused queue hands out only attempts that were claimed before the pause. A claimed attempt counts as running, even if the
//! worker receives the attempt late.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{Action, Name};
use windlass_store::AttemptId;

use super::{Invariant, broken};
use crate::{
    judge::{Seen, Violation},
    kinds::Kind,
    truth::Truth,
    world::World,
};

/// The maximum time between a claim and its hand-out, in which the queue may be paused. A database answers late. An
/// embedded store may read from the disk in between: parameters of the task, or the rest of another queue that the
/// worker polls as well.
const ON_ITS_WAY_MS: u64 = 10_000;

#[derive(Default)]
pub(super) struct PausedQueues {
    since: BTreeMap<Name, u64>,
    /// When attempts were claimed in shared rows.
    claimed: BTreeMap<AttemptId, u64>,
    /// Attempts given before: they are given again after a lost answer.
    given: BTreeSet<AttemptId>,
    resumed_at: Option<u64>,
}

impl Invariant for PausedQueues {
    fn see(&mut self, seen: &Seen, truth: &Truth, world: &World) -> Result<(), Violation> {
        match seen {
            Seen::Staged(_) | Seen::Written(_) | Seen::Recovered => {
                self.since.retain(|name, _| truth.rules.paused.contains(name));
                for name in &truth.rules.paused {
                    if !self.since.contains_key(name) {
                        self.since.insert(name.clone(), world.now());
                    }
                }
                Ok(())
            }
            Seen::ServerResumed => {
                self.resumed_at = Some(world.now());
                Ok(())
            }
            Seen::Claimed { id } => {
                self.claimed.insert(*id, world.now());
                Ok(())
            }
            Seen::Given { id, .. } if self.given.insert(*id) => self.check(id, truth, world),
            _ => Ok(()),
        }
    }
}

impl PausedQueues {
    fn check(&self, id: &AttemptId, truth: &Truth, world: &World) -> Result<(), Violation> {
        let action = truth.tasks.get(&id.task).and_then(|known| known.task.action(id.key));
        let Some((module, _)) = action.and_then(Action::worker) else { return Ok(()) };
        let config = &world.config;
        let reads = config.shared || config.is(Kind::FewBytes) || config.rest.head != usize::MAX;
        let slack = if reads { ON_ITS_WAY_MS } else { 0 };
        let Some(paused_at) = self.since.get(module).copied() else { return Ok(()) };
        // In world 1796039187763720 the worker asked other servers for 20 s.
        if self.claimed.get(id).is_some_and(|claimed_at| *claimed_at < paused_at) {
            return Ok(());
        }
        let since = self.resumed_at.map_or(paused_at, |resumed_at| resumed_at.max(paused_at));
        if world.now() > since + slack {
            let message =
                format!("task {}: {:?} is handed out, and its queue {module} is paused", id.task, id.key);
            return Err(broken("paused queues", id.task, message));
        }
        Ok(())
    }
}

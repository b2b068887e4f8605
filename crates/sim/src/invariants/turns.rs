//! Keys take turns in their queue: while an attempt of one key waits, no other key has more than two turns
//! before it. An attempt that gives up waiting takes its wait with it: the next attempt of the same step is a new one.
//!
//! Two, because a new key is inserted behind the key that had the last turn: another key may not have had
//! that turn yet, and may come earlier in the next round. This is only checked where the order of hand-outs
//! is visible and all waiting attempts are in memory: at a server that owns its disk and has parameters and
//! results in memory, while nothing limits the queue. Where the server reads parameters from the disk between
//! a claim and its answer, the answer comes later than the turn.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{ActKey, EventKind, Free, Name, TaskId, Wakeup, waiting};
use windlass_store::{Change, TaskChange};

use super::{Invariant, broken};
use crate::{
    config::Config,
    judge::{Seen, Violation},
    kinds::Kind,
    truth::Truth,
    world::World,
};

/// The most turns of another key before one of a waiting key.
const TURNS_MAX: usize = 2;

pub(super) struct Turns {
    applies: bool,
    /// Attempts in their queues, with the times since which they wait.
    waiting: BTreeMap<(TaskId, ActKey), Place>,
    /// The turns that other keys had since a waiting key had its last one.
    passed: BTreeMap<Lane, Vec<Passed>>,
    /// Attempts given to a worker: they may be put back without a visible event.
    given: BTreeSet<(TaskId, ActKey, u32)>,
    /// The last claim that was given. A missing claim was put back after its key had its turn, or is in
    /// transit to another worker.
    claim: u64,
}

/// A key in its queue.
type Lane = (Name, Box<str>);

/// A turn that a waiting key let pass.
struct Passed {
    at: u64,
    key: Option<Box<str>>,
}

struct Place {
    since: u64,
    module: Name,
    key: Option<Box<str>>,
}

impl Place {
    fn lane(&self) -> Option<Lane> {
        Some((self.module.clone(), self.key.clone()?))
    }
}

impl Turns {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            applies: !config.shared && config.rest.head == usize::MAX && !config.is(Kind::FewBytes),
            waiting: BTreeMap::new(),
            passed: BTreeMap::new(),
            given: BTreeSet::new(),
            claim: 0,
        }
    }

    fn begin_anew(&mut self) {
        self.waiting.clear();
        self.passed.clear();
    }

    /// Forgets attempts that are about to change.
    fn forget(&mut self, id: TaskId) {
        self.waiting.retain(|(task, _), _| *task != id);
        self.let_go_of_empty_lanes();
    }

    /// A key without waiting attempts counts as new when it returns.
    fn let_go_of_empty_lanes(&mut self) {
        let waiting: BTreeSet<Lane> = self.waiting.values().filter_map(Place::lane).collect();
        self.passed.retain(|lane, _| waiting.contains(lane));
    }

    /// Adds ready attempts to their queue.
    fn stand(&mut self, change: &TaskChange, now: u64) {
        let task = &change.task;
        for event in &change.events {
            let EventKind::ActReady { key: act, attempt } = event.kind else { continue };
            let wait = waiting(task, Wakeup::Act(act)).filter(|wait| wait.attempt == attempt);
            let ready = wait.and_then(|wait| wait.ready).filter(|ready| ready.free == Free::HandOut);
            if let Some(ready) = ready.filter(|_| !self.given.contains(&(task.id, act, attempt))) {
                let place = Place { since: now, module: ready.module, key: ready.fairness };
                self.waiting.insert((task.id, act), place);
            }
        }
    }

    /// An attempt has its turn: all other waiting keys let it pass.
    fn pass(&mut self, task: TaskId, given: &Place, world: &World) -> Result<(), Violation> {
        if let Some(lane) = given.lane() {
            self.passed.remove(&lane);
        }
        let others = self.waiting.values().filter(|place| {
            place.module == given.module && place.key != given.key && place.since < world.now()
        });
        let mut lanes: BTreeMap<Lane, u64> = BTreeMap::new();
        for place in others {
            let Some(lane) = place.lane() else { continue };
            let since = lanes.entry(lane).or_insert(place.since);
            *since = place.since.min(*since);
        }
        for (lane, since) in lanes {
            world.count("turn: another key's while one waits");
            let turns = self.passed.entry(lane.clone()).or_default();
            turns.retain(|turn| turn.at > since);
            turns.push(Passed { at: world.now(), key: given.key.clone() });
            let passed = turns.iter().filter(|turn| turn.key == given.key).count();
            if passed > TURNS_MAX {
                let message = format!(
                    "attempts of the key {} wait in the queue {} while {:?} has {passed} turns, the last with task {task}",
                    lane.1, lane.0, given.key
                );
                return Err(broken("turns", task, message));
            }
        }
        self.let_go_of_empty_lanes();
        Ok(())
    }
}

impl Invariant for Turns {
    fn see(&mut self, seen: &Seen, truth: &Truth, world: &World) -> Result<(), Violation> {
        if !self.applies {
            return Ok(());
        }
        match seen {
            Seen::Staged(batch) => {
                for change in &batch.changes {
                    match change {
                        Change::Task(change) => self.forget(change.task.id),
                        Change::Limit(_) => self.begin_anew(),
                        _ => {}
                    }
                }
            }
            Seen::Written(Change::Task(change)) => {
                let id = change.task.id;
                let now = truth.task_now(id).map(|task| task.state.events);
                if now == Some(change.task.state.events) {
                    self.stand(change, world.now());
                }
            }
            // After a restart attempts wait until workers have come back.
            Seen::Recovered | Seen::ServerKilled | Seen::ServerResumed => self.begin_anew(),
            Seen::Given { id, .. } => {
                self.given.insert((id.task, id.key, id.attempt));
                // Hand-outs to other workers are seen when their answers go out, which may be later: until
                // then it is unknown whose attempts wait.
                if std::mem::replace(&mut self.claim, id.claim) + 1 != id.claim {
                    self.begin_anew();
                    return Ok(());
                }
                let place = self.waiting.remove(&(id.task, id.key));
                let limited = |module: &Name| truth.rules.limits.values().any(|limit| limit.queue == *module);
                match place {
                    Some(place) if limited(&place.module) => self.begin_anew(),
                    Some(place) => return self.pass(id.task, &place, world),
                    // It was put back before, so its key had a turn that was not counted.
                    None => self.passed.clear(),
                }
            }
            _ => {}
        }
        Ok(())
    }
}

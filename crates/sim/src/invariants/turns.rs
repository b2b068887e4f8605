//! Keys take turns in their queue: while attempts of one wait, no other key has more than two turns before it has one.
//!
//! Two, because a key that comes anew stands behind the turn that was had last: another one may not have had that turn
//! yet, and may be the earlier one in the next. It is looked at where handing out can be seen in its order, and where all
//! that waits is in memory: at a server that owns its disk and has parameters and results in memory, while nothing limits
//! the queue. Where parameters are read from the disk between a claim and its answer, the answer comes later than the turn:
//! keys that came meanwhile would seem to have been passed.

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

/// Turns of another key before one of a key that waits.
const TURNS_MAX: u32 = 2;

pub(super) struct Turns {
    applies: bool,
    /// Attempts in their queues since these times.
    waiting: BTreeMap<(TaskId, ActKey), Place>,
    /// How often other keys had their turn since a key that waits had its last.
    passed: BTreeMap<Lane, BTreeMap<Option<Box<str>>, u32>>,
    /// Attempts that were given to a worker: they may be put back, and then nobody tells.
    given: BTreeSet<(TaskId, ActKey, u32)>,
    /// The last claim that was given. One that is missing was put back after its key had had its turn with it, or is on its
    /// way to another worker.
    claim: u64,
}

/// A key in its queue.
type Lane = (Name, Box<str>);

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

    /// Nothing is expected of what is about to change.
    fn forget(&mut self, id: TaskId) {
        self.waiting.retain(|(task, _), _| *task != id);
        self.let_go_of_empty_lanes();
    }

    /// A key of which nothing waits comes anew when something does.
    fn let_go_of_empty_lanes(&mut self) {
        let waiting: BTreeSet<Lane> = self.waiting.values().filter_map(Place::lane).collect();
        self.passed.retain(|lane, _| waiting.contains(lane));
    }

    /// What becomes ready stands in its queue.
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

    /// An attempt has its turn: those with other keys that wait have let it pass.
    fn pass(&mut self, task: TaskId, given: &Place, world: &World) -> Result<(), Violation> {
        if let Some(lane) = given.lane() {
            self.passed.remove(&lane);
        }
        let others = self.waiting.values().filter(|place| {
            place.module == given.module && place.key != given.key && place.since < world.now()
        });
        let lanes: BTreeSet<Lane> = others.filter_map(Place::lane).collect();
        for lane in lanes {
            world.count("turn: another key's while one waits");
            let passed = self.passed.entry(lane.clone()).or_default().entry(given.key.clone()).or_default();
            *passed += 1;
            if *passed > TURNS_MAX {
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
            // What is read anew waits for workers to come back first.
            Seen::Recovered | Seen::ServerKilled | Seen::ServerResumed => self.begin_anew(),
            Seen::Given { id, .. } => {
                self.given.insert((id.task, id.key, id.attempt));
                // What others were given is seen when their answers go out, which may be later: whose attempts wait is not
                // known then.
                if std::mem::replace(&mut self.claim, id.claim) + 1 != id.claim {
                    self.begin_anew();
                    return Ok(());
                }
                let place = self.waiting.remove(&(id.task, id.key));
                let limited = |module: &Name| truth.rules.limits.values().any(|limit| limit.queue == *module);
                match place {
                    Some(place) if limited(&place.module) => self.begin_anew(),
                    Some(place) => return self.pass(id.task, &place, world),
                    // It was put back before, so its key has had a turn with it that was not counted.
                    None => self.passed.clear(),
                }
            }
            _ => {}
        }
        Ok(())
    }
}

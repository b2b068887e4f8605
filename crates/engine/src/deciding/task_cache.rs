//! Tasks that this server knows from its own commits and claims, so that it need not read them again.
//!
//! Only where servers share a store, and reading is a round trip: another one may have changed such a task meanwhile. So
//! what is known here is a guess. A commit checks versions, and who has what is changed; where the guess was wrong it
//! conflicts, and is decided again on what the store has. Nothing but a commit may rely on it: a reply that changes
//! nothing is decided on what was read.

mod made_ready;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use windlass_core::{Act, ActKey, ActState, Attempt, Task, TaskId};
use windlass_store::{Claim, Claimed, Leave, Loaded, Now, Store};

use crate::deciding::task_cache::made_ready::MadeReady;

/// Tasks known at once; beyond them the oldest are forgotten.
const TASKS_MAX: usize = 10_000;

/// Bytes of parameters, results and failures of a task that is remembered: a larger one is read when it is needed.
const TASK_BYTES_MAX: usize = 4 << 10;

/// What this server knows of tasks.
pub(crate) struct TaskCache {
    store: Arc<dyn Store>,
    tasks: Mutex<BTreeMap<TaskId, Known>>,
    made_ready: Mutex<MadeReady>,
}

struct Known {
    loaded: Loaded,
    /// The generation of the store before this was learnt: it may have gone back to an earlier state since.
    generation: u64,
}

impl TaskCache {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, tasks: Mutex::default(), made_ready: Mutex::default() }
    }

    /// Learns what was committed or read.
    pub(crate) fn learn(&self, loaded: &Loaded, generation: u64) {
        if self.store.cluster().is_none() {
            return;
        }
        let id = loaded.task.id;
        let mut tasks = self.tasks();
        if !is_worth_it(&loaded.task) {
            tasks.remove(&id);
            return;
        }
        let version = |loaded: &Loaded| (loaded.task.state.events, loaded.claims.len());
        if tasks.get(&id).is_some_and(|known| version(&known.loaded) > version(loaded)) {
            return;
        }
        tasks.insert(id, Known { loaded: loaded.clone(), generation });
        if tasks.len() > TASKS_MAX {
            tasks.pop_first();
        }
    }

    /// Learns what was committed here, as decided at `now`.
    pub(crate) fn committed(&self, loaded: &Loaded, generation: u64, now: Now) {
        if self.store.cluster().is_some() {
            self.learn(loaded, generation);
            if has_unclaimed(loaded) {
                self.made_ready().note(loaded.task.id, now);
            }
        }
    }

    /// What is left to other servers by whoever claims now.
    pub(crate) fn leave(&self, now: Now) -> Leave {
        self.made_ready().leave(now)
    }

    /// The task of an attempt that the store has just handed out, if it is known as far as that.
    pub(crate) fn claimed(&self, claimed: &Claimed) -> Option<Loaded> {
        self.made_ready().hand_out(claimed.id.task);
        let mut tasks = self.tasks();
        let known = tasks.get_mut(&claimed.id.task)?;
        let id = &claimed.id;
        let act = known.loaded.task.act(id.key)?;
        if known.generation != self.store.generation()
            || act.state != ActState::Ready
            || act.attempt != id.attempt
        {
            return None;
        }
        let (key, attempt, number) = (id.key, id.attempt, id.claim);
        let claim = Claim { key, attempt, number, session: claimed.session, at: claimed.at };
        known.loaded.claims.retain(|claim| claim.key != key);
        known.loaded.claims.push(claim);
        known.loaded.handed_out.insert(key);
        Some(known.loaded.clone())
    }

    /// The task of an attempt of which a worker reports, if it is known that the worker has it under this claim.
    pub(crate) fn reported(&self, task: TaskId, attempt: &Attempt, claim: u64) -> Option<Loaded> {
        let tasks = self.tasks();
        let known = tasks.get(&task)?;
        let has =
            |held: &Claim| (held.key, held.attempt, held.number) == (attempt.key, attempt.number, claim);
        let is_theirs = known.generation == self.store.generation() && known.loaded.claims.iter().any(has);
        is_theirs.then(|| known.loaded.clone())
    }

    /// A task is not as it is known here.
    pub(crate) fn forget(&self, task: TaskId) {
        self.tasks().remove(&task);
    }

    fn made_ready(&self) -> MutexGuard<'_, MadeReady> {
        self.made_ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tasks(&self) -> MutexGuard<'_, BTreeMap<TaskId, Known>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an attempt of it is ready that nobody has.
fn has_unclaimed(loaded: &Loaded) -> bool {
    let is_unclaimed = |(key, act): (ActKey, &Act)| {
        act.state == ActState::Ready && loaded.claims.iter().all(|claim| claim.key != key)
    };
    !loaded.task.is_ended() && loaded.task.step_acts().any(is_unclaimed)
}

/// Whether it is likely to be needed again, and small.
fn is_worth_it(task: &Task) -> bool {
    if task.is_ended() || task.fans().next().is_some() {
        return false;
    }
    let acts = task.step_acts().map(|(_, act)| {
        let result = act.result.as_ref().map_or(0, |result| result.as_str().len());
        result + act.failure.as_ref().map_or(0, |failure| failure.message.len())
    });
    let amended = task.state.steps.iter().filter_map(|step| step.amended.as_deref()).map(str::len);
    let bytes = acts.chain(amended).sum::<usize>();
    bytes + task.input.params.as_str().len() <= TASK_BYTES_MAX
}

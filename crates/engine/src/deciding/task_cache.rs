//! Tasks that this server has committed or claimed, so that it need not read them again.
//!
//! Used only where servers share a store and reading costs a round trip. Another server may have changed a cached task,
//! so the cache is a guess. A commit checks the versions and the claims of the tasks it changes; if the guess was
//! wrong, the commit conflicts and the items are decided again on the state in the store. Only a commit may rely on the
//! cache: a reply without a change is decided on the state in the store.

mod made_ready;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use windlass_core::{Act, ActKey, ActState, Attempt, Task, TaskId};
use windlass_store::{Claim, Claimed, Cluster, Leave, Loaded, Now, Store};

use crate::deciding::task_cache::made_ready::MadeReady;

/// The maximum number of cached tasks; beyond it the oldest are evicted.
const TASKS_MAX: usize = 10_000;

/// The maximum size of a cached task: bytes of parameters, results and failures. A larger task is read when it is
/// needed.
const TASK_BYTES_MAX: usize = 4 << 10;

/// The tasks that this server has cached.
pub(crate) struct TaskCache {
    store: Arc<dyn Store>,
    tasks: Mutex<BTreeMap<TaskId, Known>>,
    made_ready: Mutex<MadeReady>,
}

struct Known {
    loaded: Loaded,
    /// The connection count before this was learned: after a new connection the database may be in an earlier state.
    connected: u64,
}

impl TaskCache {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, tasks: Mutex::default(), made_ready: Mutex::default() }
    }

    /// The connection count, to be passed to [`learn`](Self::learn) after a commit or read that begins now.
    pub(crate) fn connected(&self) -> u64 {
        self.store.cluster().map_or(0, Cluster::connected)
    }

    /// Caches a committed or read task.
    pub(crate) fn learn(&self, loaded: &Loaded, connected: u64) {
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
        tasks.insert(id, Known { loaded: loaded.clone(), connected });
        if tasks.len() > TASKS_MAX {
            tasks.pop_first();
        }
    }

    /// Caches a task that this server committed, decided at `now`.
    pub(crate) fn committed(&self, loaded: &Loaded, connected: u64, now: Now) {
        if self.store.cluster().is_some() {
            self.learn(loaded, connected);
            if has_unclaimed(loaded) {
                self.made_ready().note(loaded.task.id, now);
            }
        }
    }

    /// The attempts that a claim at `now` leaves to other servers.
    pub(crate) fn leave(&self, now: Now) -> Leave {
        self.made_ready().leave(now)
    }

    /// The task of an attempt that the store has just handed out, if the cached state matches it.
    pub(crate) fn claimed(&self, claimed: &Claimed) -> Option<Loaded> {
        self.made_ready().hand_out(claimed.id.task);
        let mut tasks = self.tasks();
        let known = tasks.get_mut(&claimed.id.task)?;
        let id = &claimed.id;
        let act = known.loaded.task.act(id.key)?;
        if known.connected != self.connected() || act.state != ActState::Ready || act.attempt != id.attempt {
            return None;
        }
        let (key, attempt, number) = (id.key, id.attempt, id.claim);
        let claim = Claim { key, attempt, number, session: claimed.session, at: claimed.at };
        known.loaded.claims.retain(|claim| claim.key != key);
        known.loaded.claims.push(claim);
        known.loaded.handed_out.insert(key);
        Some(known.loaded.clone())
    }

    /// The task of a reported attempt, if the cache has the worker's claim.
    pub(crate) fn reported(&self, task: TaskId, attempt: &Attempt, claim: u64) -> Option<Loaded> {
        let tasks = self.tasks();
        let known = tasks.get(&task)?;
        let has =
            |held: &Claim| (held.key, held.attempt, held.number) == (attempt.key, attempt.number, claim);
        let is_theirs = known.connected == self.connected() && known.loaded.claims.iter().any(has);
        is_theirs.then(|| known.loaded.clone())
    }

    /// Evicts a task whose cached state is wrong.
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

/// Whether the task has a ready attempt without a claim.
fn has_unclaimed(loaded: &Loaded) -> bool {
    let is_unclaimed = |(key, act): (ActKey, &Act)| {
        act.state == ActState::Ready && loaded.claims.iter().all(|claim| claim.key != key)
    };
    !loaded.task.is_ended() && loaded.task.step_acts().any(is_unclaimed)
}

/// Whether the task is likely to be needed again, and small.
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

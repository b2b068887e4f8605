//! Reasons of ready attempts: the worker that has them, or the obstacle.

use windlass_core::{Act, ActKey, ActState, Action, DEVICE_MODULE, Name, Task, TaskId, Wakeup, waiting};
use windlass_engine::{AtWorker, Holder, Why};
use windlass_store::{AttemptId, LimitState};

use super::{Check, acts::is_to_end, facts::Run, holds};

/// How long a server waits for workers after it has read its disk, and how much later it may still report
/// this. A slow or full disk may block it for longer.
const GRACE_MS: u64 = 300 + 2_000;

/// How many attempts a server that owns its disk may count twice: it counts those in memory, then those on
/// disk, and a page may be evicted in between (worlds 1795422654313476 and 1795422982702748).
const COUNTED_TWICE_MAX: u64 = 3;

/// How long a poll must have been open before a shared database knows of the worker.
const POLL_TOLD_MS: u64 = 1_000;

impl Check<'_> {
    pub(super) fn check_ready(&self, task: &Task, key: ActKey, act: &Act, why: &Why) -> Result<(), String> {
        let Some((module, _)) = task.action(key).and_then(Action::worker) else {
            return Err("no worker does it".into());
        };
        match why {
            Why::Running(at) | Why::Ending(at) => {
                let ends = is_to_end(task, key, act);
                holds(ends == matches!(why, Why::Ending(_)), || format!("it is to end: {ends}"))?;
                return self.check_at_worker(task, key, act, at);
            }
            // It is in transit to a worker, or to the state of paused tasks and of those that roll back.
            Why::Moving => return Ok(()),
            _ => self.check_at_none(task, key, act)?,
        }
        let since = self.answer.asked_at;
        match why {
            Why::QueuePaused { module: queue, .. } => {
                holds(queue == module && self.facts.was_paused(queue, true, since), || {
                    format!("the queue {module} is not paused")
                })
            }
            Why::Grace => {
                let read = self.facts.recovered_at;
                holds(self.facts.failing || since <= read + GRACE_MS, || {
                    format!("a server read its disk at {read}")
                })
            }
            _ if !self.facts.was_paused(module, false, since) => Err(format!("the queue {module} is paused")),
            Why::NoWorker { module: queue, last, .. } => {
                holds(queue == module, || format!("its queue is {module}"))?;
                let connected = self.connected(module);
                holds(connected.is_none(), || format!("{connected:?} is connected"))?;
                let last = last.as_ref().map(|last| &*last.worker);
                let is_so = last.is_none_or(|last| self.serves(last, module));
                holds(is_so, || format!("{last:?} does not serve {module}"))
            }
            Why::Limited { state, holders } => self.check_limited(task, key, state, holders),
            Why::Queued { module: queue, before, workers, .. } => {
                holds(queue == module && *workers > 0, || format!("its queue is {module}"))?;
                let others = self.others_ready(module);
                let counted_twice = if self.facts.shared { 0 } else { COUNTED_TWICE_MAX };
                holds(*before < others + counted_twice, || {
                    format!("{others} attempts are ready, with this one")
                })
            }
            // What devices do waits for them with the server.
            Why::Offered { module: queue, .. } => {
                holds(queue == module && &**module == DEVICE_MODULE, || format!("its queue is {module}"))
            }
            _ => Err("it is ready".into()),
        }
    }

    fn check_at_worker(&self, task: &Task, key: ActKey, act: &Act, at: &AtWorker) -> Result<(), String> {
        let timeout = task.action(key).map(|action| action.timeout);
        holds(at.attempt == act.attempt && at.timeout == timeout, || {
            format!("it is attempt {} with {timeout:?}", act.attempt)
        })?;
        let module = task.action(key).and_then(Action::worker).map(|(module, _)| module);
        let named = at.worker.starts_with("worker-");
        let serves = module.is_some_and(|module| self.serves(&at.worker, module));
        holds(!named || serves, || format!("{} does not serve {module:?}", at.worker))?;
        let run = self.known_run(task.id, key, act.attempt);
        let other = run.filter(|run| named && at.worker != worker_name(run.worker));
        holds(other.is_none(), || format!("worker {:?} runs it", other.map(|run| run.worker)))
    }

    /// Checks that no worker runs it as far as servers know.
    fn check_at_none(&self, task: &Task, key: ActKey, act: &Act) -> Result<(), String> {
        let run = self.known_run(task.id, key, act.attempt);
        holds(run.is_none(), || {
            format!("worker {:?} runs attempt {}", run.map(|run| run.worker), act.attempt)
        })
    }

    /// A command for this attempt, which was given to its worker before the question, after the server
    /// started, and to no other worker since. That the worker of a damaged task is lost cannot be written, so it is not known.
    fn known_run(&self, task: TaskId, key: ActKey, attempt: u32) -> Option<&Run> {
        if self.truth.is_damaged(task) {
            return None;
        }
        let (claim, at) = *self.facts.given.get(&(task, key, attempt))?;
        let id = AttemptId { task, key, attempt, claim };
        let known = at < self.answer.asked_at && (self.facts.shared || self.facts.server_started_at < at);
        self.facts.runs.values().find(|run| known && run.id == id)
    }

    /// An attached worker of the module with a poll open since before the question.
    fn connected(&self, module: &Name) -> Option<usize> {
        let margin = if self.facts.shared { POLL_TOLD_MS } else { 0 };
        let told =
            |since: u64| since + margin < self.answer.asked_at && !(self.facts.shared && self.facts.failing);
        let attached = |worker: usize| self.world.config.workers[worker].attached;
        let mut polls = self.facts.polls.iter().map(|(worker, since)| (*worker, *since));
        polls
            .find(|(worker, since)| {
                told(*since) && attached(*worker) && self.serves(&worker_name(*worker), module)
            })
            .map(|(worker, _)| worker)
    }

    /// Whether a worker of this name serves a module.
    fn serves(&self, worker: &str, module: &str) -> bool {
        let workers = &self.world.config.workers;
        let index = (0..workers.len()).find(|index| worker_name(*index) == worker);
        let is_served =
            |index: usize| module == "m" || module != DEVICE_MODULE && workers[index].both_modules;
        index.is_some_and(is_served)
    }

    /// How many attempts of a queue were ready at some time since the question.
    fn others_ready(&self, module: &Name) -> u64 {
        let is_ready = |task: &Task, key: ActKey, act: &Act| {
            act.state == ActState::Ready
                && task.action(key).and_then(Action::worker).is_some_and(|(of, _)| of == module)
        };
        let mut ready = 0;
        for id in self.truth.tasks.keys() {
            let since = self.facts.task_since(*id, self.answer.asked_at);
            let of = |task: &Task| task.open_acts().filter(|(key, act)| is_ready(task, *key, act)).count();
            ready += since.map(of).max().unwrap_or(0);
        }
        ready as u64
    }

    fn check_limited(
        &self,
        task: &Task,
        key: ActKey,
        state: &LimitState,
        holders: &[Holder],
    ) -> Result<(), String> {
        let (limit, since) = (&state.limit, self.answer.asked_at);
        let set = self.facts.rules.since(since).any(|rules| rules.limits.get(&limit.name) == Some(limit));
        holds(set, || "there is no such limit".into())?;
        let ready = waiting(task, Wakeup::Act(key)).and_then(|waiting| waiting.ready);
        let counted = ready.as_ref().and_then(|ready| limit.counts_ready(ready));
        holds(counted.is_some(), || format!("it does not count {ready:?}"))?;
        let full = limit.running.is_some_and(|most| state.running >= u64::from(most));
        holds(full || state.next_start_at.is_some(), || "it is not reached".into())?;
        // A damaged limit allows nothing.
        let is_closed = limit.running == Some(0);
        holds(!full || is_closed || !holders.is_empty(), || "nobody has what it allows".into())?;
        holds(holders.len() as u64 <= state.running, || format!("{} have it", holders.len()))?;
        for holder in holders {
            let same_key = !limit.per_key || holder.key.as_deref() == counted.flatten();
            if holder.step.is_none() && self.truth.is_damaged(holder.task) {
                continue;
            }
            let mut versions = self.facts.task_since(holder.task, since);
            let has = |task: &Task| {
                let act = task.act(holder.act).filter(|act| act.state == ActState::Ready);
                act.is_some_and(|act| act.attempt == holder.attempt)
                    && Self::step_name(task, holder.act) == holder.step.as_deref()
                    && task
                        .action(holder.act)
                        .and_then(Action::worker)
                        .is_some_and(|(module, _)| *module == limit.queue)
            };
            holds(same_key && versions.any(has), || format!("{holder:?} has nothing that counts"))?;
        }
        Ok(())
    }
}

fn worker_name(index: usize) -> String {
    format!("worker-{index}")
}

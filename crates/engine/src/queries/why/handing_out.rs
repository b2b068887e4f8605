//! Why a ready attempt was not handed to a worker.

use std::collections::BTreeMap;

use windlass_core::{
    Act, ActKey, Action, Free, Name, Wakeup,
    planted::{Bug, is_planted},
    waiting, when_free,
};
use windlass_store::{SessionId, WorkerState};

use crate::{
    EngineError,
    queries::why::{Why, acts::Look},
};

/// The numbers of connected workers with respect to one command.
struct Workers {
    /// Workers that serve it.
    serve: usize,
    /// Workers that serve it but claim nothing more, because they drain.
    draining: usize,
    /// Workers that serve its module without it.
    without_command: usize,
    /// Workers that serve other modules.
    others: usize,
}

impl Look<'_> {
    pub(super) async fn why_ready(&self, key: ActKey, _act: &Act) -> Result<Why, EngineError> {
        let task = &self.loaded.task;
        let is_awaited = self.loaded.awaited.contains(&key);
        if when_free(task, key) != Free::HandOut {
            return Ok(if is_awaited { Why::Grace } else { Why::Moving });
        }
        let Some((module, command)) = task.action(key).and_then(Action::worker) else {
            return Ok(Why::Moving);
        };
        let queue = self.queues.iter().find(|queue| queue.name == *module);
        if let Some(pause) = queue.and_then(|queue| queue.paused.clone()) {
            if is_planted(Bug::QueuePauseNotTold) {
                return Ok(Why::Moving);
            }
            return Ok(Why::QueuePaused { module: module.clone(), pause });
        }
        if let Some(at) = self.engine.offering.of(module)
            && let Some((since, _)) = at.trouble
        {
            return Ok(Why::Offered { module: module.clone(), at: Some(at), since });
        }
        let workers = self.workers_for(module, command);
        if workers.serve == 0 {
            let last = self.engine.sessions.lock().last_heard(module, self.now);
            let since_start = self.engine.began.get().filter(|_| last.is_none()).map(|began| began.wall);
            return Ok(Why::NoWorker {
                module: module.clone(),
                draining: workers.draining,
                without_command: workers.without_command,
                others: workers.others,
                last,
                since_start,
            });
        }
        if is_awaited {
            return Ok(Why::Grace);
        }
        if let Some(limited) = self.why_limited(key).await? {
            if is_planted(Bug::WorkersSaidMissing) {
                let (module, last, since_start) = (module.clone(), None, None);
                return Ok(Why::NoWorker {
                    module,
                    draining: 0,
                    without_command: 0,
                    others: 0,
                    last,
                    since_start,
                });
            }
            return Ok(limited);
        }
        Ok(match self.engine.store.place(task.id, key).await? {
            Some(before) => Why::Queued {
                module: module.clone(),
                before,
                workers: workers.serve,
                estimate: self.engine.rates.time_for(module, before + 1, self.now.mono),
            },
            None => Why::Moving,
        })
    }

    /// The first limit that blocks the attempt.
    async fn why_limited(&self, key: ActKey) -> Result<Option<Why>, EngineError> {
        let waiting = waiting(&self.loaded.task, Wakeup::Act(key));
        let Some(ready) = waiting.and_then(|waiting| waiting.ready) else { return Ok(None) };
        let limits = self.engine.store.keeping_back(&ready, self.now).await?;
        let Some(state) = limits.into_iter().next() else { return Ok(None) };
        let holders = self.engine.holders(&state, self.now).await?;
        Ok(Some(Why::Limited { state: Box::new(state), holders }))
    }

    fn workers_for(&self, module: &Name, command: &Name) -> Workers {
        // For workers of other servers only the modules are known.
        let local = self.engine.sessions.lock();
        let mut workers = Workers { serve: 0, draining: 0, without_command: 0, others: 0 };
        let mut known: BTreeMap<SessionId, &WorkerState> = local.polling_workers().collect();
        known.extend(self.workers.iter().map(|worker| (worker.session, &worker.worker)));
        // Queue publishers, and the session of modules that report over a broker, run nothing themselves.
        known.retain(|session, _| !session.is_own());
        for (session, worker) in known {
            if !worker.modules.contains(module) {
                workers.others += 1;
            } else if local.lacks(session, module, command) {
                workers.without_command += 1;
            } else if local.is_draining(session) {
                workers.draining += 1;
            } else {
                workers.serve += 1;
            }
        }
        workers
    }
}

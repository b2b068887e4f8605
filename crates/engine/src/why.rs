//! Why a task does not move.

use windlass_core::{
    ActKey, ActState, Action, Direction, Pause, Phase, StuckKind, Task, TaskId, TaskStatus, Timestamp,
    Wakeup, task_status, waiting,
};

use crate::{
    Engine, EngineError,
    ports::{Claim, Loaded, Now, QueuePause, SessionState},
};

/// Why a task is where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// It has ended.
    Ended(TaskStatus),
    /// A person must settle a step.
    Stuck {
        /// The kind of trouble.
        kind: StuckKind,
        /// The step.
        step: Option<usize>,
        /// What happened.
        message: String,
    },
    /// A person holds it; attempts that are still in flight may end.
    Paused {
        /// Attempts in flight.
        in_flight: usize,
    },
    /// Its start time has not come.
    Scheduled {
        /// When it comes.
        at: Timestamp,
    },
    /// It turned around and waits for attempts in flight to end before it undoes anything.
    Ending {
        /// The step that is waited for.
        key: ActKey,
        /// Name of the worker that has it.
        worker: String,
    },
    /// A worker has it.
    Running {
        /// Which act.
        key: ActKey,
        /// Number of the attempt.
        attempt: u32,
        /// Name of the worker.
        worker: String,
        /// Since when.
        since: Timestamp,
    },
    /// The next attempt is not due.
    Retry {
        /// Which act.
        key: ActKey,
        /// Number of the attempt that failed.
        attempt: u32,
        /// When the next one is ready.
        until: Timestamp,
        /// Why it failed.
        message: Option<String>,
    },
    /// Its queue is paused.
    QueuePaused {
        /// Which act.
        key: ActKey,
        /// Since when and by whom.
        pause: QueuePause,
    },
    /// No connected worker serves its command.
    NoWorker {
        /// Which act.
        key: ActKey,
        /// How many workers serve other modules or commands.
        others: usize,
    },
    /// It waits for its turn.
    Queued {
        /// Which act.
        key: ActKey,
        /// How many attempts stand before it.
        before: u64,
        /// How many workers serve its command.
        workers: usize,
    },
    /// The server has just started; workers may come back and name what they hold.
    Grace {
        /// Which act.
        key: ActKey,
    },
}

impl Engine {
    /// Why the task is where it is, with the task.
    ///
    /// # Errors
    /// When it is not there or the store fails.
    pub async fn why(&self, id: TaskId, now: Now) -> Result<(Loaded, Why), EngineError> {
        let loaded = self.task(id).await?;
        let task = &loaded.task;
        let why = match self.why_held(&loaded, now).await? {
            Some(why) => why,
            None => match first_ready(task, &loaded.claims) {
                Some(key) => self.why_ready(task, key, now).await?,
                None => why_delayed(task),
            },
        };
        Ok((loaded, why))
    }

    /// Reasons that do not depend on queues.
    async fn why_held(&self, loaded: &Loaded, now: Now) -> Result<Option<Why>, EngineError> {
        let task = &loaded.task;
        let status = task_status(task, &loaded.held());
        if task.is_ended() {
            return Ok(Some(Why::Ended(status)));
        }
        if let Some(stuck) = &task.state.stuck {
            let (kind, step, message) = (stuck.kind, stuck.step, stuck.message.to_string());
            return Ok(Some(Why::Stuck { kind, step, message }));
        }
        if task.state.pause == Pause::Held {
            return Ok(Some(Why::Paused { in_flight: loaded.claims.len() }));
        }
        if let (Phase::Scheduled, Some(at)) = (task.state.phase, task.input.at) {
            return Ok(Some(Why::Scheduled { at }));
        }
        let Some(claim) = loaded.claims.first() else { return Ok(None) };
        let workers = self.workers(now).await?;
        let worker = workers.into_iter().find(|worker| worker.session == claim.session);
        let worker =
            worker.map_or_else(|| claim.session.to_string(), |worker| worker.worker.name.to_string());
        let turned = task.state.phase == Phase::Backward && claim.key.direction == Direction::Forward;
        Ok(Some(if turned {
            Why::Ending { key: claim.key, worker }
        } else {
            Why::Running { key: claim.key, attempt: claim.attempt, worker, since: claim.at }
        }))
    }

    /// Why a ready attempt is not with a worker.
    async fn why_ready(&self, task: &Task, key: ActKey, now: Now) -> Result<Why, EngineError> {
        let Some((module, command)) = task.action(key).and_then(Action::worker) else {
            return Ok(Why::Grace { key });
        };
        let queues = self.queues().await?;
        let queue = queues.into_iter().find(|queue| queue.name == *module);
        if let Some(pause) = queue.and_then(|queue| queue.paused) {
            return Ok(Why::QueuePaused { key, pause });
        }
        let all = self.workers(now).await?;
        // Of workers that talk to other servers only the modules are known.
        let workers = {
            let local = self.sessions.lock();
            let serves = |worker: &&SessionState| {
                worker.worker.modules.contains(module) && !local.lacks(worker.session, module, command)
            };
            all.iter().filter(serves).count()
        };
        if workers == 0 {
            return Ok(Why::NoWorker { key, others: all.len() });
        }
        Ok(match self.store.place(task.id, key).await? {
            Some(before) => Why::Queued { key, before, workers },
            None => Why::Grace { key },
        })
    }
}

/// The first ready act that no worker has.
fn first_ready(task: &Task, claims: &[Claim]) -> Option<ActKey> {
    task.open_acts()
        .filter(|(key, act)| act.state == ActState::Ready && !claims.iter().any(|claim| claim.key == *key))
        .map(|(key, _)| key)
        .next()
}

/// A task in which nothing is ready waits for the time that comes first.
fn why_delayed(task: &Task) -> Why {
    let delayed = task.open_acts().filter_map(|(key, act)| match act.state {
        ActState::Delayed { .. } => {
            let until = waiting(task, Wakeup::Act(key))?.due_at?;
            Some((until, key, act))
        }
        _ => None,
    });
    match delayed.min_by_key(|(until, key, _)| (*until, *key)) {
        Some((until, key, act)) => Why::Retry {
            key,
            attempt: act.attempt,
            until,
            message: act.failure.as_ref().map(|failure| failure.message.to_string()),
        },
        None => Why::Grace { key: ActKey::forward(task.cursor()) },
    }
}

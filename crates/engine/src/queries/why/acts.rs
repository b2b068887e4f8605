//! The reasons why one execution waits.

use std::collections::BTreeMap;

use windlass_core::{Act, ActKey, ActState, Action, Awaited, Doer, TaskId, is_to_stop, task_status, trouble};
use windlass_store::{Claim, Loaded, Now, QueueState, SessionState};

use crate::{
    Engine, EngineError,
    queries::why::{AtWorker, ChildReason, Explanation, Reason, Why, devices::job_device},
};

/// A task and its surroundings, read once.
pub(super) struct Look<'a> {
    pub(super) engine: &'a Engine,
    pub(super) loaded: &'a Loaded,
    pub(super) claims: BTreeMap<ActKey, &'a Claim>,
    pub(super) queues: Vec<QueueState>,
    pub(super) workers: Vec<SessionState>,
    pub(super) now: Now,
}

impl<'a> Look<'a> {
    pub(super) async fn new(
        engine: &'a Engine,
        loaded: &'a Loaded,
        now: Now,
    ) -> Result<Look<'a>, EngineError> {
        let claims = loaded.claims.iter().map(|claim| (claim.key, claim)).collect();
        let mut look = Self { engine, loaded, claims, queues: Vec::new(), workers: Vec::new(), now };
        if loaded.task.open_acts().any(|(_, act)| act.state == ActState::Ready) {
            look.queues = engine.queues().await?;
            look.workers = engine.workers(now).await?;
        }
        Ok(look)
    }

    /// The reason of an execution, with its running deadline. An attempt claimed by a queue publisher does not count as
    /// started.
    pub(super) async fn reason(&self, key: ActKey, why: Why) -> Result<Reason, EngineError> {
        let claim = self.claims.get(&key).filter(|claim| !claim.session.is_publisher());
        let deadline_at = self.loaded.task.running_deadline(key, claim.map(|claim| claim.at));
        let device = self.awaited_device(key, &why).await?;
        Ok(Reason { key: Some(key), why, deadline_at, device })
    }

    /// Whether there may be a reason for an execution.
    pub(super) fn is_open(&self, key: ActKey) -> bool {
        let task = &self.loaded.task;
        task.act(key).is_some_and(|act| act.is_open() || act.state == ActState::Fanned)
            || self.has_open_members(key)
            || trouble(task, key).is_some()
    }

    /// Why the execution of a step, or one of its open items, waits; `None` = it does not wait.
    pub(super) async fn why(&self, key: ActKey) -> Result<Option<Why>, EngineError> {
        let task = &self.loaded.task;
        let Some(act) = task.act(key) else { return Ok(None) };
        if act.state == ActState::Fanned || self.has_open_members(key) {
            return self.why_members(key).await;
        }
        Ok(match act.state {
            ActState::Ready => Some(match self.claims.get(&key) {
                Some(claim) => self.why_claimed(key, claim),
                None => self.why_ready(key, act).await?,
            }),
            ActState::Delayed { until } => Some(self.why_delayed(key, act, until).await?),
            ActState::Awaiting(awaited) => Some(self.why_awaiting(key, act, awaited).await?),
            ActState::Failed => trouble(task, key).map(|stuck| {
                let message = act.failure.as_ref().map_or("it failed", |failure| &*failure.message);
                Why::Stuck { kind: stuck.kind, message: message.to_owned() }
            }),
            // The pause is a reason of the task itself.
            ActState::Parked => None,
            ActState::Idle | ActState::Succeeded | ActState::Skipped | ActState::Fanned => None,
        })
    }

    fn has_open_members(&self, key: ActKey) -> bool {
        let members = self.loaded.task.state.steps[key.step].members.as_ref();
        !key.is_member() && members.is_some_and(|members| !members.side(key.direction).open.is_empty())
    }

    fn why_claimed(&self, key: ActKey, claim: &Claim) -> Why {
        let task = &self.loaded.task;
        if claim.session.is_publisher()
            && let Some((module, _)) = task.action(key).and_then(Action::worker)
        {
            return Why::Offered {
                module: module.clone(),
                at: self.engine.offering.of(module),
                since: claim.at,
            };
        }
        let worker = self.workers.iter().find(|worker| worker.session == claim.session);
        let name = worker.map(|worker| worker.worker.name.to_string()).filter(|name| !name.is_empty());
        // A job that was published is with its device.
        let name = job_device(task, key).map(|device| device.to_string()).or(name);
        let at_worker = AtWorker {
            attempt: claim.attempt,
            worker: name.unwrap_or_else(|| claim.session.to_string()),
            since: claim.at,
            timeout: task.action(key).map(|action| action.timeout),
            progress: self.engine.progress(task.id, key, claim.attempt),
        };
        if is_to_stop(task, key) { Why::Ending(at_worker) } else { Why::Running(at_worker) }
    }

    async fn why_delayed(
        &self,
        key: ActKey,
        act: &Act,
        until: windlass_core::Timestamp,
    ) -> Result<Why, EngineError> {
        if let Some(at) = act.deadline_at.filter(|at| !act.overdue && *at <= until) {
            return Ok(Why::DeadlineFirst { at });
        }
        if act.attempt == 0 {
            return Ok(Why::Delayed { until });
        }
        let attempt = act.attempt;
        if act.postponements() > 0
            && let Some(message) = self.engine.postponed(&self.loaded.task, key, attempt).await?
        {
            return Ok(Why::Postponed { attempt, until, message: Some(message).filter(|it| !it.is_empty()) });
        }
        Ok(Why::Retry {
            attempt,
            failures: act.failures,
            retries: self.loaded.task.action(key).map_or(0, |action| action.retry.max),
            until,
            message: act.failure.as_ref().map(|failure| failure.message.to_string()),
        })
    }

    async fn why_awaiting(&self, key: ActKey, act: &Act, awaited: Awaited) -> Result<Why, EngineError> {
        let since = act.ready_at;
        Ok(match awaited {
            Awaited::Signal => {
                let doer = self.loaded.task.action(key).map(|action| &action.doer);
                let Some(Doer::Signal { name }) = doer else { return Ok(Why::Moving) };
                Why::Signal { name: name.clone(), since, until: act.deadline_at }
            }
            Awaited::Child => {
                let child = match act.child() {
                    Some(child) => self.why_child(child).await?,
                    None => None,
                };
                Why::Child { task: act.child().filter(|_| child.is_some()), child }
            }
            Awaited::Lock => self.why_locked(key, act).await?,
        })
    }

    /// Why a child task that a step waits for is in its state; `None` if it does not exist. The nesting of child tasks
    /// is limited, so the recursion is.
    async fn why_child(&self, id: TaskId) -> Result<Option<Box<ChildReason>>, EngineError> {
        match Box::pin(self.engine.why(id, self.now)).await {
            Ok((loaded, Explanation { reasons, .. })) => {
                let status = task_status(&loaded.task, &loaded.held());
                let first = reasons.into_iter().next();
                let reason = first.unwrap_or_else(|| Reason::of_task(&loaded.task, Why::Moving));
                Ok(Some(Box::new(ChildReason { task: loaded.task, status, reason })))
            }
            Err(EngineError::UnknownTask(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

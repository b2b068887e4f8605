//! Limits: setting and removing them, and the attempts that count under them.

use windlass_core::{ActKey, Name, TaskId, Timestamp};
use windlass_store::{Change, Limit, LimitChange, LimitState, Now};

use crate::{
    Engine, EngineError,
    deciding::inbox::{Item, Reply},
};

/// The maximum number of holders in a limit's report, oldest first.
pub const HOLDERS_TOLD_MAX: usize = 100;

/// A limit with the attempts that count under it.
#[derive(Debug, Clone)]
pub struct LimitReport {
    /// The limit and its counts.
    pub state: LimitState,
    /// The attempts in flight, oldest first, at most [`HOLDERS_TOLD_MAX`].
    pub holders: Vec<Holder>,
}

/// An attempt in flight that counts under a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The task.
    pub task: TaskId,
    /// The execution.
    pub act: ActKey,
    /// Name of its step; nothing if the task is damaged.
    pub step: Option<Name>,
    /// Number of the attempt.
    pub attempt: u32,
    /// The concurrency key it counts under.
    pub key: Option<Box<str>>,
    /// When it was claimed.
    pub since: Timestamp,
    /// Name of the worker.
    pub worker: Box<str>,
}

impl Engine {
    /// Sets a limit, or replaces the one with the same name. The limit must have been [checked](Limit::check).
    ///
    /// # Errors
    /// When the store fails.
    pub async fn set_limit(&self, limit: Limit) -> Result<(), EngineError> {
        self.change_limit(LimitChange { name: limit.name.clone(), limit: Some(limit) }).await
    }

    /// Removes a limit. A limit that does not exist is not an error.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn remove_limit(&self, name: Name) -> Result<(), EngineError> {
        self.change_limit(LimitChange { name, limit: None }).await
    }

    async fn change_limit(&self, change: LimitChange) -> Result<(), EngineError> {
        match self.inbox.decide(vec![Item::Change(Change::Limit(change))]).await?.pop() {
            Some(Reply::Done) => Ok(()),
            _ => Err(EngineError::Conflict),
        }
    }

    /// All limits with their holders, by name.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn limits(&self, now: Now) -> Result<Vec<LimitReport>, EngineError> {
        let states = self.on_disk(|| self.store.limits(now)).await?;
        let mut reports = Vec::with_capacity(states.len());
        for state in states {
            let holders = self.holders(&state, now).await?;
            reports.push(LimitReport { state, holders });
        }
        Ok(reports)
    }

    /// The attempts that count under a limit, oldest first, at most [`HOLDERS_TOLD_MAX`].
    ///
    /// # Errors
    /// When the store fails.
    pub async fn holders(&self, state: &LimitState, now: Now) -> Result<Vec<Holder>, EngineError> {
        let told = &state.holders[..state.holders.len().min(HOLDERS_TOLD_MAX)];
        if told.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<TaskId> = told.iter().map(|holder| holder.claimed.id.task).collect();
        let tasks = self.store.load_heads(&ids).await?;
        let sessions = self.store.sessions(now).await?;
        let holders = told.iter().zip(tasks).map(|(holder, loaded)| {
            let id = holder.claimed.id;
            let step = loaded.and_then(|loaded| Some(loaded.task.flow.steps.get(id.key.step)?.name.clone()));
            let session = sessions.iter().find(|session| session.session == holder.claimed.session);
            Holder {
                task: id.task,
                act: id.key,
                step,
                attempt: id.attempt,
                key: holder.key.clone(),
                since: holder.claimed.at,
                worker: session.map(|session| session.worker.name.clone()).unwrap_or_default(),
            }
        });
        Ok(holders.collect())
    }

    /// Warnings about a limit that is valid but has no effect yet.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn limit_warnings(&self, limit: &Limit) -> Result<Vec<String>, EngineError> {
        let (mut is_used, mut has_key) = (false, false);
        for stored in self.flows().await? {
            for step in &stored.flow.steps {
                for action in [Some(&step.run), step.rollback.as_ref()].into_iter().flatten() {
                    let counts = action.worker().is_some_and(|(module, command)| {
                        *module == limit.queue && limit.command.as_ref().is_none_or(|only| only == command)
                    });
                    is_used |= counts;
                    has_key |= counts && step.key.is_some();
                }
            }
        }
        let queue = &limit.queue;
        let what =
            limit.command.as_ref().map_or_else(|| queue.to_string(), |command| format!("{queue}.{command}"));
        Ok(if !is_used {
            vec![format!("no step of any flow runs {what}, so nothing is limited yet")]
        } else if limit.per_key && !has_key {
            vec![format!("it is by key, and no step that runs {what} has a `key`, so nothing is limited yet")]
        } else {
            Vec::new()
        })
    }
}

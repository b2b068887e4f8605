//! Reruns of tasks: a new task of the same flow version, which takes over the completed steps of the old one.

use std::sync::Arc;

use thiserror::Error;
use windlass_core::{ActState, Actor, Flow, Input, Json, Role, Task, TaskId};
use windlass_store::{Now, SubmitKey};

use crate::{Accepted, Engine, EngineError, deciding::inbox::NewTask};

/// The parameters of a rerun.
#[derive(Debug, Clone)]
pub struct Rerun {
    /// Index of the step to start at; `None` = the first one that was not completed or was rolled back.
    pub from: Option<usize>,
    /// Parameters that override those of the old task.
    pub params: Option<Json>,
    /// Start it even if a task with the same unique key exists; the history records that.
    pub overrides_unique: bool,
    /// Idempotency key.
    pub key: Option<SubmitKey>,
    /// As in [`Submission`](crate::Submission).
    pub fingerprint_before: Option<[u8; 32]>,
    /// The requester.
    pub by: Option<Actor>,
    /// W3C trace context of the request.
    pub traceparent: Option<Box<str>>,
}

/// Why a task cannot be rerun as requested. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RerunRefusal {
    /// Two tasks would do the same work at the same time.
    #[error("the task has not ended: wait for its end, or cancel it first")]
    NotEnded,
    /// Every step is completed and no start is given.
    #[error("every step of the task is done: use `from` to name the step to begin at")]
    AllDone,
    /// The step runs only when a task fails.
    #[error("step \"{0}\" is done only when a task fails: a task cannot begin at it")]
    NoPlainStep(String),
    /// The step was rolled back, so there is no result to take over.
    #[error(
        "step \"{0}\" was rolled back, so its result cannot be taken over: begin at it, or at one before it"
    )]
    Undone(String),
}

impl Engine {
    /// Accepts a rerun of a task. Completed steps are taken over with their results, except `from` and the steps after
    /// it. All other steps run, whether they come after `from` or not.
    ///
    /// # Errors
    /// When it is refused; nothing was accepted then.
    pub async fn rerun(&self, id: TaskId, rerun: Rerun, now: Now) -> Result<Accepted, EngineError> {
        if self.inbox.is_full() {
            return Err(EngineError::Overloaded);
        }
        let old = self.task(id).await?.task;
        let done = taken_over(&old, rerun.from)?;
        let before = &old.input;
        let input = Input {
            labels: before.labels.clone(),
            priority: before.priority,
            deadline: before.deadline,
            rerun_of: Some(id),
            by: rerun.by,
            traceparent: rerun.traceparent,
            ..Input::new(
                Json::merge([Some(&before.params), rerun.params.as_ref()].into_iter().flatten()),
                now.wall,
            )
        };
        let task = Task::new(self.ids.next(now.wall), old.flow.clone(), Arc::new(input));
        let overrides_unique = rerun.overrides_unique && task.flow.unique.is_some();
        let Rerun { key, fingerprint_before, .. } = rerun;
        let new = NewTask { done, overrides_unique, key, fingerprint_before, ..NewTask::new(task) };
        self.accept(None, vec![new]).await?.pop().unwrap_or(Err(EngineError::Conflict))
    }
}

/// The steps whose results a new run takes over.
fn taken_over(old: &Task, from: Option<usize>) -> Result<Vec<(usize, Option<Json>)>, RerunRefusal> {
    if !old.is_ended() {
        return Err(RerunRefusal::NotEnded);
    }
    let flow = &old.flow;
    let name = |step: usize| flow.steps[step].name.to_string();
    let again = match from {
        Some(from) => {
            if flow.steps[from].role != Role::Plain {
                return Err(RerunRefusal::NoPlainStep(name(from)));
            }
            let is_after = |step: usize| step == from || flow.ancestors(step)[from];
            if let Some(undone) = flow.plain_steps().find(|step| !is_after(*step) && is_undone(old, *step)) {
                return Err(RerunRefusal::Undone(name(undone)));
            }
            again(flow, |step| step == from || !is_done(old, step))
        }
        // Steps that were not completed or were rolled back run again, on every branch of the flow.
        None => again(flow, |step| !is_done(old, step) || is_undone(old, step)),
    };
    if !flow.plain_steps().any(|step| again[step]) {
        return Err(RerunRefusal::AllDone);
    }
    let done = flow.plain_steps().filter(|step| !again[*step]);
    Ok(done.map(|step| (step, old.state.steps[step].forward.result.clone())).collect())
}

/// The steps that run again: those for which `begins` is true, and all steps after them.
fn again(flow: &Flow, begins: impl Fn(usize) -> bool) -> Vec<bool> {
    let steps = 0..flow.steps.len();
    let is_again = |step: usize| {
        let ancestors = flow.ancestors(step);
        begins(step) || steps.clone().any(|before| ancestors[before] && begins(before))
    };
    steps.clone().map(is_again).collect()
}

fn is_done(old: &Task, step: usize) -> bool {
    old.state.steps[step].forward.is_satisfied()
}

/// Whether the step was rolled back, by a rollback or by hand, or may have been in part.
fn is_undone(old: &Task, step: usize) -> bool {
    let undo = &old.state.steps[step].undo;
    undo.attempt > 0 || undo.state == ActState::Succeeded
}

//! From the engine's tasks to the documents users see.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::value::RawValue;
use windlass_api as api;
use windlass_core::{
    Act, ActKey, ActState, Action, Awaited, Ending, Json, LockName, Parent, QueueState, ResolutionKind, Role,
    StepStatus, Task, TaskStatus, Timestamp, act_status, choices, step_status, task_status,
};
use windlass_engine::{Engine, Existing};
use windlass_store::{Claim, Loaded, SessionId};

use crate::http::{App, answer::problem::Refused, tasks::members};

/// What the store does not know of a task: who has its attempts, and how far these say they are.
pub(crate) struct Overlay<'a> {
    engine: &'a Engine,
    workers: BTreeMap<SessionId, String>,
}

impl<'a> Overlay<'a> {
    /// What is known of the workers that have attempts of `task`.
    pub(crate) async fn of(app: &'a App, task: &Loaded) -> Result<Self, Refused> {
        let mut workers = BTreeMap::new();
        if !task.claims.is_empty() {
            for state in app.engine.workers(app.now()).await? {
                workers.insert(state.session, worker_name(&state.worker.name, state.session));
            }
        }
        Ok(Self { engine: &app.engine, workers })
    }

    /// The worker that has an attempt.
    pub(in crate::http) fn worker(&self, claim: &Claim) -> String {
        self.workers.get(&claim.session).cloned().unwrap_or_else(|| claim.session.to_string())
    }

    /// How far the attempt that a worker has says it is.
    pub(in crate::http) fn progress(
        &self,
        task: &Task,
        key: ActKey,
        claim: Option<&Claim>,
    ) -> Option<api::Progress> {
        let progress = self.engine.progress(task.id, key, claim?.attempt)?;
        Some(self::progress(&progress))
    }
}

/// What a worker is called: a script may not say, and has the public id of its session then.
pub(crate) fn worker_name(name: &str, session: SessionId) -> String {
    if name.is_empty() { session.to_string() } else { name.to_owned() }
}

/// A task with its steps.
pub(crate) fn task(loaded: &Loaded, overlay: &Overlay<'_>) -> api::Task {
    let task = &loaded.task;
    let held = loaded.begun().map(|claim| claim.key).collect();
    let steps = (0..task.state.steps.len()).map(|index| step(loaded, &held, overlay, index)).collect();
    let result = task.is_ended().then(|| payload(&task.outcome()));
    api::Task { steps, result, ..summary(loaded) }
}

/// A task as lists have it: without steps and results.
pub(crate) fn summary(loaded: &Loaded) -> api::Task {
    api::Task { params: payload(&loaded.task.input.params), ..brief(loaded) }
}

/// The same without parameters, which may be large.
pub(in crate::http) fn brief(loaded: &Loaded) -> api::Task {
    let Task { id, flow, input, state } = &*loaded.task;
    api::Task {
        id: id.to_string(),
        flow: flow.name.to_string(),
        version: flow.version,
        status: status(task_status(&loaded.task, &loaded.held())),
        message: loaded.task.message(),
        stuck: stuck(&loaded.task),
        cursor: loaded.task.cursor(),
        params: payload(&Json::empty()),
        result: None,
        labels: input.labels.clone(),
        priority: input.priority,
        at: input.at.map(time),
        deadline_at: loaded.task.deadline_at().map(time),
        parent: input.parent.map(parent),
        rerun_of: input.rerun_of.map(|id| id.to_string()),
        unique: input.unique.as_deref().map(str::to_owned),
        exclusive: input.exclusive.as_ref().map(|queue| task_queue(queue, state.queue.state)),
        existing: None,
        created_at: time(input.created_at),
        started_at: started_at(loaded).map(time),
        ended_at: state.ended_at.map(time),
        steps: Vec::new(),
        current: Vec::new(),
    }
}

fn task_queue(queue: &LockName, state: QueueState) -> api::TaskQueue {
    let (state, fence) = match state {
        QueueState::Granted { fence } => (api::TaskQueueState::Granted, Some(fence)),
        QueueState::Waiting => (api::TaskQueueState::Waiting, None),
        QueueState::Out => (api::TaskQueueState::Out, None),
    };
    api::TaskQueue { queue: queue.to_string(), state, fence }
}

/// The exclusive queue that a task has, and its fencing token, for attempts.
pub(crate) fn exclusive(task: &Task) -> Option<api::AttemptLock> {
    task.queue_fence().map(|(queue, fence)| api::AttemptLock { name: queue.to_string(), fence })
}

/// Why an existing task is returned.
pub(in crate::http) fn existing(existing: Existing) -> api::Existing {
    match existing {
        Existing::IdempotencyKey => api::Existing::IdempotencyKey,
        Existing::Unique => api::Existing::Unique,
    }
}

/// What a task waits for an operator for.
fn stuck(task: &Task) -> Option<api::Stuck> {
    let stuck = task.state.stuck.as_ref()?;
    let step = stuck.step.map(|step| task.flow.steps[step].name.to_string());
    // What the engine holds because of a fault is resumed: there is nothing to decide of a step.
    let choices = if step.is_some() { choices(task) } else { &[] };
    let choices = choices.iter().copied().map(resolve_action).collect();
    Some(api::Stuck { kind: stuck.kind.as_str().to_owned(), step, choices })
}

/// What may be decided of a step, as it is asked for.
pub(in crate::http) fn resolve_action(kind: ResolutionKind) -> api::ResolveAction {
    match kind {
        ResolutionKind::Retry => api::ResolveAction::Retry,
        ResolutionKind::Skip => api::ResolveAction::Skip,
        ResolutionKind::Done => api::ResolveAction::Done,
        ResolutionKind::Rollback => api::ResolveAction::Rollback,
    }
}

fn parent(parent: Parent) -> api::ParentStep {
    api::ParentStep { task: parent.task.to_string(), step: parent.key.step, member: parent.key.index() }
}

fn step(loaded: &Loaded, held: &BTreeSet<ActKey>, overlay: &Overlay<'_>, index: usize) -> api::Step {
    let task = &loaded.task;
    let definition = &task.flow.steps[index];
    // The step for errors runs during rollback.
    let key = match definition.role {
        Role::Plain => ActKey::forward(index),
        Role::OnError => ActKey::rollback(index),
    };
    let act = task.state.steps[index].act(key.direction);
    let claim = claim_of(loaded, key);
    let started_at = act.started_at.or(claim.map(|claim| claim.at)).or_else(|| members_begun(loaded, index));
    api::Step {
        name: definition.name.to_string(),
        status: act_word(step_status(task, index, held)),
        run: run(&definition.run),
        message: act.trouble().map(|failure| failure.message.to_string()),
        code: act.trouble().map(|failure| failure.code),
        attempts: attempts(act, held.contains(&key)),
        result: act.result.as_ref().map(payload),
        started_at: started_at.map(time),
        ended_at: act.ended_at.map(time),
        due_at: due_at(act).map(time),
        waits_for: waits_for(act, &definition.run),
        child: act.child().map(|child| child.to_string()),
        members: members::counts(loaded, index),
        worker: claim.map(|claim| overlay.worker(claim)),
        progress: overlay.progress(task, key, claim),
        rollback: definition
            .rollback
            .as_ref()
            .map(|action| rollback(loaded, overlay, ActKey::rollback(index), action)),
    }
}

/// When the first member of a fanned-out step was handed out: the step as a whole never is. Members begin in their
/// order, so it is that of the first one.
fn members_begun(loaded: &Loaded, step: usize) -> Option<Timestamp> {
    let members = loaded.task.state.steps[step].members.as_ref()?;
    let claim = claim_of(loaded, ActKey::forward(step).of_member(1));
    members.get(1).and_then(|first| first.forward.started_at).or(claim.map(|claim| claim.at))
}

/// The rollback of a step or of one of its items.
pub(in crate::http) fn rollback(
    loaded: &Loaded,
    overlay: &Overlay<'_>,
    key: ActKey,
    action: &Action,
) -> api::StepRollback {
    let idle = Act::default();
    let act = loaded.task.act(key).unwrap_or(&idle);
    let claim = claim_of(loaded, key);
    api::StepRollback {
        status: act_word(act_status(act, claim.is_some())),
        run: run(action),
        message: act.trouble().map(|failure| failure.message.to_string()),
        attempts: attempts(act, claim.is_some()),
        result: act.result.as_ref().map(payload),
        started_at: act.started_at.or(claim.map(|claim| claim.at)).map(time),
        ended_at: act.ended_at.map(time),
        due_at: due_at(act).map(time),
        waits_for: waits_for(act, action),
        worker: claim.map(|claim| overlay.worker(claim)),
    }
}

/// How many attempts were made, the current one included once a worker has it.
pub(in crate::http) fn attempts(act: &Act, has_worker: bool) -> u32 {
    let waits = match act.state {
        ActState::Ready | ActState::Parked => !has_worker,
        ActState::Awaiting(Awaited::Signal | Awaited::Lock) => true,
        // It was withdrawn before anybody had it.
        ActState::Idle => act.started_at.is_none(),
        _ => false,
    };
    act.attempt.saturating_sub(waits.into())
}

/// What an act waits for that is neither a worker nor a time.
pub(in crate::http) fn waits_for(act: &Act, action: &Action) -> Option<String> {
    match act.state {
        ActState::Awaiting(Awaited::Signal) => Some(action.doer.to_string()),
        ActState::Awaiting(Awaited::Child) => act.child().map(|child| format!("task {child}")),
        ActState::Awaiting(Awaited::Lock) => {
            let lock = act.locks().iter().find(|lock| lock.fence.is_none())?;
            Some(format!("lock {}", lock.name))
        }
        _ => None,
    }
}

pub(in crate::http) fn claim_of(loaded: &Loaded, key: ActKey) -> Option<&Claim> {
    loaded.begun().find(|claim| claim.key == key)
}

pub(in crate::http) fn due_at(act: &Act) -> Option<Timestamp> {
    match act.state {
        ActState::Delayed { until } => Some(until),
        _ => None,
    }
}

/// `MODULE.COMMAND` of an action, or what stands in its place.
pub(crate) fn run(action: &Action) -> String {
    action.doer.to_string()
}

/// A payload, unchanged.
pub(crate) fn payload(json: &Json) -> api::Payload {
    // A `Json` was checked when it was made, so there is always a value to be found in it.
    RawValue::from_string(json.as_str().to_owned()).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// When the first attempt of a task began, also one whose start is not on disk yet.
pub(crate) fn started_at(loaded: &Loaded) -> Option<Timestamp> {
    loaded.task.state.started_at.or_else(|| loaded.begun().map(|claim| claim.at).min())
}

/// A point in time.
pub(crate) fn time(at: Timestamp) -> jiff::Timestamp {
    let limit = if at.0 < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
    jiff::Timestamp::from_millisecond(at.0).unwrap_or(limit)
}

/// How far an attempt says it is.
pub(crate) fn progress(progress: &windlass_engine::Progress) -> api::Progress {
    api::Progress { value: progress.value, message: progress.message.as_deref().map(str::to_owned) }
}

/// Forward or rollback.
pub(crate) fn direction(direction: windlass_core::Direction) -> api::Direction {
    match direction {
        windlass_core::Direction::Forward => api::Direction::Forward,
        windlass_core::Direction::Rollback => api::Direction::Rollback,
    }
}

/// The status of a task.
/// The word for the end of a task.
pub(crate) fn ending(ending: Ending) -> &'static str {
    match ending {
        Ending::Succeeded => "succeeded",
        Ending::RolledBack => "rolled_back",
        Ending::Failed => "failed",
        Ending::Cancelled => "cancelled",
    }
}

pub(crate) fn status(status: TaskStatus) -> api::TaskStatus {
    match status {
        TaskStatus::Scheduled => api::TaskStatus::Scheduled,
        TaskStatus::Pending => api::TaskStatus::Pending,
        TaskStatus::Running => api::TaskStatus::Running,
        TaskStatus::Pausing => api::TaskStatus::Pausing,
        TaskStatus::Paused => api::TaskStatus::Paused,
        TaskStatus::RollingBack => api::TaskStatus::RollingBack,
        TaskStatus::Succeeded => api::TaskStatus::Succeeded,
        TaskStatus::RolledBack => api::TaskStatus::RolledBack,
        TaskStatus::Failed => api::TaskStatus::Failed,
        TaskStatus::Cancelled => api::TaskStatus::Cancelled,
        TaskStatus::Stuck => api::TaskStatus::Stuck,
    }
}

/// The status of a task, as the engine has it.
pub(in crate::http) fn core_status(status: api::TaskStatus) -> TaskStatus {
    match status {
        api::TaskStatus::Scheduled => TaskStatus::Scheduled,
        api::TaskStatus::Pending => TaskStatus::Pending,
        api::TaskStatus::Running => TaskStatus::Running,
        api::TaskStatus::Pausing => TaskStatus::Pausing,
        api::TaskStatus::Paused => TaskStatus::Paused,
        api::TaskStatus::RollingBack => TaskStatus::RollingBack,
        api::TaskStatus::Succeeded => TaskStatus::Succeeded,
        api::TaskStatus::RolledBack => TaskStatus::RolledBack,
        api::TaskStatus::Failed => TaskStatus::Failed,
        api::TaskStatus::Cancelled => TaskStatus::Cancelled,
        api::TaskStatus::Stuck => TaskStatus::Stuck,
    }
}

pub(in crate::http) fn act_word(status: StepStatus) -> api::StepStatus {
    match status {
        StepStatus::Pending => api::StepStatus::Pending,
        StepStatus::Ready => api::StepStatus::Ready,
        StepStatus::Running => api::StepStatus::Running,
        StepStatus::Succeeded => api::StepStatus::Succeeded,
        StepStatus::Failed => api::StepStatus::Failed,
        StepStatus::Skipped => api::StepStatus::Skipped,
        StepStatus::RollingBack => api::StepStatus::RollingBack,
        StepStatus::RolledBack => api::StepStatus::RolledBack,
        StepStatus::RollbackFailed => api::StepStatus::RollbackFailed,
    }
}

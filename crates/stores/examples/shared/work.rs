//! What all examples work on: a flow of steps in a line, tasks of it, and the changes that the engine makes of commands.

use std::{error::Error, sync::Arc};

use windlass_core::{
    Action, Command, Context, Effect, Event, EventKind, Flow, Input, Json, Millis, Name, Rejection, Retry,
    StepDefinition, Task, TaskId, Timestamp, apply,
};
use windlass_store::TaskChange;

/// This number of steps one after the other; each can be rolled back.
pub(crate) fn flow(steps: usize, retry: Retry) -> Result<Arc<Flow>, Box<dyn Error>> {
    let action = |command: &str| -> Result<Action, Box<dyn Error>> {
        let doer = Action::of_worker(Name::new("bench")?, Name::new(command)?);
        Ok(Action { timeout: Millis::from_secs(60), retry, ..doer })
    };
    let step = |index: usize| -> Result<StepDefinition, Box<dyn Error>> {
        let (name, after) =
            (Name::new(&format!("step-{index}"))?, index.checked_sub(1).into_iter().collect());
        let rollback = Some(action("undo")?);
        Ok(StepDefinition { rollback, ..StepDefinition::new(name, action("do")?, after) })
    };
    let steps = (0..steps).map(step).collect::<Result<_, _>>()?;
    Ok(Arc::new(Flow::new(Name::new("line")?, steps)))
}

/// An id as the engine makes them: the time, then a counter.
pub(crate) fn id(time: Timestamp, counter: usize) -> TaskId {
    TaskId(u128::try_from(time.0).unwrap_or(0) << 80 | 7 << 76 | 2 << 62 | (counter as u128) << 32)
}

/// A task that was not accepted yet, to start at once or at a time.
pub(crate) fn task(flow: &Arc<Flow>, id: TaskId, created_at: Timestamp, at: Option<Timestamp>) -> Task {
    let params = Json::from_stored(r#"{"name":"instance-1","size":"small","disk_gb":20,"region":"north"}"#);
    let input = Input { at, ..Input::new(params, created_at) };
    Task::new(id, flow.clone(), input.into())
}

/// What is committed of a command, as the engine's committer makes it.
pub(crate) fn change(
    task: &Task,
    command: &Command,
    context: &Context,
    generation: u64,
) -> Result<TaskChange, Rejection> {
    let transition = apply(task, command, context)?;
    let result = |event: &Event| match &event.kind {
        EventKind::ActSucceeded { key, result: Some(result), .. } => Some((*key, result.clone())),
        _ => None,
    };
    Ok(TaskChange {
        before: task.state.events,
        generation,
        results: transition.events.iter().filter_map(result).collect(),
        task: Arc::new(transition.task),
        events: transition.events,
        waits: transition.effects.into_iter().filter(|effect| !matches!(effect, Effect::Send(_))).collect(),
        messages: Vec::new(),
        logs: Vec::new(),
        journal: Vec::new(),
        submit_key: None,
        consumes: None,
        lost: Vec::new(),
        reported: Vec::new(),
        offered: Vec::new(),
        handed_out: Vec::new(),
        announces: false,
        fence: None,
    })
}

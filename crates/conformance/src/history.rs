//! Changes made by the real rules, as the engine makes them.

use std::sync::Arc;

use windlass_core::{
    Action, Command, Context, Effect, EventKind, Flow, Input, Json, Millis, Name, Rejection, StepDefinition,
    Task, TaskId, Timestamp, Transition, apply,
};

use windlass_store::{Envelope, Loaded, MessageId, TaskChange};

/// A name that is known to be valid.
///
/// # Panics
/// When it is invalid.
pub(crate) fn name(text: &str) -> Name {
    Name::new(text).expect("names in the suite are names")
}

/// A payload that is known to be valid.
///
/// # Panics
/// When it is invalid.
pub(crate) fn json(text: &str) -> Json {
    Json::parse(text).expect("payloads in the suite are payloads")
}

/// A flow of `steps` steps, one after the other, each run by `work.do` and rolled back by `work.undo`, within a minute
/// and without retries.
pub(crate) fn line(flow: &str, steps: usize) -> Flow {
    let action = |command: &str| Action {
        timeout: Millis::from_secs(60),
        ..Action::of_worker(name("work"), name(command))
    };
    let step = |index: usize| StepDefinition {
        rollback: Some(action("undo")),
        ..StepDefinition::new(
            name(&format!("step{index}")),
            action("do"),
            index.checked_sub(1).into_iter().collect(),
        )
    };
    Flow::new(name(flow), (0..steps).map(step).collect())
}

/// The default input.
pub(crate) fn input(now: Timestamp) -> Input {
    Input::new(Json::empty(), now)
}

/// The change that accepts a new task.
///
/// # Panics
/// When the rules refuse it.
pub(crate) fn accept(id: TaskId, flow: Arc<Flow>, input: Input) -> TaskChange {
    let at = Context::at(input.created_at);
    let before = Task::new(id, flow, Arc::new(input));
    let transition =
        apply(&before, &Command::Accept { done: Vec::new(), overrides_unique: false, by: None }, &at)
            .expect("a new task is accepted");
    change(&before, transition)
}

/// The change that `command` makes of the loaded task, or why it is refused.
pub(crate) fn decide(loaded: &Loaded, command: &Command, now: Timestamp) -> Result<TaskChange, Rejection> {
    let transition = apply(&loaded.task, command, &loaded.context(now))?;
    let offered = loaded.offered().map(|claim| (claim.key, claim.number)).collect();
    let handed_out = loaded.handed_out.iter().copied().collect();
    Ok(TaskChange { generation: loaded.generation, offered, handed_out, ..change(&loaded.task, transition) })
}

fn change(before: &Task, transition: Transition) -> TaskChange {
    let Transition { task, events, effects, .. } = transition;
    let before = before.state.events;
    let mut change = TaskChange {
        before,
        generation: 0,
        task: Arc::new(task),
        waits: Vec::new(),
        results: Vec::new(),
        logs: Vec::new(),
        journal: Vec::new(),
        messages: Vec::new(),
        submit_key: None,
        consumes: None,
        lost: Vec::new(),
        reported: Vec::new(),
        offered: Vec::new(),
        handed_out: Vec::new(),
        announces: false,
        fence: None,
        events,
    };
    for event in &change.events {
        if let EventKind::ActSucceeded { key, result: Some(result), .. }
        | EventKind::ActResolved { key, result: Some(result), .. } = &event.kind
        {
            change.results.push((*key, result.clone()));
        }
    }
    for effect in effects {
        match effect {
            Effect::Send(message) => {
                let id = MessageId::of_task(change.task.id, before + 1, change.messages.len());
                change.messages.push(Envelope { id, message });
            }
            wait => change.waits.push(wait),
        }
    }
    change
}

//! The only entry point: the rules applied to a task and a command.

use crate::{
    Command, Context, Effect, EvaluationBudget, Event, Rejection, Task, effects,
    planted::{Bug, is_planted},
    rules,
    transition::{draft::Draft, invariants},
};

/// The result of a command.
#[derive(Debug, Clone, PartialEq)]
pub struct Transition {
    /// The task afterwards.
    pub task: Task,
    /// The new events, in order. Empty if there was nothing to do.
    pub events: Vec<Event>,
    /// The effects to perform once the events are on disk.
    pub effects: Vec<Effect>,
    /// The number of steps that evaluating expressions took.
    pub evaluation_steps: u64,
}

/// Applies `command` to `task`.
///
/// A repeated command whose work is done gives a transition without events.
///
/// # Errors
/// When the command cannot be applied; nothing has changed then.
///
/// # Panics
/// In debug builds when a rule breaks an invariant; release builds return [`Rejection::Fault`].
pub fn apply(task: &Task, command: &Command, context: &Context) -> Result<Transition, Rejection> {
    let evaluation = EvaluationBudget::default();
    let mut draft = Draft { task: task.clone(), events: Vec::new(), context, evaluation };
    rules::run(&mut draft, command)?;
    let Draft { task: next, events, evaluation, .. } = draft;
    if let Err(broken) = invariants::check(task, &next, &events)
        && !is_planted_in_rules()
    {
        debug_assert!(
            false,
            "invariant broken by {command:?}: {broken}\nbefore: {task:#?}\nafter: {next:#?}"
        );
        return Err(Rejection::Fault(broken));
    }
    let effects = effects(task, &next, &events);
    Ok(Transition { task: next, events, effects, evaluation_steps: evaluation.spent() })
}

/// A planted bug that the invariants would catch is left to the simulator.
fn is_planted_in_rules() -> bool {
    [
        Bug::RollbackForward,
        Bug::UndoneInFlight,
        Bug::ResultTwice,
        Bug::FailedStepNotUndone,
        Bug::JoinEarly,
        Bug::MemberForgotten,
        Bug::PartialIgnored,
        Bug::MembersMiscounted,
    ]
    .into_iter()
    .any(is_planted)
}

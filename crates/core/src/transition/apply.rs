//! The one way in: a task, a command, and what the rules make of them.

use crate::{
    Command, Context, Effect, EvaluationBudget, Event, Rejection, Task, effects,
    planted::{Bug, is_planted},
    rules,
    transition::{draft::Draft, invariants},
};

/// What a command did to a task.
#[derive(Debug, Clone, PartialEq)]
pub struct Transition {
    /// The task afterwards.
    pub task: Task,
    /// What happened, in order. Empty when there was nothing to do.
    pub events: Vec<Event>,
    /// What is to be done about it, once it is on disk.
    pub effects: Vec<Effect>,
    /// How many steps the expressions took that were evaluated.
    pub evaluation_steps: u64,
}

/// Applies `command` to `task`.
///
/// A repeated command that finds its work done gives a transition without events.
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

/// A bug that the invariants would refuse is left to the simulator.
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

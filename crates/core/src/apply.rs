//! The one way in: a task, a command, and what the rules make of them.

use std::collections::BTreeSet;

use crate::{
    ActKey, Command, Effect, Event, EventKind, Rejection, Task, Timestamp, effects, evolve, invariants, rules,
};

/// What the rules may know beside the task.
#[derive(Debug, Clone, Default)]
pub struct Context {
    /// Now, by the store's clock.
    pub now: Timestamp,
    /// Acts whose current attempt a worker has.
    pub held: BTreeSet<ActKey>,
    /// Acts whose current attempt a worker may have had, now or before; it includes `held`.
    pub handed_out: BTreeSet<ActKey>,
}

impl Context {
    /// Nothing is with a worker.
    #[must_use]
    pub fn at(now: Timestamp) -> Self {
        Self { now, ..Self::default() }
    }
}

/// What a command did to a task.
#[derive(Debug, Clone, PartialEq)]
pub struct Transition {
    /// The task afterwards.
    pub task: Task,
    /// What happened, in order. Empty when there was nothing to do.
    pub events: Vec<Event>,
    /// What is to be done about it, once it is on disk.
    pub effects: Vec<Effect>,
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
    let mut draft = Draft { task: task.clone(), events: Vec::new(), context };
    rules::run(&mut draft, command)?;
    let Draft { task: next, events, .. } = draft;
    if let Err(broken) = invariants::check(task, &next, &events) {
        debug_assert!(
            false,
            "invariant broken by {command:?}: {broken}\nbefore: {task:#?}\nafter: {next:#?}"
        );
        return Err(Rejection::Fault(broken));
    }
    let effects = effects(task, &next, &events);
    Ok(Transition { task: next, events, effects })
}

/// A transition in the making. Rules read the task as it is by now and append events; nothing else changes it.
pub(crate) struct Draft<'a> {
    pub(crate) task: Task,
    pub(crate) events: Vec<Event>,
    pub(crate) context: &'a Context,
}

impl Draft<'_> {
    /// Something happened now.
    pub(crate) fn emit(&mut self, kind: EventKind) {
        self.emit_at(self.context.now, kind);
    }

    /// Something happened at `at`.
    pub(crate) fn emit_at(&mut self, at: Timestamp, kind: EventKind) {
        let event = Event { at, kind };
        evolve(&mut self.task, &event);
        self.events.push(event);
    }

    /// Whether a worker has the act's current attempt.
    pub(crate) fn is_held(&self, key: ActKey) -> bool {
        self.context.held.contains(&key)
    }
}

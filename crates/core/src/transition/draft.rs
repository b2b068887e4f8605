//! A transition under construction.

use crate::{ActKey, Context, EvaluationBudget, Event, EventKind, Task, Timestamp, transition::evolve};

/// A transition under construction. Rules read the current task and append events; nothing else changes the task.
pub(crate) struct Draft<'a> {
    pub(crate) task: Task,
    pub(crate) events: Vec<Event>,
    pub(crate) context: &'a Context,
    /// The remaining budget for evaluating expressions.
    pub(crate) evaluation: EvaluationBudget,
}

impl Draft<'_> {
    /// Appends an event with the current time.
    pub(crate) fn emit(&mut self, kind: EventKind) {
        self.emit_at(self.context.now, kind);
    }

    /// Appends an event with the time `at`.
    pub(crate) fn emit_at(&mut self, at: Timestamp, kind: EventKind) {
        let event = Event { at, kind };
        evolve(&mut self.task, &event);
        self.events.push(event);
    }

    /// Whether the execution's current attempt is claimed.
    pub(crate) fn is_held(&self, key: ActKey) -> bool {
        self.context.held.contains_key(&key)
    }

    /// When the execution's current attempt was claimed, if known.
    pub(crate) fn claimed_at(&self, key: ActKey) -> Option<Timestamp> {
        self.context.held.get(&key).copied().flatten()
    }

    /// Whether the execution's current attempt is run by a module that reports over a broker only.
    pub(crate) fn is_afar(&self, key: ActKey) -> bool {
        self.context.afar.contains(&key)
    }

    /// Whether the execution's current attempt is offered on a broker, and no worker has taken it.
    pub(crate) fn is_offered(&self, key: ActKey) -> bool {
        self.context.offered.contains(&key)
    }
}

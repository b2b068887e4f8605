//! A transition in the making.

use crate::{ActKey, Context, EvaluationBudget, Event, EventKind, Task, Timestamp, transition::evolve};

/// A transition in the making. Rules read the task as it is by now and append events; nothing else changes it.
pub(crate) struct Draft<'a> {
    pub(crate) task: Task,
    pub(crate) events: Vec<Event>,
    pub(crate) context: &'a Context,
    /// What evaluating expressions may still take.
    pub(crate) evaluation: EvaluationBudget,
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
        self.context.held.contains_key(&key)
    }

    /// When the act's current attempt was claimed, where that is known.
    pub(crate) fn claimed_at(&self, key: ActKey) -> Option<Timestamp> {
        self.context.held.get(&key).copied().flatten()
    }

    /// Whether the act's current attempt runs where the engine only hears of it by results on a broker.
    pub(crate) fn is_afar(&self, key: ActKey) -> bool {
        self.context.afar.contains(&key)
    }

    /// Whether the act's current attempt is offered on a broker, and nobody has taken it.
    pub(crate) fn is_offered(&self, key: ActKey) -> bool {
        self.context.offered.contains(&key)
    }
}

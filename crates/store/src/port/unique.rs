//! Unique tasks: the first of equal tasks is accepted, and later ones are deduplicated to it.

use windlass_core::{
    During, EventKind, Name, Parent, Phase, Task,
    planted::{Bug, is_planted},
};

use super::TaskChange;

/// What tasks of a flow have in common that are the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UniqueKey {
    /// The flow, in whatever version.
    pub flow: Name,
    /// The value of its `unique` key for what was submitted.
    pub key: Box<str>,
}

impl UniqueKey {
    /// The key of a task, where its flow has one.
    #[must_use]
    pub fn of(task: &Task) -> Option<Self> {
        task.flow.unique.as_ref()?;
        let key = task.input.unique.clone()?;
        Some(Self { flow: task.flow.name.clone(), key })
    }
}

impl TaskChange {
    /// For a new task: what it has in common with those that are the same.
    #[must_use]
    pub fn unique(&self) -> Option<UniqueKey> {
        if self.before == 0 { UniqueKey::of(&self.task) } else { None }
    }

    /// For a new task: whether an operator started it although another one may have its unique key.
    fn overrides_unique(&self) -> bool {
        self.events.iter().any(|event| matches!(event.kind, EventKind::UniqueOverridden { .. }))
    }

    /// Whether `first`, which has the same key, replaces the new task. `is_held` says that a session has an attempt
    /// of it.
    #[must_use]
    pub fn is_stood_for_by(&self, first: &Task, is_held: bool) -> bool {
        let Some(unique) = self.task.flow.unique.as_ref().filter(|_| !is_planted(Bug::UniqueIgnored)) else {
            return false;
        };
        if self.overrides_unique() || (first.is_ended() && is_next_run(&self.task, first)) {
            return false;
        }
        match unique.during {
            During::Pending => {
                let has_begun = is_held || first.state.started_at.is_some();
                !has_begun && matches!(first.state.phase, Phase::Scheduled | Phase::Forward)
            }
            During::Running => !first.is_ended(),
            During::Finished(_) if is_planted(Bug::UniqueForever) => true,
            During::Finished(span) => {
                first.state.ended_at.is_none_or(|ended_at| ended_at + span > self.task.input.created_at)
            }
        }
    }
}

/// Whether `task` does the work of `ended` again: as its rerun, or as the next attempt of the step that started it. An
/// ended task does not prevent that, however long it prevents others.
fn is_next_run(task: &Task, ended: &Task) -> bool {
    let act = |parent: Parent| (parent.task, parent.key);
    let parent = task.input.parent.map(act);
    task.input.rerun_of == Some(ended.id) || (parent.is_some() && parent == ended.input.parent.map(act))
}

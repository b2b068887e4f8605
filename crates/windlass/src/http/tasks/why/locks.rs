//! Sentences about locks and who has them.

use serde_json::{Value, json};
use windlass_core::{ActKey, Direction, Name, TaskId, Timestamp};
use windlass_engine::HeldBy;

use super::sentences::{About, Explained, span};
use crate::http::tasks::view;

impl About<'_> {
    pub(super) fn lock(
        self,
        name: &Name,
        holder: Option<&HeldBy>,
        before: usize,
        since: Option<Timestamp>,
    ) -> Explained {
        let others = match before {
            0 => String::new(),
            1 => "; another one waits before it".to_owned(),
            n => format!("; {n} others wait before it"),
        };
        let sentence = match holder {
            Some(holder) if holder.key == ActKey::LEADER => format!(
                "{} waits for the lock {name}, which a process has that leads under it{others}: `windlass lock show {name}` \
                 names the process.",
                self.opening()
            ),
            Some(holder) if holder.task == TaskId::NONE => format!(
                "{} waits for the lock {name}, which is closed because its row in the store was damaged{others}. The alarm \
                 damaged_row.lock.{name} says what to do.",
                self.opening()
            ),
            Some(holder) => format!(
                "{} waits for the lock {name}, held by {}{others}.",
                self.opening(),
                self.held_by(holder)
            ),
            None => format!("{} is about to be given the lock {name}.", self.opening()),
        };
        (
            sentence,
            json!({
                "lock": name.as_str(), "holder": holder.map(holder_document), "before": before,
                "since": since.map(view::time),
            }),
        )
    }

    /// The wait of a task for its exclusive queue.
    pub(super) fn exclusive(
        self,
        queue: &Name,
        holder: Option<&HeldBy>,
        before: usize,
        since: Option<Timestamp>,
    ) -> Explained {
        let position = before + 1;
        let sentence = match holder {
            Some(holder) if holder.key == ActKey::LEADER => format!(
                "The task is number {position} in the exclusive queue {queue}, which a process has that leads under it: \
                 `windlass lock show {queue}` names the process."
            ),
            Some(holder) if holder.task == TaskId::NONE => format!(
                "The task is number {position} in the exclusive queue {queue}, which is closed because its row in the \
                 store was damaged. The alarm damaged_row.lock.{queue} says what to do."
            ),
            Some(holder) => format!(
                "The task is number {position} in the exclusive queue {queue}, which {} has.",
                self.held_by(holder)
            ),
            None => format!("The task is about to get the exclusive queue {queue}."),
        };
        (
            sentence,
            json!({
                "queue": queue.as_str(), "holder": holder.map(holder_document), "position": position,
                "since": since.map(view::time),
            }),
        )
    }

    /// `step init of task 0199… for 3s`.
    fn held_by(self, holder: &HeldBy) -> String {
        let about = holder.key.index().map(|index| format!("[{index}]")).unwrap_or_default();
        let rollback = if holder.key.direction == Direction::Rollback { "the rollback of " } else { "" };
        let step = holder.step.as_ref().map(|step| format!("{rollback}step {step}{about} of "));
        format!("{}task {} for {}", step.unwrap_or_default(), holder.task, span(self.now, holder.since))
    }
}

/// The facts of a holder.
fn holder_document(holder: &HeldBy) -> Value {
    json!({
        "task": holder.task.to_string(),
        "step": holder.step.as_ref().map(|step| step.as_str()),
        "member": holder.key.index(),
        "direction": view::direction(holder.key.direction),
        "since": view::time(holder.since),
    })
}

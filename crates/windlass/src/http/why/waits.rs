//! Sentences about what else is waited for: people, other tasks, members.

use serde_json::{Value, json};
use windlass_core::{Name, TaskId, TaskStatus, Timestamp};
use windlass_engine::Reason;

use super::sentences::{About, Explained, span};
use crate::http::view;

impl About<'_> {
    pub(super) fn signal(self, name: &Name, since: Option<Timestamp>, until: Option<Timestamp>) -> Explained {
        let waited = since.map(|since| format!(" has waited for {}", span(self.now, since)));
        let waited = waited.unwrap_or_else(|| " waits".to_owned());
        let limit = until.map(|until| format!("; it may come within {}", span(until, self.now)));
        (
            format!(
                "{}{waited} for the signal {name}: `windlass task signal {} {name}` sends it{}.",
                self.opening(),
                self.task.id,
                limit.unwrap_or_default()
            ),
            json!({ "signal": name.as_str(), "since": since.map(view::time), "until": until.map(view::time) }),
        )
    }

    pub(super) fn child(self, child: Option<TaskId>, status: Option<TaskStatus>) -> Explained {
        let word = status.map(|status| view::status(status).as_str());
        let sentence = match (child, word) {
            (Some(child), Some(word)) => format!(
                "{} waits for the task {child}, which is {word}: `windlass task why {child}` tells more.",
                self.opening()
            ),
            _ => format!("{} is starting its task.", self.opening()),
        };
        (sentence, json!({ "task": child.map(|child| child.to_string()), "status": word }))
    }

    /// Of a fanned-out step: how many members there are, are done, have failed, are under way.
    pub(super) fn members(
        self,
        [total, done, failed, under_way]: [u32; 4],
        first: Option<&Reason>,
    ) -> Explained {
        let failed_too = if failed == 0 { String::new() } else { format!(", {failed} failed") };
        let first = first.map(|reason| {
            let about = About { key: reason.key, ..self };
            (reason, about.explain(&reason.why))
        });
        let about_first = first.as_ref().map(|(_, (sentence, _))| format!(" The first of them: {sentence}"));
        let first: Option<Value> = first.map(|(reason, (sentence, data))| {
            let member = reason.key.and_then(windlass_core::ActKey::index);
            json!({ "member": member, "reason": reason.why.as_str(), "sentence": sentence, "data": data })
        });
        (
            format!(
                "Of {}, {done} of {total} members are done{failed_too}, {under_way} under way.{}",
                self.subject(),
                about_first.unwrap_or_default()
            ),
            json!({
                "members": total, "done": done, "failed": failed, "under_way": under_way, "first": first,
            }),
        )
    }
}

//! Sentences about what else is waited for: people, other tasks, members.

use serde_json::{Value, json};
use windlass_core::{Name, TaskId, Timestamp};
use windlass_engine::{ChildReason, Reason};

use super::sentences::{About, Explained, span};
use crate::http::tasks::view;

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

    /// The task that the step started, and why that is where it is.
    pub(super) fn child(self, task: Option<TaskId>, child: Option<&ChildReason>) -> Explained {
        let Some(ChildReason { task: child, status, reason }) = child else {
            let data = json!({ "task": task.map(|task| task.to_string()), "status": Value::Null });
            return (format!("{} is starting its task.", self.opening()), data);
        };
        let word = view::status(*status).as_str();
        let about = About { task: child, key: reason.key, now: self.now };
        let (its_sentence, its_data) = about.explain_with_device(reason);
        let step = reason.key.and_then(|key| child.flow.steps.get(key.step)).map(|step| step.name.as_str());
        (
            format!(
                "{} waits for task {} (flow {}), which is {word}: {its_sentence}",
                self.opening(),
                child.id,
                child.flow.name
            ),
            json!({
                "task": child.id.to_string(), "flow": child.flow.name.as_str(), "status": word,
                "because": {
                    "reason": reason.why.as_str(), "step": step, "sentence": its_sentence, "data": its_data,
                },
            }),
        )
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
            (reason, about.explain_with_device(reason))
        });
        let about_first = first.as_ref().map(|(_, (sentence, _))| format!(" The first of them: {sentence}"));
        let first: Option<Value> = first.map(|(reason, (sentence, data))| {
            let member = reason.key.and_then(windlass_core::ActKey::index);
            json!({ "member": member, "reason": reason.why.as_str(), "sentence": sentence, "data": data })
        });
        (
            format!(
                "Of {}, {done} of {total} items are done{failed_too}, {under_way} under way.{}",
                self.subject(),
                about_first.unwrap_or_default()
            ),
            json!({
                "members": total, "done": done, "failed": failed, "under_way": under_way, "first": first,
            }),
        )
    }
}

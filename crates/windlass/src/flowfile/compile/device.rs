//! Compiles the job of a device: the lock that the device is, and what is published to it.

use windlass_api::{ActionSettings, LockDocument, StepDocument, WhileOffline};
use windlass_core::{DeviceJob, Expression, JobArgs, JobTopic, LockRef, Name, SETTLE_DEFAULT, device_lock};

use super::{Mistake, action, expression};

/// The keys of a job, of a step or of its rollback.
pub(super) struct Keys<'d> {
    pub(super) topic: &'d Option<LockDocument>,
    args: &'d Option<serde_json::Map<String, serde_json::Value>>,
    done: &'d Option<String>,
    offline: Option<WhileOffline>,
    settle: Option<windlass_api::Span>,
}

impl<'d> Keys<'d> {
    pub(super) fn of_step(document: &'d StepDocument) -> Self {
        let StepDocument { topic, args, done, offline, settle, .. } = document;
        Self { topic, args, done, offline: *offline, settle: *settle }
    }

    pub(super) fn of_action(document: &'d ActionSettings) -> Self {
        let ActionSettings { topic, args, done, offline, settle, .. } = document;
        Self { topic, args, done, offline: *offline, settle: *settle }
    }

    /// The first of them that is there, for an action of something else.
    pub(super) fn first(&self) -> Option<&'static str> {
        let keys = [
            ("topic", self.topic.is_some()),
            ("args", self.args.is_some()),
            ("done", self.done.is_some()),
            ("offline", self.offline.is_some()),
            ("settle", self.settle.is_some()),
        ];
        keys.into_iter().find(|(_, is_there)| *is_there).map(|(key, _)| key)
    }
}

/// The job at `path`.
pub(super) fn job(path: &str, keys: &Keys<'_>) -> Result<DeviceJob, Mistake> {
    let topic = match keys.topic {
        Some(LockDocument::Name(topic)) => {
            windlass_core::check_topic(topic)
                .map_err(|message| Mistake::new(format!("{path}.topic"), format!("`topic`: {message}")))?;
            JobTopic::Fixed(topic.as_str().into())
        }
        Some(LockDocument::Expression(computed)) => JobTopic::Expression(expression(
            format!("{path}.topic.expression"),
            "expression",
            &computed.expression,
        )?),
        None => {
            let message =
                "a job of a device needs `topic`: the topic that the device listens to, such as pump-7/run";
            return Err(Mistake::new(path, message));
        }
    };
    Ok(DeviceJob {
        args: args(path, keys)?,
        done: keys.done.as_deref().map(Into::into),
        offline: match keys.offline {
            None | Some(WhileOffline::Wait) => windlass_core::WhileOffline::Wait,
            Some(WhileOffline::Fail) => windlass_core::WhileOffline::Fail,
        },
        settle: action::delay(path, "settle", keys.settle)?.unwrap_or(SETTLE_DEFAULT),
        ..DeviceJob::new(topic)
    })
}

/// The arguments: an object, or one whose only key is `expression` and computes them.
fn args(path: &str, keys: &Keys<'_>) -> Result<JobArgs, Mistake> {
    let Some(args) = keys.args else { return Ok(JobArgs::Fixed("{}".into())) };
    if let (1, Some(serde_json::Value::String(text))) = (args.len(), args.get("expression")) {
        let path = format!("{path}.args.expression");
        return Ok(JobArgs::Expression(expression(path, "expression", text)?));
    }
    let reserved = ["uuid", "attempt"].into_iter().find(|key| args.contains_key(*key));
    if let Some(key) = reserved {
        let message = format!("`args` has the key `{key}`, which the server adds to every job: leave it out");
        return Err(Mistake::new(format!("{path}.args"), message));
    }
    let text = serde_json::to_string(args)
        .map_err(|error| Mistake::new(format!("{path}.args"), error.to_string()))?;
    Ok(JobArgs::Fixed(text.into()))
}

/// The lock of the device at `path`.
pub(super) fn device(path: &str, document: &LockDocument) -> Result<LockRef, Mistake> {
    match document {
        LockDocument::Name(name) => {
            let lock = Name::new(name).map_err(|error| {
                let hint = if Expression::compile(name).is_ok() {
                    ". If the device depends on parameters, write { expression: TEXT }"
                } else {
                    ""
                };
                Mistake::new(path, format!("`device`: {error}{hint}"))
            })?;
            let too_long = || Mistake::new(path, "`device`: a name of a device has at most 120 characters");
            Ok(LockRef::Name(device_lock(&lock).ok_or_else(too_long)?))
        }
        LockDocument::Expression(computed) => {
            // First by itself: mistakes are reported in the words of the file.
            expression(format!("{path}.expression"), "expression", &computed.expression)?;
            let text = windlass_core::device_lock_expression(&computed.expression);
            Ok(LockRef::Expression(expression(format!("{path}.expression"), "expression", &text)?))
        }
    }
}

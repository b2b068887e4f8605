//! Jobs of devices: what a step publishes to its device, and which answer completes it.

use serde::{Deserialize, Serialize};

use crate::{Expression, JSON_DEPTH_MAX, Json, Millis, check_topic};

/// How long the lock of a device is kept after a timeout, unless the flow says otherwise.
pub const SETTLE_DEFAULT: Millis = Millis::from_secs(5);

/// The largest arguments of a job, in bytes.
pub const ARGS_BYTES_MAX: usize = 256 << 10;

/// What a step publishes to its device. The device itself is the first of the step's locks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceJob {
    /// The topic to publish to.
    pub topic: JobTopic,
    /// The arguments, which the message contains beside `uuid` and `attempt`.
    pub args: JobArgs,
    /// The topic of the answer; `None` = any topic that ends in `done`.
    pub done: Option<Box<str>>,
    /// What happens while the device is offline.
    pub offline: WhileOffline,
    /// How long after a timeout a late answer is still accepted, from devices that do not echo `attempt`
    /// ([`Device::needs_settle`](crate::Device::needs_settle)). The device stays locked meanwhile.
    pub settle: Millis,
}

/// The topic of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobTopic {
    /// Always this one.
    Fixed(Box<str>),
    /// The one that this expression computes.
    Expression(Expression),
}

/// The arguments of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobArgs {
    /// Always these: the text of a JSON object.
    Fixed(Box<str>),
    /// The map that this expression computes.
    Expression(Expression),
}

/// What happens to a job while its device is offline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WhileOffline {
    /// It waits, at most for the step's `start_within`.
    Wait,
    /// It fails.
    Fail,
}

/// What is published for an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobMessage {
    /// The topic.
    pub topic: Box<str>,
    /// The arguments: a JSON object.
    pub args: Json,
}

impl DeviceJob {
    /// A job without arguments and with the defaults of flow files.
    #[must_use]
    pub fn new(topic: JobTopic) -> Self {
        let args = JobArgs::Fixed("{}".into());
        Self { topic, args, done: None, offline: WhileOffline::Wait, settle: SETTLE_DEFAULT }
    }

    /// Its expressions.
    pub fn expressions(&self) -> impl Iterator<Item = &Expression> {
        let topic = match &self.topic {
            JobTopic::Expression(expression) => Some(expression),
            JobTopic::Fixed(_) => None,
        };
        let args = match &self.args {
            JobArgs::Expression(expression) => Some(expression),
            JobArgs::Fixed(_) => None,
        };
        topic.into_iter().chain(args)
    }

    /// What is published, with these parameters.
    ///
    /// # Errors
    /// When an expression cannot be evaluated, or gives something else than a topic or a map: as a message that quotes it.
    pub(crate) fn message(&self, params: &Json) -> Result<JobMessage, String> {
        let topic = match &self.topic {
            JobTopic::Fixed(topic) => topic.clone(),
            JobTopic::Expression(expression) => {
                let topic = expression.text(params)?;
                check_topic(&topic).map_err(|message| format!("`{}`: {message}", expression.source()))?;
                topic
            }
        };
        let args = match &self.args {
            JobArgs::Fixed(args) => Json::from_stored(args),
            JobArgs::Expression(expression) => {
                let args = expression.object(params)?;
                if args.as_str().len() > ARGS_BYTES_MAX {
                    return Err(format!(
                        "`{}` gives arguments of {} bytes, and a job may have {ARGS_BYTES_MAX}",
                        expression.source(),
                        args.as_str().len()
                    ));
                }
                args
            }
        };
        Ok(JobMessage { topic, args })
    }

    pub(super) fn check(&self) -> Result<(), String> {
        if let JobTopic::Fixed(topic) = &self.topic {
            check_topic(topic).map_err(|message| format!("`topic`: {message}"))?;
        }
        if let JobArgs::Fixed(args) = &self.args {
            let is_object = Json::parse(args).is_ok();
            if args.len() > ARGS_BYTES_MAX || !is_object {
                return Err(format!(
                    "`args` must be an object of at most {ARGS_BYTES_MAX} bytes that nests at most {JSON_DEPTH_MAX} deep"
                ));
            }
        }
        if let Some(done) = &self.done {
            check_topic(done).map_err(|message| format!("`done`: {message}"))?;
            if !done.ends_with("done") {
                return Err(format!(
                    "`done` is {done:?}: the server reads answers from topics that end in `done`"
                ));
            }
        }
        if self.settle > super::SPAN_MAX {
            return Err("`settle` is longer than 366 days".to_owned());
        }
        Ok(())
    }
}

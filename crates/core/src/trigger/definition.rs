//! What a trigger starts, and when.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Expression, Json, Millis, Name, SPAN_MAX, TopicFilter, values::json::as_text};

/// The maximum number of flows of a trigger.
pub const TRIGGER_FLOWS_MAX: usize = 16;

/// The maximum number of mapped parameters of a flow.
pub const TRIGGER_MAPPED_MAX: usize = 64;

/// The shortest interval: a shorter one is the work of a loop in a step.
pub const INTERVAL_MIN: Millis = Millis::from_secs(1);

/// The length of a secret, in bytes: as Standard Webhooks asks for, from 24 up.
pub const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=512;

/// The definition of a trigger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriggerDefinition {
    /// What fires it.
    pub source: TriggerSource,
    /// The flows that it starts, one task of each.
    pub flows: Vec<TriggeredFlow>,
    /// Its requests are answered as by the classic platform for devices.
    pub classic: bool,
}

/// What fires a trigger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TriggerSource {
    /// Time.
    Schedule(TriggerSchedule),
    /// A request to its address.
    Http(Signature),
    /// A message of a queue of a broker: the configuration of servers names the queue and this trigger.
    Intake,
    /// A message on a topic of the network of devices.
    Mqtt(TriggerTopic),
}

/// The messages that fire a trigger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriggerTopic {
    /// Their topics.
    pub filter: TopicFilter,
    /// Computes the id of a message: one that has the id of an earlier one starts nothing. `None` = each message is
    /// another one, also one that the broker sends again.
    pub id: Option<Expression>,
}

/// A flow that a trigger starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriggeredFlow {
    /// The flow; its newest version.
    pub flow: Name,
    /// Parameters of the task.
    #[serde(with = "as_text")]
    pub params: Json,
    /// Parameters that are computed from what fired the trigger. They replace those in `params`.
    pub map: BTreeMap<String, Expression>,
    /// Labels of the task.
    pub labels: BTreeMap<String, String>,
    /// Priority of the task.
    pub priority: i8,
}

/// When a trigger fires by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriggerSchedule {
    /// Its instants.
    pub timing: Timing,
    /// Each instant is delayed by up to this much.
    pub jitter: Millis,
    /// What becomes of instants that no server could fire in time.
    pub catch_up: CatchUp,
    /// What becomes of an instant while tasks of an earlier one run.
    pub overlap: Overlap,
}

/// The instants of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Timing {
    /// Those of a cron expression, by the clocks of a time zone.
    Cron {
        /// The expression.
        expression: Box<str>,
        /// The name of the zone in the IANA database.
        timezone: Box<str>,
    },
    /// One after each interval of elapsed time.
    Every {
        /// The time between two instants.
        interval: Millis,
    },
}

/// What becomes of instants that no server could fire in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CatchUp {
    /// They are counted, and not fired.
    None,
    /// The newest one is fired, if it is not older than this.
    One {
        /// The oldest that is fired.
        within: Millis,
    },
    /// All that are not older than this are fired, one after the other.
    All {
        /// The oldest that is fired.
        within: Millis,
    },
}

/// What becomes of an instant while tasks of an earlier one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Overlap {
    /// It is fired.
    Allow,
    /// It is skipped.
    Skip,
    /// It is fired when those tasks have ended.
    Queue,
    /// Those tasks are cancelled, and it is fired.
    CancelOther,
}

/// How requests to a trigger prove where they come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Signature {
    /// They do not.
    Unsigned,
    /// By the headers of Standard Webhooks.
    Standard {
        /// The common secret, decoded.
        secret: Secret,
    },
    /// By an HMAC-SHA256 of the body, in hexadecimal.
    Hmac {
        /// The common secret.
        secret: Secret,
        /// The name of the header, in lower case.
        header: Box<str>,
    },
}

/// A secret. It never appears in logs.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret(pub Vec<u8>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Why a definition cannot work.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DefinitionFault {
    /// It starts nothing.
    #[error("the trigger starts no flow: name at least one in `flows`")]
    NoFlow,
    /// It starts too much.
    #[error("the trigger has {0} flows: the limit is {TRIGGER_FLOWS_MAX}")]
    TooManyFlows(usize),
    /// Too many parameters are mapped.
    #[error("`map` of the flow {0} has more than {TRIGGER_MAPPED_MAX} parameters")]
    TooManyMapped(Name),
    /// The interval is too short or too long.
    #[error("`every` is {0}: use 1s to 366 days")]
    Interval(Millis),
    /// The jitter is too long.
    #[error("`jitter` is {0}: the limit is 24h")]
    Jitter(Millis),
    /// The window of the catch-up is empty or too long.
    #[error("`catch_up_window` is {0}: use 1s to 366 days")]
    Window(Millis),
    /// A secret has an unsuitable length.
    #[error("the secret has {0} bytes: use {min} to {max}", min = SECRET_BYTES.start(), max = SECRET_BYTES.end())]
    Secret(usize),
    /// The classic answer is for requests.
    #[error("`classic` is the form of an answer to requests: a trigger without `http` has none; remove it")]
    ClassicAnswer,
}

impl TriggerDefinition {
    /// Its schedule, if it has one.
    #[must_use]
    pub fn schedule(&self) -> Option<&TriggerSchedule> {
        match &self.source {
            TriggerSource::Schedule(schedule) => Some(schedule),
            TriggerSource::Http(_) | TriggerSource::Intake | TriggerSource::Mqtt(_) => None,
        }
    }

    /// Checks what its types do not say. Its cron expression is not checked here.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), DefinitionFault> {
        match self.flows.len() {
            0 => return Err(DefinitionFault::NoFlow),
            count if count > TRIGGER_FLOWS_MAX => return Err(DefinitionFault::TooManyFlows(count)),
            _ => {}
        }
        if let Some(flow) = self.flows.iter().find(|flow| flow.map.len() > TRIGGER_MAPPED_MAX) {
            return Err(DefinitionFault::TooManyMapped(flow.flow.clone()));
        }
        match &self.source {
            TriggerSource::Http(signature) => signature.check(),
            _ if self.classic => Err(DefinitionFault::ClassicAnswer),
            TriggerSource::Schedule(schedule) => schedule.check(),
            TriggerSource::Intake | TriggerSource::Mqtt(_) => Ok(()),
        }
    }
}

impl TriggerSchedule {
    fn check(&self) -> Result<(), DefinitionFault> {
        const JITTER_MAX: Millis = Millis::from_secs(24 * 3600);
        let span = INTERVAL_MIN..=SPAN_MAX;
        if let Timing::Every { interval } = self.timing
            && !span.contains(&interval)
        {
            return Err(DefinitionFault::Interval(interval));
        }
        if self.jitter > JITTER_MAX {
            return Err(DefinitionFault::Jitter(self.jitter));
        }
        match self.catch_up {
            CatchUp::One { within } | CatchUp::All { within } if !span.contains(&within) => {
                Err(DefinitionFault::Window(within))
            }
            _ => Ok(()),
        }
    }
}

impl Signature {
    fn check(&self) -> Result<(), DefinitionFault> {
        match self {
            Self::Standard { secret } | Self::Hmac { secret, .. } => match secret.0.len() {
                bytes if SECRET_BYTES.contains(&bytes) => Ok(()),
                bytes => Err(DefinitionFault::Secret(bytes)),
            },
            Self::Unsigned => Ok(()),
        }
    }
}

//! Triggers: what starts flows by itself.

use serde::{Deserialize, Serialize};

use crate::Name;

/// What starts a flow by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trigger {
    /// Its name.
    pub name: Name,
    /// The flow it starts.
    pub flow: Name,
    /// What sets it off.
    pub source: TriggerSource,
    /// Whether it is held by a person.
    pub paused: bool,
}

/// What sets a trigger off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TriggerSource {
    /// A schedule, in the time zone named.
    Cron {
        /// The five fields of a schedule.
        schedule: Box<str>,
        /// Its time zone, by its IANA name.
        zone: Box<str>,
    },
    /// A request to the server.
    Http,
    /// A message on a topic of an MQTT broker.
    Mqtt {
        /// The topic's filter.
        topic: Box<str>,
    },
    /// A message on a queue of a broker.
    Queue {
        /// The queue's name.
        queue: Box<str>,
    },
}

//! Actions: who does a step or undoes it, how long it may take, and how often it is tried.

use serde::{Deserialize, Serialize};

use super::SPAN_MAX;
use crate::{Millis, Name};

/// How long one attempt may take where the flow does not say.
pub const TIMEOUT_DEFAULT: Millis = Millis::from_secs(5 * 60);

/// How long a task may take that a step starts, where the flow does not say: as long as its own flow lets it.
pub const CHILD_TIMEOUT_DEFAULT: Millis = SPAN_MAX;

/// The most retries a flow may ask for.
pub const RETRIES_MAX: u32 = 1_000_000;

/// The module whose commands are flows; no worker may serve it.
pub const FLOW_MODULE: &str = "flow";

/// What a step does, forward or back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// Who does it.
    pub doer: Doer,
    /// How long one attempt of a worker may take.
    pub timeout: Millis,
    /// How long all attempts together may take.
    pub deadline: Option<Millis>,
    /// How long an attempt may wait for a worker to take it.
    pub start_within: Option<Millis>,
    /// How often and how fast a failure is tried again.
    pub retry: Retry,
}

/// Who does a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Doer {
    /// A worker of a module.
    Worker {
        /// The queue it goes to.
        module: Name,
        /// What the module is asked to do.
        command: Name,
    },
    /// A task of another flow, which the step waits for.
    Flow {
        /// The flow; its newest version at the time the step begins.
        name: Name,
    },
    /// Whoever sends the signal that the step waits for.
    Signal {
        /// Its name.
        name: Name,
    },
}

/// How often and how fast a failure is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// This often: 3 means at most 4 attempts.
    pub max: u32,
    /// How the delay grows.
    pub backoff: Backoff,
    /// The first delay.
    pub base: Millis,
    /// The longest delay.
    pub cap: Millis,
}

impl Default for Retry {
    fn default() -> Self {
        Self { max: 0, backoff: Backoff::Exponential, base: Millis::from_secs(1), cap: Millis::from_secs(60) }
    }
}

/// How the delay between attempts grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Backoff {
    /// Twice as long each time, with jitter.
    Exponential,
    /// The same each time, with jitter.
    Fixed,
    /// No delay, as in classic flows.
    None,
}

impl Action {
    /// An action of a worker with the defaults of flow files.
    #[must_use]
    pub fn of_worker(module: Name, command: Name) -> Self {
        Self {
            doer: Doer::Worker { module, command },
            timeout: TIMEOUT_DEFAULT,
            deadline: None,
            start_within: None,
            retry: Retry::default(),
        }
    }

    /// Module and command, where a worker does it.
    #[must_use]
    pub fn worker(&self) -> Option<(&Name, &Name)> {
        match &self.doer {
            Doer::Worker { module, command } => Some((module, command)),
            Doer::Flow { .. } | Doer::Signal { .. } => None,
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        if let Doer::Worker { module, .. } = &self.doer
            && module.as_str() == FLOW_MODULE
        {
            return Err(format!(
                "the module `{FLOW_MODULE}` is reserved: `run: {FLOW_MODULE}.NAME` starts a child task"
            ));
        }
        if self.timeout == Millis(0) {
            return Err(
                "a timeout of 0 would fail every attempt: give it a length, or leave it out".to_owned()
            );
        }
        let spans = [
            ("timeout", Some(self.timeout)),
            ("deadline", self.deadline),
            ("start_within", self.start_within),
            ("retry.base", Some(self.retry.base)),
            ("retry.cap", Some(self.retry.cap)),
        ];
        for (name, span) in spans {
            if span.is_some_and(|span| span > SPAN_MAX) {
                return Err(format!("`{name}` is longer than 366 days"));
            }
        }
        for (name, span) in [("deadline", self.deadline), ("start_within", self.start_within)] {
            if span == Some(Millis(0)) {
                return Err(format!(
                    "a {name} of 0 would fail every step: give it a length, or leave it out"
                ));
            }
        }
        if self.retry.max > RETRIES_MAX {
            return Err(format!("`retry` is more than {RETRIES_MAX}"));
        }
        Ok(())
    }
}

impl std::fmt::Display for Doer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Worker { module, command } => write!(f, "{module}.{command}"),
            Self::Flow { name } => write!(f, "{FLOW_MODULE}.{name}"),
            Self::Signal { name } => write!(f, "signal {name}"),
        }
    }
}

//! Actions: who executes a step or its rollback, the limits on time, and the retries.

use serde::{Deserialize, Serialize};

use super::SPAN_MAX;
use crate::{Millis, Name};

/// The default timeout of one attempt.
pub const TIMEOUT_DEFAULT: Millis = Millis::from_secs(5 * 60);

/// The default timeout of a child task: only the deadline of its own flow limits it.
pub const CHILD_TIMEOUT_DEFAULT: Millis = SPAN_MAX;

/// The maximum number of retries in a flow.
pub const RETRIES_MAX: u32 = 1_000_000;

/// The module whose commands are flows; no worker may serve it.
pub const FLOW_MODULE: &str = "flow";

/// The action of a step, forward or rollback.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// Who executes it.
    pub doer: Doer,
    /// The maximum duration of one attempt of a worker.
    pub timeout: Millis,
    /// The maximum duration of all attempts together.
    pub deadline: Option<Millis>,
    /// The maximum wait of an attempt for a worker.
    pub start_within: Option<Millis>,
    /// The retries after failures.
    pub retry: Retry,
}

/// Who executes a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Doer {
    /// A worker of a module.
    Worker {
        /// The module, which is its queue.
        module: Name,
        /// The command of the module.
        command: Name,
    },
    /// A child task of another flow, which the step waits for.
    Flow {
        /// The flow; its newest version at the time the step starts.
        name: Name,
    },
    /// The sender of a signal that the step waits for.
    Signal {
        /// Its name.
        name: Name,
    },
}

/// The retries after failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// The maximum number of retries: 3 means at most 4 attempts.
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

    /// Module and command, if a worker executes it.
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

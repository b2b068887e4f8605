//! Actions: who executes a step or its rollback, the limits on time, and the retries.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::{DeviceJob, SPAN_MAX};
use crate::{DEVICE_COMMAND, DEVICE_MODULE, Millis, Name};

/// The default timeout of one attempt.
pub const TIMEOUT_DEFAULT: Millis = Millis::from_secs(5 * 60);

/// The default timeout of a child task: only the deadline of its own flow limits it.
pub const CHILD_TIMEOUT_DEFAULT: Millis = SPAN_MAX;

/// The maximum number of retries in a flow.
pub const RETRIES_MAX: u32 = 1_000_000;

/// The module whose commands are flows; no worker may serve it.
pub const FLOW_MODULE: &str = "flow";

/// What the server does with the commands of a module that no worker may serve; `None` for all other modules.
#[must_use]
pub fn reserved_module(module: &str) -> Option<&'static str> {
    match module {
        FLOW_MODULE => Some("`run: flow.NAME` starts a child task"),
        DEVICE_MODULE => Some("a step with `device` and `topic` gives a device a job"),
        _ => None,
    }
}

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
    /// A device, to which the server publishes.
    Device(Box<DeviceJob>),
}

/// The module and the command of the jobs of devices.
static DEVICE: LazyLock<Option<(Name, Name)>> =
    LazyLock::new(|| Some((Name::new(DEVICE_MODULE).ok()?, Name::new(DEVICE_COMMAND).ok()?)));

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

    /// The queue in which its attempts wait: module and command, if a worker or a device executes it.
    #[must_use]
    pub fn worker(&self) -> Option<(&Name, &Name)> {
        match &self.doer {
            Doer::Worker { module, command } => Some((module, command)),
            Doer::Device(_) => DEVICE.as_ref().map(|(module, command)| (module, command)),
            Doer::Flow { .. } | Doer::Signal { .. } => None,
        }
    }

    /// The job, if a device executes it.
    #[must_use]
    pub fn device_job(&self) -> Option<&DeviceJob> {
        match &self.doer {
            Doer::Device(job) => Some(job),
            _ => None,
        }
    }

    /// How long an attempt may run. A device gets time for a late answer on top.
    #[must_use]
    pub fn attempt_timeout(&self) -> Millis {
        let settle = self.device_job().map_or(Millis(0), |job| job.settle);
        Millis(self.timeout.0.saturating_add(settle.0))
    }

    pub(super) fn check(&self) -> Result<(), String> {
        if let Doer::Device(job) = &self.doer {
            job.check()?;
        }
        if let Doer::Worker { module, .. } = &self.doer
            && let Some(instead) = reserved_module(module.as_str())
        {
            return Err(format!("the module `{module}` is reserved: {instead}"));
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
            Self::Device(_) => f.write_str("job of a device"),
        }
    }
}

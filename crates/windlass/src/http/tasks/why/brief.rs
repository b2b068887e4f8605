//! A reason in half a sentence, for those that are not the first.

use windlass_core::DEVICE_MODULE;
use windlass_engine::Why;

use super::sentences::About;

impl About<'_> {
    /// The reason as it stands in a list of several.
    pub(super) fn brief(self, why: &Why) -> String {
        let subject = self.subject();
        match why {
            Why::Ended(_) => format!("{subject} has ended"),
            Why::Stuck { .. } => format!("{subject} waits for an operator"),
            Why::Paused { .. } => format!("{subject} is paused"),
            Why::Scheduled { .. } => format!("{subject} waits for its start time"),
            Why::Ending(at) => format!("{subject} is ending with worker {}", at.worker),
            Why::Running(at) => format!("{subject} is with worker {}", at.worker),
            Why::Retry { .. } | Why::Postponed { .. } => format!("{subject} waits for its next attempt"),
            Why::DeadlineFirst { .. } => format!("{subject} waits for its deadline"),
            Why::Delayed { .. } => format!("{subject} waits for its delay"),
            Why::Signal { name, .. } => format!("{subject} waits for the signal {name}"),
            Why::Child { .. } => format!("{subject} waits for the task it started"),
            Why::Lock { name, .. } => format!("{subject} waits for the lock {name}"),
            Why::Exclusive { queue, .. } => format!("{subject} waits for the exclusive queue {queue}"),
            Why::Members { done, total, .. } => format!("{subject} has {done} of {total} items done"),
            Why::QueuePaused { module, .. } => format!("{subject} waits for the paused queue {module}"),
            Why::NoWorker { module, .. } => format!("{subject} waits for a worker of {module}"),
            Why::Limited { state, .. } => format!("{subject} is kept back by the limit {}", state.limit.name),
            Why::Queued { module, .. } => format!("{subject} waits for its turn in the queue {module}"),
            Why::Offered { module, .. } if module.as_str() == DEVICE_MODULE => {
                format!("{subject} waits for its device")
            }
            Why::Offered { module, .. } => format!("{subject} waits for a consumer of {module}"),
            Why::Grace => format!("{subject} is ready"),
            Why::Moving => format!("{subject} changes its state"),
        }
    }
}

//! Whether task events are announced, for the commits that produce them.

use std::sync::{Arc, OnceLock};

use windlass_store::Signal;

/// The signal that this server's outbox relay waits for, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Announcing {
    stirred: OnceLock<Arc<Signal>>,
}

impl Announcing {
    /// Starts an outbox relay. The returned signal is set when there may be events for it.
    pub(crate) fn begin(&self) -> Arc<Signal> {
        self.stirred.get_or_init(Arc::default).clone()
    }

    /// Whether events are kept for an outbox relay.
    pub(crate) fn is_on(&self) -> bool {
        self.stirred.get().is_some()
    }

    /// Wakes the outbox relay after a commit of events.
    pub(crate) fn stir(&self) {
        if let Some(stirred) = self.stirred.get() {
            stirred.set();
        }
    }
}

//! Whether what happens to tasks is announced, for those who commit it.

use std::sync::{Arc, OnceLock};

use windlass_store::Signal;

/// What the outbox relay of this server waits for, where it has one.
#[derive(Debug, Default)]
pub(crate) struct Announcing {
    stirred: OnceLock<Arc<Signal>>,
}

impl Announcing {
    /// An outbox relay begins. What it gets is set when there may be something for it.
    pub(crate) fn begin(&self) -> Arc<Signal> {
        self.stirred.get_or_init(Arc::default).clone()
    }

    /// Whether events are to be kept for an outbox relay.
    pub(crate) fn is_on(&self) -> bool {
        self.stirred.get().is_some()
    }

    /// Events are on disk.
    pub(crate) fn stir(&self) {
        if let Some(stirred) = self.stirred.get() {
            stirred.set();
        }
    }
}

//! Time, from one place.

use std::{rc::Rc, sync::Arc};

use windlass_core::{Millis, Timestamp};

/// The two times of one instant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    /// Wall time of the store's clock. It never runs backwards.
    pub wall: Timestamp,
    /// Monotonic time since some start, for leases and timeouts.
    pub mono: Millis,
}

impl Now {
    /// The monotonic time at which an attempt claimed now, ready since `ready_at`, has run for `allowed`. It never
    /// counts from before `ready_at`: the clock of the server that made it ready may have been ahead of this one.
    #[must_use]
    pub fn timeout_at(self, ready_at: Timestamp, allowed: Millis) -> Millis {
        let ahead = u64::try_from(ready_at.0.saturating_sub(self.wall.0)).unwrap_or(0);
        Millis(self.mono.0.saturating_add(ahead).saturating_add(allowed.0))
    }
}

/// Returns the time.
pub trait Clock {
    /// This instant.
    fn now(&self) -> Now;
}

impl<T: Clock + ?Sized> Clock for Arc<T> {
    fn now(&self) -> Now {
        (**self).now()
    }
}

impl<T: Clock + ?Sized> Clock for Rc<T> {
    fn now(&self) -> Now {
        (**self).now()
    }
}

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

/// Tells the time.
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

//! What the couriers of this server do, for those who wake them and those who ask.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use windlass_core::{Name, Timestamp};

use crate::Signal;

/// The couriers of this server, by module.
#[derive(Debug, Default)]
pub(crate) struct Offering {
    couriers: Mutex<BTreeMap<Name, Courier>>,
}

#[derive(Debug, Clone)]
struct Courier {
    stirred: Arc<Signal>,
    place: OfferedAt,
}

/// Where the attempts of a module are offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferedAt {
    /// The broker, without user and password.
    pub broker: String,
    /// The queue.
    pub queue: String,
    /// Since when the broker does not take anything, and what it says.
    pub trouble: Option<(Timestamp, String)>,
}

impl Offering {
    /// A courier begins. What it gets is set when there may be something for it.
    pub(crate) fn begin(&self, module: Name, place: OfferedAt) -> Arc<Signal> {
        let stirred = Arc::<Signal>::default();
        let courier = Courier { stirred: stirred.clone(), place };
        self.with(|couriers| couriers.insert(module, courier));
        stirred
    }

    /// The broker of a module takes nothing, or takes everything again.
    pub(crate) fn note(&self, module: &Name, trouble: Option<(Timestamp, String)>) {
        self.with(|couriers| {
            if let Some(courier) = couriers.get_mut(module) {
                courier.place.trouble = trouble;
            }
        });
    }

    /// Something may have become ready.
    pub(crate) fn stir(&self) {
        self.with(|couriers| couriers.values().for_each(|courier| courier.stirred.set()));
    }

    /// Where the attempts of a module are offered by this server.
    pub(crate) fn of(&self, module: &Name) -> Option<OfferedAt> {
        self.with(|couriers| couriers.get(module).map(|courier| courier.place.clone()))
    }

    fn with<T>(&self, act: impl FnOnce(&mut BTreeMap<Name, Courier>) -> T) -> T {
        act(&mut self.couriers.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

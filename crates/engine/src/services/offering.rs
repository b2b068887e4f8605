//! What the queue publishers of this server do, for those who wake them and those who ask.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::{Arc, Mutex, PoisonError},
};

use windlass_core::{Name, Timestamp};

use windlass_store::{AttemptId, Claimed, SessionId, Signal};

/// The queue publishers of this server, by module.
#[derive(Debug, Default)]
pub(crate) struct Offering {
    publishers: Mutex<BTreeMap<Name, QueuePublisher>>,
}

#[derive(Debug, Clone)]
struct QueuePublisher {
    stirred: Arc<Signal>,
    place: OfferedAt,
    session: SessionId,
    /// What queue publishers have left behind that are gone, until this one takes it over.
    left_behind: BTreeSet<AttemptId>,
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
    /// A queue publisher begins. What it gets is set when there may be something for it.
    pub(crate) fn begin(&self, module: Name, session: SessionId, place: OfferedAt) -> Arc<Signal> {
        let stirred = Arc::<Signal>::default();
        let publisher =
            QueuePublisher { stirred: stirred.clone(), place, session, left_behind: BTreeSet::new() };
        self.with(|publishers| publishers.insert(module, publisher));
        stirred
    }

    /// The broker of a module takes nothing, or takes everything again.
    pub(crate) fn note(&self, module: &Name, trouble: Option<(Timestamp, String)>) {
        self.with(|publishers| {
            if let Some(publisher) = publishers.get_mut(module) {
                publisher.place.trouble = trouble;
            }
        });
    }

    /// Something may have become ready.
    pub(crate) fn stir(&self) {
        self.with(|publishers| publishers.values().for_each(|publisher| publisher.stirred.set()));
    }

    /// A queue publisher is gone that offered this attempt. Returns whether one of this server goes on with it: its message is still
    /// on the broker then, and goes nowhere else.
    pub(crate) fn leave_behind(&self, gone: &Claimed) -> bool {
        self.with(|publishers| {
            let heir = publishers
                .get_mut(&gone.module)
                .filter(|publisher| publisher.session.offers_beside(gone.session));
            let Some(heir) = heir else { return false };
            heir.left_behind.insert(gone.id);
            heir.stirred.set();
            true
        })
    }

    /// What the queue publisher of a module is to go on with.
    pub(crate) fn take_left_behind(&self, module: &Name) -> BTreeSet<AttemptId> {
        self.with(|publishers| {
            publishers
                .get_mut(module)
                .map(|publisher| mem::take(&mut publisher.left_behind))
                .unwrap_or_default()
        })
    }

    /// The queue publisher of a module has ended: nobody goes on with what others leave behind.
    pub(crate) fn end(&self, module: &Name) {
        self.with(|publishers| publishers.remove(module));
    }

    /// Where the attempts of a module are offered by this server.
    pub(crate) fn of(&self, module: &Name) -> Option<OfferedAt> {
        self.with(|publishers| publishers.get(module).map(|publisher| publisher.place.clone()))
    }

    fn with<T>(&self, act: impl FnOnce(&mut BTreeMap<Name, QueuePublisher>) -> T) -> T {
        act(&mut self.publishers.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

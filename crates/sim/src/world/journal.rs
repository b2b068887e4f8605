//! The actions of the stores of a world, and the messages on its topic, in order.

use std::sync::{Arc, Mutex, PoisonError};

use windlass_core::{Millis, TaskId};
use windlass_store::{
    AttemptId, Change, Leadership, ServerId, Service, ServiceLease, StoreError, resident::Batch,
};

use crate::stores::MqttEvent;

/// An action of a store.
pub(crate) enum Entry {
    /// It uses these changes from now on; they are on their way to the disk.
    Staged(Arc<Batch>),
    /// A change is on disk.
    Written(Box<Change>),
    /// It has read the disk and uses that state: staged changes that were not written are void.
    Recovered,
    /// An attempt was claimed in shared rows, and the answer is in transit.
    Claimed(AttemptId),
    /// A write of the leader of a service succeeded.
    Led(Leadership),
    /// One was refused, because another server has taken the lease.
    Deposed,
    /// A write that only leaders of services make succeeded without a lease.
    Unled(&'static str),
    /// A server asked for the lease of a service at this time, by the time that leases go by, and learned who has it.
    Leased { service: Service, lease: ServiceLease, at: Millis },
    /// A server ended, and with it its leases.
    Left(ServerId),
    /// The rows refused its write.
    Refused(StoreError),
    /// The event of a task with this number was published to the topic.
    Announced { task: TaskId, n: u64 },
    /// Something happened at the MQTT broker.
    Mqtt(MqttEvent),
}

/// The actions of all stores that were not checked yet.
#[derive(Clone, Default)]
pub(crate) struct Journal(Arc<Mutex<Vec<Entry>>>);

impl Journal {
    pub(crate) fn add(&self, entry: Entry) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
    }

    pub(crate) fn written(&self, change: &Change) {
        self.add(Entry::Written(Box::new(change.clone())));
    }

    pub(crate) fn claimed(&self, id: AttemptId) {
        self.add(Entry::Claimed(id));
    }

    pub(super) fn take(&self) -> Vec<Entry> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

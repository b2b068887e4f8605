//! Reads devices and their presence from the store.

use std::collections::BTreeSet;

use windlass_brokers::DeviceConnection;
use windlass_core::Name;
use windlass_store::{Now, Record, RecordKind, StoreError, stored};

use super::{DeviceKeeper, changed::Changed, fleet::Fleet};
use crate::EngineError;

/// Devices read at once.
const PAGE: usize = 1_000;

impl DeviceKeeper {
    /// Reads all devices, if it is time; else those that were declared or removed over this server.
    pub(super) async fn read_fleet(&self, now: Now) -> Result<(), EngineError> {
        match self.engine.devices_changed.take() {
            Changed::Some(names) if !self.state().fleet.is_due(now) => {
                for names in names.chunks(PAGE) {
                    self.read_named(names, now).await?;
                }
                Ok(())
            }
            _ => self.read_all(now).await,
        }
    }

    async fn read_all(&self, now: Now) -> Result<(), EngineError> {
        let generation = self.engine.store.generation();
        let begun = self.state().fleet.begin_read();
        let (mut seen, mut changed) = (BTreeSet::new(), BTreeSet::new());
        for kind in [RecordKind::Device, RecordKind::Presence] {
            let mut after: Option<Name> = None;
            loop {
                let page = self.engine.store.records(kind, after.as_ref(), PAGE).await?;
                let Some(last) = page.last() else { break };
                after = Some(last.name.clone());
                let mut state = self.state();
                for record in page {
                    match kind {
                        RecordKind::Device => {
                            if learn(&mut state.fleet, &record, now) {
                                changed.insert(record.name.clone());
                            }
                            seen.insert(record.name);
                        }
                        _ => {
                            learn_presence(&mut state.fleet, &record);
                            changed.remove(&record.name);
                        }
                    }
                }
            }
        }
        let mut state = self.state();
        let fleet = &mut state.fleet;
        fleet.forget_others(&seen);
        changed.iter().for_each(|name| fleet.forget_presence_of(name));
        fleet.end_read(begun, generation, now);
        state.waiting.may_all_be_online();
        Ok(())
    }

    /// Reads these devices, as they are now.
    pub(super) async fn read_named(&self, names: &[Name], now: Now) -> Result<(), EngineError> {
        let devices = self.engine.store.records_by_name(RecordKind::Device, names).await?;
        let presences = self.engine.store.records_by_name(RecordKind::Presence, names).await?;
        let mut state = self.state();
        for ((name, device), presence) in names.iter().zip(devices).zip(presences) {
            let is_changed = match device {
                Some(record) => learn(&mut state.fleet, &record, now),
                None => {
                    state.fleet.forget(name);
                    false
                }
            };
            match presence {
                Some(record) => learn_presence(&mut state.fleet, &record),
                None if is_changed => state.fleet.forget_presence_of(name),
                None => {}
            }
            state.waiting.may_be_online(name);
        }
        Ok(())
    }

    /// The status of devices that were declared after it came: the broker sends what it has kept again.
    pub(super) async fn catch_up_on_status(&self, connection: &dyn DeviceConnection) {
        let has_new_topics = self.state().fleet.take_new_topics();
        if has_new_topics && connection.refresh().await.is_err() {
            // The next connection does it.
            self.state().fleet.has_new_topics_again();
        }
    }

    /// Whether a device was declared since they were read. It is known from then on.
    pub(super) async fn look_up(&self, device: &Name, now: Now) -> Result<bool, EngineError> {
        self.read_named(std::slice::from_ref(device), now).await?;
        Ok(self.state().fleet.knows(device))
    }
}

/// Whether its declaration is another one than the one known before.
pub(super) fn learn(fleet: &mut Fleet, record: &Record, now: Now) -> bool {
    // Nearly all are known: they are not decoded again.
    if fleet.version(&record.name) == Some(record.version) {
        return false;
    }
    let device = readable(record, stored::read_device(&record.body));
    device.map(|device| fleet.learn(record, device, now)).is_some()
}

fn learn_presence(fleet: &mut Fleet, record: &Record) {
    if let Some(presence) = readable(record, stored::read_presence(&record.body)) {
        fleet.learn_presence(record, presence);
    }
}

/// What a record says, unless this version cannot read it.
fn readable<T>(record: &Record, read: Result<T, StoreError>) -> Option<T> {
    read.inspect_err(|error| tracing::warn!(name = %record.name, %error, "a device is left out")).ok()
}

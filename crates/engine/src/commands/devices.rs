//! Devices: declaring, showing and removing them, and the log of what happened to each.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use windlass_core::{Device, Lock, LockName, Name, Presence, Timestamp, device_lock};
use windlass_store::{
    Change, JournalKind, JournalQuery, Now, Page, Record, RecordChange, RecordKind, SCAN_MAX, StoreError,
    stored,
};

use crate::{
    Engine, EngineError,
    deciding::inbox::{Item, Reply},
};

/// The maximum number of devices in one call of [`Engine::apply_devices`].
pub const DEVICES_APPLIED_MAX: usize = 10_000;

/// The number of records that are read or written at a time.
const PORTION: usize = 1000;

/// How often changes that conflict with other changes are tried.
const TRIES_MAX: usize = 8;

/// What applying a device did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceApplication {
    /// The device is new.
    Created,
    /// It was declared differently before.
    Updated,
    /// It was declared like that already; nothing was written.
    Unchanged,
}

/// A device, whether it is there, and who has it or waits for it.
#[derive(Debug, Clone)]
pub struct DeviceReport {
    /// The device as it was declared.
    pub device: Device,
    /// What was last heard of it; nothing if it was never heard.
    pub presence: Option<Presence>,
    /// Its lock, with holder and waiters, if anybody has it or waits for it.
    pub lock: Option<Lock>,
}

impl DeviceReport {
    /// Whether the device counts as online. A device whose presence is not watched does; one that was never heard does not.
    #[must_use]
    pub fn is_online(&self) -> bool {
        self.device.is_online(self.presence)
    }
}

/// Which devices are listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceFilter {
    /// Only those that have all of these labels.
    pub labels: BTreeMap<String, String>,
    /// Only those that are online, or only those that are not.
    pub online: Option<bool>,
}

impl DeviceFilter {
    fn has_labels_of(&self, device: &Device) -> bool {
        self.labels.iter().all(|(key, value)| device.labels.get(key) == Some(value))
    }
}

/// Devices that were selected by their labels.
#[derive(Debug)]
pub(crate) struct SelectedDevices {
    /// The devices, by name.
    pub(crate) devices: Vec<Device>,
    /// The last device that was looked at.
    pub(crate) last: Option<Name>,
    /// Whether no device has a name above that.
    pub(crate) is_end: bool,
}

/// An entry in the log of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceLogEntry {
    /// Its number. Numbers only grow, with gaps.
    pub number: u64,
    /// When it happened.
    pub at: Timestamp,
    /// What it is about: [`JournalKind::DeviceJob`] or [`JournalKind::DeviceMessage`].
    pub kind: JournalKind,
    /// What happened: a JSON object.
    pub body: Arc<[u8]>,
}

impl Engine {
    /// Creates devices, or replaces those with the same names. All are checked first. Returns what was done, in the order of
    /// the devices.
    ///
    /// Each device is a commit for itself: after an error of the store some may be stored. Applying them again is safe.
    ///
    /// # Errors
    /// When one cannot be used, two have the same name, there are more than [`DEVICES_APPLIED_MAX`], or the store fails.
    pub async fn apply_devices(
        &self,
        devices: &[Device],
        now: Now,
    ) -> Result<Vec<DeviceApplication>, EngineError> {
        check(devices)?;
        let mut applied = vec![DeviceApplication::Unchanged; devices.len()];
        let mut open: Vec<usize> = (0..devices.len()).collect();
        for _ in 0..TRIES_MAX {
            let mut conflicts = Vec::new();
            for portion in open.chunks(PORTION) {
                conflicts.extend(self.apply_portion(devices, portion, &mut applied, now).await?);
            }
            if conflicts.is_empty() {
                self.note_devices(devices.iter().map(|device| &device.name));
                return Ok(applied);
            }
            open = conflicts;
        }
        Err(EngineError::Conflict)
    }

    /// Applies the devices at these places. Returns the places of those that conflicted with other changes.
    async fn apply_portion(
        &self,
        devices: &[Device],
        places: &[usize],
        applied: &mut [DeviceApplication],
        now: Now,
    ) -> Result<Vec<usize>, EngineError> {
        let generation = self.store.generation();
        let names: Vec<Name> = places.iter().map(|place| devices[*place].name.clone()).collect();
        let records = self.on_disk(|| self.store.records_by_name(RecordKind::Device, &names)).await?;
        let (mut changed, mut items) = (Vec::new(), Vec::new());
        for (place, record) in places.iter().zip(records) {
            let device = &devices[*place];
            let body: Arc<[u8]> = stored::write_device(device).into();
            let change = match record {
                Some(record) if record.body == body => {
                    continue;
                }
                Some(record) => {
                    applied[*place] = DeviceApplication::Updated;
                    RecordChange::update(&record, body)
                }
                None => {
                    applied[*place] = DeviceApplication::Created;
                    RecordChange::create(RecordKind::Device, device.name.clone(), body, now.wall)
                }
            };
            changed.push(*place);
            items.push(Item::Change(Change::Record(change.decided_in(generation))));
        }
        let mut conflicts = Vec::new();
        if !items.is_empty() {
            for (place, reply) in changed.into_iter().zip(self.inbox.decide(items).await?) {
                if !matches!(reply, Reply::Done) {
                    applied[place] = DeviceApplication::Unchanged;
                    conflicts.push(place);
                }
            }
        }
        Ok(conflicts)
    }

    /// A device, whether it is there, and who has it or waits for it.
    ///
    /// # Errors
    /// When it was not declared, or the store fails.
    pub async fn device(&self, name: &Name) -> Result<DeviceReport, EngineError> {
        let read = || async {
            let names = std::slice::from_ref(name);
            let record = self.store.records_by_name(RecordKind::Device, names).await?.pop().flatten();
            let Some(record) = record else { return Ok(None) };
            let device = stored::read_device(&record.body)?;
            Ok(self.reports(vec![device]).await?.pop())
        };
        self.on_disk(read).await?.ok_or_else(|| EngineError::UnknownDevice(name.clone()))
    }

    /// At most `limit` devices with names above `after`, by name. A page may have fewer, even none, while there are more:
    /// at most [`SCAN_MAX`] devices are looked at for one page.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn devices(
        &self,
        filter: &DeviceFilter,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Page<DeviceReport, Name>, EngineError> {
        self.on_disk(|| self.scan(filter, after, limit)).await
    }

    async fn scan(
        &self,
        filter: &DeviceFilter,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Page<DeviceReport, Name>, StoreError> {
        let (mut items, mut last, mut seen) = (Vec::new(), after.cloned(), 0);
        while seen < SCAN_MAX {
            let records = self.store.records(RecordKind::Device, last.as_ref(), PORTION).await?;
            let is_end = records.len() < PORTION;
            let devices: Vec<Device> =
                records.iter().filter_map(readable).filter(|device| filter.has_labels_of(device)).collect();
            let presences = match filter.online {
                Some(_) => self.presences(&devices).await?,
                None => vec![None; devices.len()],
            };
            let found = devices.into_iter().zip(presences);
            let found = found.filter(|(device, presence)| {
                filter.online.is_none_or(|online| online == device.is_online(*presence))
            });
            let mut found: Vec<Device> = found.map(|(device, _)| device).collect();
            let room = limit - items.len();
            if found.len() > room || found.len() == room && !is_end {
                found.truncate(room);
                let next = found.last().map(|device| device.name.clone());
                items.extend(self.reports(found).await?);
                return Ok(Page { items, next: next.or(last) });
            }
            items.extend(self.reports(found).await?);
            if is_end {
                return Ok(Page { items, next: None });
            }
            seen += records.len();
            last = records.last().map(|record| record.name.clone());
        }
        Ok(Page { items, next: last })
    }

    /// Devices with all of these labels and names above `after`, by name: at most `limit`, of at most [`SCAN_MAX`] devices that
    /// are looked at.
    pub(crate) async fn select_devices(
        &self,
        labels: &BTreeMap<String, String>,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<SelectedDevices, StoreError> {
        let filter = DeviceFilter { labels: labels.clone(), online: None };
        let mut selected = SelectedDevices { devices: Vec::new(), last: after.cloned(), is_end: false };
        let mut seen = 0;
        while seen < SCAN_MAX {
            let records = self.store.records(RecordKind::Device, selected.last.as_ref(), PORTION).await?;
            for record in &records {
                if selected.devices.len() == limit {
                    return Ok(selected);
                }
                selected.last = Some(record.name.clone());
                selected.devices.extend(readable(record).filter(|device| filter.has_labels_of(device)));
            }
            seen += records.len();
            if records.len() < PORTION {
                selected.is_end = true;
                break;
            }
        }
        Ok(selected)
    }

    /// What was last heard of these devices.
    async fn presences(&self, devices: &[Device]) -> Result<Vec<Option<Presence>>, StoreError> {
        let names: Vec<Name> = devices.iter().map(|device| device.name.clone()).collect();
        let records = self.store.records_by_name(RecordKind::Presence, &names).await?;
        // A device whose presence cannot be read was never heard.
        Ok(records.into_iter().map(|record| stored::read_presence(&record?.body).ok()).collect())
    }

    async fn reports(&self, devices: Vec<Device>) -> Result<Vec<DeviceReport>, StoreError> {
        let presences = self.presences(&devices).await?;
        let names: Vec<LockName> = devices.iter().filter_map(|device| device_lock(&device.name)).collect();
        let locks = self.store.locks_by_name(&names).await?;
        let mut locks: BTreeMap<LockName, Lock> =
            locks.into_iter().filter(|lock| !lock.is_free()).map(|lock| (lock.name.clone(), lock)).collect();
        let report = |(device, presence): (Device, Option<Presence>)| DeviceReport {
            lock: device_lock(&device.name).and_then(|name| locks.remove(&name)),
            presence,
            device,
        };
        Ok(devices.into_iter().zip(presences).map(report).collect())
    }

    /// Removes a device and what was heard of it. Returns its last state. With `force` it is removed even while its lock has a
    /// holder or waiters, which keep their places.
    ///
    /// # Errors
    /// When it was not declared, it is in use, or the store fails.
    pub async fn remove_device(&self, name: &Name, force: bool) -> Result<DeviceReport, EngineError> {
        for _ in 0..TRIES_MAX {
            let generation = self.store.generation();
            let report = self.device(name).await?;
            if let Some(lock) = report.lock.as_ref().filter(|_| !force) {
                return Err(EngineError::DeviceInUse { device: name.clone(), waiting: lock.waiting() });
            }
            let mut items = Vec::new();
            for kind in [RecordKind::Presence, RecordKind::Device] {
                let records = self.store.records_by_name(kind, std::slice::from_ref(name)).await?;
                let delete = |record: &Record| RecordChange::delete(record).decided_in(generation);
                let changes = records.iter().flatten().map(delete);
                items.extend(changes.map(|change| Item::Change(Change::Record(change))));
            }
            if self.inbox.decide(items).await?.iter().all(|reply| matches!(reply, Reply::Done)) {
                self.note_devices([name]);
                return Ok(report);
            }
        }
        Err(EngineError::Conflict)
    }

    /// What happened to a device, the newest first: at most `limit` entries with numbers below `before`. The log of a device
    /// that was removed is there until its entries are deleted.
    ///
    /// # Errors
    /// When there is neither a device nor an entry, or the store fails.
    pub async fn device_log(
        &self,
        name: &Name,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<DeviceLogEntry>, EngineError> {
        let mut entries = Vec::new();
        for kind in [JournalKind::DeviceJob, JournalKind::DeviceMessage] {
            let query = JournalQuery { kind, subject: Some(name.clone()), before, limit };
            let found = self.on_disk(|| self.store.journal(&query)).await?;
            entries.extend(found.into_iter().map(|(number, entry)| DeviceLogEntry {
                number,
                at: entry.at,
                kind,
                body: entry.body,
            }));
        }
        if entries.is_empty() {
            self.device(name).await?;
        }
        entries.sort_unstable_by_key(|entry| std::cmp::Reverse(entry.number));
        entries.truncate(limit);
        Ok(entries)
    }
}

/// The device of a record. One that cannot be read is left out of lists, as damaged records are.
fn readable(record: &Record) -> Option<Device> {
    stored::read_device(&record.body).ok()
}

fn check(devices: &[Device]) -> Result<(), EngineError> {
    if devices.len() > DEVICES_APPLIED_MAX {
        return Err(EngineError::TooManyDevices(devices.len()));
    }
    let mut names = HashSet::new();
    for (index, device) in devices.iter().enumerate() {
        let unusable = |message: String| EngineError::UnusableDevice { index, message };
        device.check().map_err(unusable)?;
        if !names.insert(&device.name) {
            return Err(unusable(format!(
                "there is another device {} in the list: use different names",
                device.name
            )));
        }
    }
    Ok(())
}

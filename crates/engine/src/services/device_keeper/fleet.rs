//! The devices as this server knows them: their declarations, and whether they are online.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
};

use windlass_core::{Device, Millis, Name, Presence, PresenceRule};
use windlass_store::{Change, Now, Record, RecordChange, RecordKind, stored};

/// With more devices than this they are read less often.
const FEW: usize = 10_000;

/// How often devices are read again: few and many.
const READ_EVERY: [Millis; 2] = [Millis::from_secs(2), Millis::from_secs(20)];

/// Changes of presence within this time count as flapping.
pub(super) const FLAPPING_WITHIN: Millis = Millis::from_secs(60);

/// A device whose presence changes more often than this within [`FLAPPING_WITHIN`] flaps.
pub(super) const FLAPS_MAX: usize = 10;

/// Changes of presence that are counted of one device.
const COUNTED_MAX: usize = 1_000;

/// The devices.
#[derive(Default)]
pub(super) struct Fleet {
    devices: BTreeMap<Name, Known>,
    /// The devices whose status is on a topic.
    by_topic: HashMap<Box<str>, Vec<Name>>,
    /// When devices with a keep-alive time that are online must be looked at: the time is never later than that at which they
    /// have been silent for too long.
    by_silence: BTreeSet<(Millis, Name)>,
    read_at: Option<Millis>,
    /// How often what is known of presence was given up.
    forgotten: u64,
    /// The state of the store in which they were read.
    generation: u64,
    /// Topics of status that were not known when their kept messages came.
    has_new_topics: bool,
    /// How many of the devices were learned.
    learned: usize,
    /// Devices that have flapped, and when their presence changed last.
    flapping: BTreeMap<Name, Millis>,
}

struct Known {
    /// The version of the declaration.
    version: u64,
    device: Arc<Device>,
    presence: Option<Presence>,
    /// The version of its presence in the store; 0 = there is none.
    presence_version: u64,
    /// When it was last heard.
    heard: Millis,
    /// Its place in `by_silence`.
    looked_at: Option<Millis>,
    /// When its presence changed within the last minute before its last change, that one included.
    changed: VecDeque<Millis>,
}

impl Fleet {
    /// Whether a device is declared.
    pub(super) fn knows(&self, device: &Name) -> bool {
        self.devices.contains_key(device)
    }

    /// The version of a declaration.
    pub(super) fn version(&self, device: &Name) -> Option<u64> {
        self.devices.get(device).map(|known| known.version)
    }

    /// The declaration of a device.
    pub(super) fn device(&self, device: &Name) -> Option<&Device> {
        self.devices.get(device).map(|known| &*known.device)
    }

    /// Whether a device is online, as far as is known. One that never said is offline, if it has a way to say so.
    pub(super) fn is_online(&self, device: &Name, now: Now) -> bool {
        let Some(known) = self.devices.get(device) else { return false };
        known.device.is_online(known.presence) && !known.is_silent(now)
    }

    /// The status on the topics known now was heard: no kept message needs to be sent again.
    pub(super) fn forget_new_topics(&mut self) {
        self.has_new_topics = false;
    }

    /// Devices that flap, or have done so: those whose presence has not changed for [`FLAPPING_WITHIN`] do no more.
    pub(super) fn flapping(&self, now: Now) -> impl Iterator<Item = (&Name, bool)> {
        self.flapping.iter().map(move |(name, at)| (name, now.mono.0 <= at.0 + FLAPPING_WITHIN.0))
    }

    /// An earlier server has found that a device flaps.
    pub(super) fn is_known_to_flap(&mut self, device: Name, now: Now) {
        self.flapping.insert(device, now.mono);
    }

    pub(super) fn flaps_no_more(&mut self, device: &Name) {
        self.flapping.remove(device);
    }

    /// Whether devices must be read again.
    pub(super) fn is_due(&self, now: Now) -> bool {
        let every = READ_EVERY[usize::from(self.devices.len() > FEW)];
        self.read_at.is_none_or(|at| now.mono.0 >= at.0 + every.0)
    }

    /// The number of devices that were learned, and not declared since.
    pub(super) fn learned(&self) -> usize {
        self.learned
    }

    /// Whether there were such topics. From now on there are none.
    pub(super) fn take_new_topics(&mut self) -> bool {
        std::mem::take(&mut self.has_new_topics)
    }

    /// What is kept on them could not be requested.
    pub(super) fn has_new_topics_again(&mut self) {
        self.has_new_topics = true;
    }

    /// Whether topics are known whose kept messages are still to be heard.
    pub(super) fn has_new_topics(&self) -> bool {
        self.has_new_topics
    }

    /// Records a declaration.
    pub(super) fn learn(&mut self, record: &Record, device: Device, now: Now) {
        let device = Arc::new(device);
        self.forget_declaration(&record.name);
        self.learned += usize::from(is_learned(&device));
        if let Some(topic) = topic_of(&device) {
            self.by_topic.entry(topic.into()).or_default().push(record.name.clone());
            self.has_new_topics = true;
        }
        match self.devices.get_mut(&record.name) {
            Some(known) => (known.version, known.device) = (record.version, device),
            None => {
                let known = Known {
                    version: record.version,
                    device,
                    presence: None,
                    presence_version: 0,
                    heard: now.mono,
                    looked_at: None,
                    changed: VecDeque::new(),
                };
                self.devices.insert(record.name.clone(), known);
            }
        }
        self.watch_silence(&record.name);
    }

    pub(super) fn learn_presence(&mut self, record: &Record, presence: Presence) {
        if let Some(known) = self.devices.get_mut(&record.name)
            && record.version > known.presence_version
        {
            (known.presence, known.presence_version) = (Some(presence), record.version);
            self.watch_silence(&record.name);
        }
    }

    pub(super) fn forget(&mut self, device: &Name) {
        self.forget_declaration(device);
        self.devices.remove(device);
    }

    fn forget_declaration(&mut self, device: &Name) {
        let Some(known) = self.devices.get(device) else { return };
        self.learned -= usize::from(is_learned(&known.device));
        let Some(topic) = topic_of(&known.device) else { return };
        if let Some(names) = self.by_topic.get_mut(topic) {
            names.retain(|name| name != device);
            if names.is_empty() {
                self.by_topic.remove(topic);
            }
        }
    }

    /// The devices whose status a message on this topic is.
    pub(super) fn of_topic(&self, topic: &str) -> &[Name] {
        self.by_topic.get(topic).map(Vec::as_slice).unwrap_or_default()
    }

    /// A status came for a device. Returns the change to store, if its presence is another one now.
    pub(super) fn hear_status(&mut self, device: &Name, payload: &str, now: Now) -> Option<Change> {
        let is_online = self.devices.get(device)?.device.presence.status()?.is_online(payload)?;
        self.turn(device, is_online, now)
    }

    /// A message came from a device. Returns the change to store, if that makes it online.
    pub(super) fn hear(&mut self, device: &Name, now: Now) -> Option<Change> {
        let known = self.devices.get_mut(device)?;
        known.heard = now.mono;
        match known.device.presence {
            PresenceRule::KeepAlive(_) => self.turn(device, true, now),
            _ => None,
        }
    }

    /// Devices that were silent for too long are offline. Returns the changes to store.
    pub(super) fn silent(&mut self, now: Now) -> Vec<Change> {
        let mut changes = Vec::new();
        while let Some((at, _)) = self.by_silence.first()
            && *at <= now.mono
            && let Some((at, name)) = self.by_silence.pop_first()
        {
            let Some(known) = self.devices.get_mut(&name).filter(|known| known.looked_at == Some(at)) else {
                continue;
            };
            known.looked_at = None;
            if known.is_silent(now) && known.presence.is_some_and(|presence| presence.online) {
                changes.extend(self.turn(&name, false, now));
            } else {
                self.watch_silence(&name);
            }
        }
        changes
    }

    /// A device with a keep-alive time that is online is looked at when that time is over.
    fn watch_silence(&mut self, device: &Name) {
        let Some(known) = self.devices.get_mut(device) else { return };
        let before = known.looked_at.take();
        if let PresenceRule::KeepAlive(span) = known.device.presence
            && known.presence.is_some_and(|presence| presence.online)
        {
            known.looked_at = Some(Millis(known.heard.0.saturating_add(span.0)));
        }
        if before == known.looked_at {
            return;
        }
        if let Some(at) = before {
            self.by_silence.remove(&(at, device.clone()));
        }
        self.by_silence.extend(known.looked_at.map(|at| (at, device.clone())));
    }

    fn turn(&mut self, device: &Name, online: bool, now: Now) -> Option<Change> {
        let generation = self.generation;
        let known = self.devices.get_mut(device)?;
        let change = known.turn(device, online, generation, now)?;
        if known.changed.len() > FLAPS_MAX || self.flapping.contains_key(device) {
            self.flapping.insert(device.clone(), now.mono);
        }
        self.watch_silence(device);
        Some(change)
    }

    /// What is stored of the presence of devices may not be what this server built on: it is read again.
    pub(super) fn forget_presence(&mut self) {
        self.read_at = None;
        self.forgotten += 1;
        self.devices.values_mut().for_each(|known| known.presence_version = 0);
    }

    /// The state of the store in which all devices were read.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// A device was declared again and has no presence in the store: the known one was removed with the old device.
    pub(super) fn forget_presence_of(&mut self, device: &Name) {
        if let Some(known) = self.devices.get_mut(device) {
            (known.presence, known.presence_version) = (None, 0);
            self.watch_silence(device);
        }
    }

    /// Whether all devices are known as they are stored.
    pub(super) fn is_read(&self) -> bool {
        self.read_at.is_some()
    }

    /// All devices are being read. Returns a number for [`Self::end_read`].
    pub(super) fn begin_read(&mut self) -> u64 {
        self.drop_unstored();
        self.forgotten
    }

    /// All devices were read in this state of the store. What was given up since the begin of the read is to be read again.
    pub(super) fn end_read(&mut self, begun: u64, generation: u64, now: Now) {
        self.generation = generation;
        if begun == self.forgotten {
            self.read_at = Some(now.mono);
        }
    }

    /// The devices except these were removed.
    pub(super) fn forget_others(&mut self, seen: &BTreeSet<Name>) {
        let gone: Vec<Name> = self.devices.keys().filter(|name| !seen.contains(*name)).cloned().collect();
        gone.iter().for_each(|name| self.forget(name));
    }

    /// What is not stored was not heard.
    fn drop_unstored(&mut self) {
        let unstored = self.devices.values_mut().filter(|known| known.presence_version == 0);
        unstored.for_each(|known| known.presence = None);
    }
}

impl Known {
    /// Whether it has a keep-alive time, and was silent for longer.
    fn is_silent(&self, now: Now) -> bool {
        match self.device.presence {
            PresenceRule::KeepAlive(span) => now.mono.0 >= self.heard.0.saturating_add(span.0),
            PresenceRule::Always | PresenceRule::Topic { .. } | PresenceRule::Learned { .. } => false,
        }
    }

    fn turn(&mut self, name: &Name, online: bool, generation: u64, now: Now) -> Option<Change> {
        if self.presence.is_some_and(|presence| presence.online == online) {
            return None;
        }
        let is_recent = |at: &Millis| at.0 + FLAPPING_WITHIN.0 >= now.mono.0;
        while self.changed.front().is_some_and(|at| !is_recent(at)) || self.changed.len() == COUNTED_MAX {
            self.changed.pop_front();
        }
        let changes = u32::try_from(self.changed.len()).unwrap_or(u32::MAX);
        self.changed.push_back(now.mono);
        let presence = Presence { online, since: now.wall, changes };
        let body: Arc<[u8]> = stored::write_presence(&presence).into();
        let kind = RecordKind::Presence;
        let change = match self.presence_version {
            0 => RecordChange::create(kind, name.clone(), body, now.wall),
            version => {
                RecordChange::update(&Record { kind, name: name.clone(), version, body: body.clone() }, body)
            }
        };
        (self.presence, self.presence_version) = (Some(presence), change.version);
        Some(Change::Record(change.decided_in(generation)))
    }
}

fn is_learned(device: &Device) -> bool {
    matches!(device.presence, PresenceRule::Learned { .. })
}

fn topic_of(device: &Device) -> Option<&str> {
    device.presence.status().map(|status| status.topic)
}

#[cfg(test)]
mod tests {
    use windlass_core::Timestamp;

    use super::{super::reading::learn, *};

    fn at(ms: u64) -> Now {
        Now { wall: Timestamp(1_700_000_000_000 + ms as i64), mono: Millis(ms) }
    }

    fn fleet(presence: PresenceRule) -> (Fleet, Name) {
        let name = Name::new("pump").unwrap();
        let device = Device { name: name.clone(), labels: BTreeMap::new(), presence, echoes_attempt: false };
        let body: Arc<[u8]> = stored::write_device(&device).into();
        let record = Record { kind: RecordKind::Device, name: name.clone(), version: 1, body };
        let mut fleet = Fleet::default();
        learn(&mut fleet, &record, at(0));
        (fleet, name)
    }

    fn of_topic() -> PresenceRule {
        PresenceRule::Topic { topic: "t".into(), online: "on".into(), offline: "off".into() }
    }

    #[test]
    fn a_device_flaps_after_more_than_ten_changes_in_a_minute_until_it_is_quiet_for_one() {
        let (mut fleet, pump) = fleet(of_topic());
        let flaps =
            |fleet: &Fleet, ms| fleet.flapping(at(ms)).map(|(_, goes_on)| goes_on).collect::<Vec<_>>();
        let turn = |fleet: &mut Fleet, n: u64, ms| {
            assert!(fleet.hear_status(&pump, ["on", "off"][n as usize % 2], at(ms)).is_some());
        };
        // Ten in a minute, and more in more time.
        for n in 0..40 {
            turn(&mut fleet, n, n * 6_500);
        }
        assert!(flaps(&fleet, 40 * 6_500).is_empty());
        for n in 40..45 {
            turn(&mut fleet, n, 260_000 + n);
        }
        assert_eq!(flaps(&fleet, 261_000), [true]);
        turn(&mut fleet, 45, 300_000);
        assert_eq!(flaps(&fleet, 360_000), [true]);
        assert_eq!(flaps(&fleet, 360_001), [false]);
        fleet.flaps_no_more(&pump);
        assert!(flaps(&fleet, 360_001).is_empty());
    }

    #[test]
    fn a_device_is_offline_when_its_keep_alive_time_is_over_and_only_then() {
        let (mut fleet, pump) = fleet(PresenceRule::KeepAlive(Millis(1_000)));
        assert!(fleet.silent(at(5_000)).is_empty(), "it was never heard");
        assert!(fleet.hear(&pump, at(5_000)).is_some());
        assert_eq!(fleet.by_silence.len(), 1);
        for ms in [5_500, 5_900] {
            assert!(fleet.hear(&pump, at(ms)).is_none());
        }
        assert!(fleet.silent(at(6_000)).is_empty(), "it was heard since");
        assert!(fleet.silent(at(6_899)).is_empty());
        assert_eq!(fleet.silent(at(6_900)).len(), 1);
        assert!(!fleet.is_online(&pump, at(6_900)) && fleet.by_silence.is_empty());
        assert!(fleet.hear(&pump, at(7_000)).is_some());
        // A shorter time counts at once.
        let (shorter, _) = super::tests::fleet(PresenceRule::KeepAlive(Millis(10)));
        let device = Device::clone(&shorter.devices[&pump].device);
        let body: Arc<[u8]> = stored::write_device(&device).into();
        learn(
            &mut fleet,
            &Record { kind: RecordKind::Device, name: pump.clone(), version: 2, body },
            at(7_005),
        );
        assert_eq!((fleet.by_silence.len(), fleet.silent(at(7_010)).len()), (1, 1));
    }
}

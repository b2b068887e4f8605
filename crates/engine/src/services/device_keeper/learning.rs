//! Devices that nobody declared, and that say on the topic of a rule that they are online: they are declared.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{Device, LearnRule, Name};
use windlass_store::{Change, Now, RecordChange, RecordKind, stored};

use super::DeviceKeeper;
use crate::{EngineError, services::leading::Led};

/// The maximum number of learned devices, unless the settings say otherwise.
pub const LEARNED_MAX: usize = 10_000;

/// The maximum number of devices that are learned in one look, of which there is one a second.
const LEARNED_AT_ONCE: usize = 100;

/// The maximum number of devices that wait to be learned. Others are learned when they say again that they are online.
const WANTED_MAX: usize = 10_000;

/// The maximum number of invalid names that are remembered, so that each is logged once.
const INVALID_MAX: usize = 1_000;

/// The longest part of an invalid name that is logged, in characters.
const QUOTED_MAX: usize = 100;

/// Which devices are learned.
#[derive(Debug, Clone, Default)]
pub struct Learn {
    /// The rules; the first one that a topic matches counts.
    pub rules: Vec<LearnRule>,
    /// The maximum number of learned devices.
    pub max: usize,
}

/// The devices that are to be declared: those that said last that they are online.
#[derive(Default)]
pub(super) struct Learning {
    wanted: BTreeMap<Name, Device>,
    invalid: BTreeSet<String>,
    is_full: bool,
}

impl Learning {
    /// A status came on a topic that is of no declared device.
    pub(super) fn hear(&mut self, learn: &Learn, topic: &str, payload: &str, knows: impl Fn(&Name) -> bool) {
        let rule = learn.rules.iter().find_map(|rule| Some((rule, rule.name_in(topic)?)));
        let Some((rule, level)) = rule else { return };
        let Some(is_online) = rule.is_online(payload) else { return };
        let device = Name::new(level).map_err(|error| error.to_string());
        let device = device.map(|name| rule.device(name, topic));
        match device.and_then(|device| device.check().map(|()| device)) {
            Ok(device) if !is_online => drop(self.wanted.remove(&device.name)),
            // A device of this name has another topic, or none.
            Ok(device) if knows(&device.name) => {}
            Ok(device) if self.wanted.len() < WANTED_MAX => {
                drop(self.wanted.insert(device.name.clone(), device))
            }
            Ok(_) => {}
            Err(error) => self.note_invalid(level, topic, &error),
        }
    }

    fn note_invalid(&mut self, level: &str, topic: &str, error: &str) {
        let level: String = level.chars().take(QUOTED_MAX).collect();
        if self.invalid.len() < INVALID_MAX && self.invalid.insert(level.clone()) {
            tracing::warn!(name = level, topic, error, "a device cannot be learned: its name is invalid");
        }
    }

    /// The next devices to declare: at most `room`.
    fn next(&mut self, room: usize) -> Vec<Device> {
        if self.wanted.is_empty() {
            return Vec::new();
        }
        if room == 0 && !std::mem::replace(&mut self.is_full, true) {
            tracing::warn!(
                waiting = self.wanted.len(),
                "no more devices are learned: raise `devices.learn_max`, or declare devices with `windlass device apply`"
            );
        }
        self.is_full &= room == 0;
        self.wanted.values().take(room.min(LEARNED_AT_ONCE)).cloned().collect()
    }
}

impl DeviceKeeper {
    /// Declares some of the devices that are to be learned. One that somebody declares at the same time stays as declared.
    pub(super) async fn learn(&self, led: Led, now: Now) -> Result<(), EngineError> {
        let devices = {
            let mut state = self.state();
            let room = self.learn.max.saturating_sub(state.fleet.learned());
            state.learning.next(room)
        };
        if devices.is_empty() {
            return Ok(());
        }
        let generation = self.engine.store.generation();
        let create = |device: &Device| {
            let body = stored::write_device(device).into();
            let change = RecordChange::create(RecordKind::Device, device.name.clone(), body, now.wall);
            Change::Record(change.decided_in(generation))
        };
        self.engine.commit_as(led.lease, devices.iter().map(create).collect(), now).await?;
        let names: Vec<Name> = devices.iter().map(|device| device.name.clone()).collect();
        let had_new_topics = self.state().fleet.has_new_topics();
        self.read_named(&names, now).await?;
        let mut changes = Vec::new();
        {
            let mut state = self.state();
            if !had_new_topics {
                // What the broker has kept on these topics was heard.
                state.fleet.forget_new_topics();
            }
            for device in &devices {
                // It may have said meanwhile that it is offline.
                let is_online = state.learning.wanted.remove(&device.name).is_some();
                let Some(status) = device.presence.status() else { continue };
                let payload = if is_online { status.online } else { status.offline };
                changes.extend(state.fleet.hear_status(&device.name, payload, now));
                state.waiting.may_be_online(&device.name);
            }
        }
        tracing::info!(count = devices.len(), first = %names[0], "devices were learned");
        if !self.commit_presence(led, changes, now).await? {
            self.hear_again().await;
        }
        Ok(())
    }
}

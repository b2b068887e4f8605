//! Messages of devices that are kept, by device and topic.

use serde::Deserialize;
use windlass_core::{Name, Timestamp, TopicFilter};
use windlass_store::{JournalEntry, JournalKind, JournalQuery, Page, SCAN_MAX};

use crate::{DeviceLogEntry, Engine, EngineError};

/// Messages read at once.
const PORTION: usize = 1_000;

/// Which messages are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MessageFilter {
    /// Only those that are kept for this device.
    pub device: Option<Name>,
    /// Only those on topics that this filter matches.
    pub topic: Option<TopicFilter>,
    /// Only those that came at this time or later.
    pub since: Option<Timestamp>,
}

/// A message and the device for which it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptMessage {
    /// The device; `unknown` if the message names none.
    pub device: Name,
    /// The message, as in the log of the device.
    pub entry: DeviceLogEntry,
}

#[derive(Deserialize)]
struct OnTopic {
    topic: String,
}

impl MessageFilter {
    fn wants(&self, entry: &JournalEntry) -> bool {
        let Some(filter) = &self.topic else { return true };
        serde_json::from_slice::<OnTopic>(&entry.body).is_ok_and(|body| filter.matches(&body.topic))
    }
}

impl Engine {
    /// Messages of devices, the newest first: at most `limit` with numbers below `before`. A page may have fewer, even none,
    /// while there are more: at most [`SCAN_MAX`] messages are looked at for one page.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn device_messages(
        &self,
        filter: &MessageFilter,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Page<KeptMessage, u64>, EngineError> {
        let kind = JournalKind::DeviceMessage;
        let (mut items, mut before, mut seen) = (Vec::new(), before, 0);
        while seen < SCAN_MAX {
            let query = JournalQuery { kind, subject: filter.device.clone(), before, limit: PORTION };
            let found = self.on_disk(|| self.store.journal(&query)).await?;
            let is_end = found.len() < PORTION;
            seen += found.len();
            for (number, entry) in found {
                if filter.since.is_some_and(|since| entry.at < since) {
                    return Ok(Page { items, next: None });
                }
                before = Some(number);
                if filter.wants(&entry) {
                    let JournalEntry { subject: device, at, body, .. } = entry;
                    items.push(KeptMessage { device, entry: DeviceLogEntry { number, at, kind, body } });
                    if items.len() == limit {
                        return Ok(Page { items, next: before });
                    }
                }
            }
            if is_end {
                return Ok(Page { items, next: None });
            }
        }
        Ok(Page { items, next: before })
    }
}

//! Messages of devices that are kept, by device and topic.

use serde::Deserialize;
use windlass_core::{Name, Timestamp, TopicFilter};
use windlass_store::{JournalEntry, JournalKind, Page};

use crate::{DeviceLogEntry, Engine, EngineError, queries::journal::JournalSearch};

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
    /// while there are more: at most 10,000 messages are looked at for one page.
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
        let MessageFilter { device, since, .. } = filter;
        let search = JournalSearch { kind, subject: device.as_ref(), since: *since, before, limit };
        let message = |number, entry: JournalEntry| {
            let JournalEntry { subject: device, at, body, .. } = entry;
            KeptMessage { device, entry: DeviceLogEntry { number, at, kind, body } }
        };
        self.search_journal(search, |number, entry| filter.wants(&entry).then(|| message(number, entry)))
            .await
    }
}

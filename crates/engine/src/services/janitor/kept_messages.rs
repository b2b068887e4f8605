//! How many bytes of messages of devices are kept, and which must go. Each message is counted once, when the janitor first sees
//! it: no query counts all of them.

use std::collections::VecDeque;

use windlass_core::Timestamp;
use windlass_store::JournalSize;

/// The messages that are kept, in the order of their times.
#[derive(Default)]
pub(super) struct KeptMessages {
    /// The time and the number of the last message that was counted.
    after: Option<(Timestamp, u64)>,
    parts: VecDeque<Part>,
    bytes: u64,
    /// Messages that came until then go.
    cut: Option<Timestamp>,
}

/// Messages that came until a time, after the last part.
struct Part {
    until: Timestamp,
    bytes: u64,
}

impl KeptMessages {
    /// The place after which the next messages are counted.
    pub(super) fn after(&self) -> Option<(Timestamp, u64)> {
        self.after
    }

    /// Counts these messages, in parts of at least `part_bytes` bytes.
    pub(super) fn add(&mut self, sizes: &[JournalSize], part_bytes: u64) {
        for size in sizes {
            self.after = Some(size.place());
            self.bytes = self.bytes.saturating_add(size.bytes);
            match self.parts.back_mut().filter(|part| part.bytes < part_bytes || part.until == size.at) {
                Some(part) => (part.until, part.bytes) = (size.at, part.bytes.saturating_add(size.bytes)),
                None => self.parts.push_back(Part { until: size.at, bytes: size.bytes }),
            }
        }
    }

    /// The time until which messages go because more than `bytes_max` are kept, if any do. Those until `old` go anyway.
    pub(super) fn cut(&mut self, old: Timestamp, bytes_max: u64) -> Option<Timestamp> {
        while let Some(part) = self.parts.front()
            && (part.until <= old || self.bytes > bytes_max)
        {
            if part.until > old {
                self.cut = Some(part.until);
            }
            self.bytes = self.bytes.saturating_sub(part.bytes);
            self.parts.pop_front();
        }
        self.cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(of: &[(i64, u64)]) -> Vec<JournalSize> {
        let size = |(n, (at, bytes)): (usize, &(i64, u64))| JournalSize {
            at: Timestamp(*at),
            number: n as u64,
            bytes: *bytes,
        };
        of.iter().enumerate().map(size).collect()
    }

    #[test]
    fn the_oldest_messages_go_when_there_are_too_many_bytes() {
        let mut kept = KeptMessages::default();
        kept.add(&sizes(&[(1, 4), (2, 4), (3, 4), (3, 4), (4, 4)]), 4);
        assert_eq!(kept.after(), Some((Timestamp(4), 4)));
        assert_eq!(kept.cut(Timestamp(0), 20), None);
        assert_eq!(kept.cut(Timestamp(0), 15), Some(Timestamp(2)));
        kept.add(&sizes(&[(5, 4)]), 4);
        // Messages of the same time go together.
        assert_eq!(kept.cut(Timestamp(0), 15), Some(Timestamp(3)));
        assert_eq!(kept.bytes, 8);
        // Those that are old are not counted any more.
        assert_eq!(kept.cut(Timestamp(4), 8), Some(Timestamp(3)));
        assert_eq!(kept.bytes, 4);
    }
}

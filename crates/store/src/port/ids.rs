//! New task ids.

use std::sync::{Mutex, PoisonError};

use windlass_core::{TaskId, Timestamp};

/// Makes UUIDs of version 7 that grow within one server: 48 bits of milliseconds, a counter of 26 bits within
/// the millisecond, and 48 random bits that distinguish servers.
#[derive(Debug)]
pub struct TaskIds {
    last: Mutex<(i64, u32)>,
    random: u64,
}

impl TaskIds {
    /// Ids of a server; `random` distinguishes it from others.
    #[must_use]
    pub fn new(random: u64) -> Self {
        Self { last: Mutex::new((0, 0)), random }
    }

    /// An id greater than every one before.
    #[must_use]
    pub fn next(&self, now: Timestamp) -> TaskId {
        const COUNTER_MAX: u32 = (1 << 26) - 1;
        let (ms, counter) = {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            *last = match *last {
                (ms, _) if now.0 > ms => (now.0, 0),
                (ms, COUNTER_MAX) => (ms + 1, 0),
                (ms, counter) => (ms, counter + 1),
            };
            *last
        };
        let time = u128::try_from(ms).unwrap_or(0) & 0xffff_ffff_ffff;
        let counter = u128::from(counter);
        let random = u128::from(self.random) & 0xffff_ffff_ffff;
        // Layout: time 48 | version 4 | counter high 12 | variant 2 | counter low 14 | random 48.
        TaskId(
            time << 80 | 0x7 << 76 | (counter >> 14) << 64 | 0b10 << 62 | (counter & 0x3fff) << 48 | random,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_grow_and_are_uuids_of_version_7() {
        let ids = TaskIds::new(u64::MAX);
        let mut last = ids.next(Timestamp(1_000));
        for now in [1_000, 1_000, 999, 1_001, 500, 2_000] {
            for _ in 0..20_000 {
                let next = ids.next(Timestamp(now));
                assert!(next > last);
                last = next;
            }
        }
        let uuid = uuid::Uuid::from_u128(last.0);
        assert_eq!(uuid.get_version_num(), 7);
        assert_eq!(uuid.get_variant(), uuid::Variant::RFC4122);
    }
}

//! Decides how many messages are read at once: fewer where they are large.

use windlass_brokers::Delivery;

/// The target size of one read, in bytes.
const BYTES_MAX: usize = 64 << 20;

/// A product that prefetches gets a limit in messages when the consumer starts. The limit may exceed the
/// current count by this factor, so prefetched messages stay below this multiple of [`BYTES_MAX`]. Another
/// limit needs a new consumer.
const AHEAD: usize = 16;

/// How many messages are read at once. Messages of a queue mostly have similar sizes, so the last ones
/// predict the next. Nothing is known of the first ones: their count starts low and doubles while they are
/// small.
#[derive(Debug)]
pub(super) struct Portion {
    most: usize,
    count: usize,
}

impl Portion {
    /// At most `most` messages, each of at most `message_bytes_max` bytes.
    pub(super) fn new(most: usize, message_bytes_max: usize) -> Self {
        Self { most, count: fitting(most, message_bytes_max) }
    }

    /// The number of messages to read next.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The limit of messages in flight for a consumer that starts now.
    pub(super) fn in_hands_max(&self) -> usize {
        if self.is_outgrown_by(self.most) { self.count } else { self.most }
    }

    /// Whether a consumer with this limit should be replaced by one with the limit
    /// [`in_hands_max`](Self::in_hands_max).
    pub(super) fn is_other_than(&self, in_hands_max: usize) -> bool {
        self.is_outgrown_by(in_hands_max) || (self.count == self.most && in_hands_max < self.most)
    }

    /// Adjusts the count to the sizes of the messages just read.
    pub(super) fn learn(&mut self, came: &[Delivery]) {
        let Some(largest) = came.iter().map(size).max() else { return };
        self.count = fitting(self.most, largest).min(self.count * 2);
    }

    fn is_outgrown_by(&self, in_hands_max: usize) -> bool {
        in_hands_max > self.count * AHEAD
    }
}

/// How many messages of this size fit into one read: at least one.
fn fitting(most: usize, bytes: usize) -> usize {
    (BYTES_MAX / bytes.max(1)).clamp(1, most)
}

/// The size of a message in bytes.
fn size(delivery: &Delivery) -> usize {
    let message = &delivery.message;
    let headers = message.headers.iter().map(|(name, value)| name.len() + value.len());
    message.id.len() + message.key.len() + message.body.len() + headers.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use windlass_brokers::{Message, Receipt};

    use super::*;

    const MIB: usize = 1 << 20;

    fn message(bytes: usize) -> [Delivery; 1] {
        let message = Message::new("", "", vec![b' '; bytes]);
        [Delivery { message, receipt: Receipt("1".into()), deliveries: None }]
    }

    #[test]
    fn where_messages_are_small_as_many_are_taken_as_may_be() {
        let mut portion = Portion::new(500, 16 * MIB);
        assert_eq!((portion.count(), portion.in_hands_max()), (4, 4), "nothing is known yet");
        let counts = [(); 8].map(|()| {
            portion.learn(&message(100));
            portion.count()
        });
        assert_eq!(counts, [8, 16, 32, 64, 128, 256, 500, 500]);
        assert!(portion.is_other_than(4) && portion.in_hands_max() == 500);
        assert!(!portion.is_other_than(500));
    }

    #[test]
    fn where_messages_are_large_few_are_taken() {
        let mut portion = Portion::new(500, 1_000_000);
        assert_eq!((portion.count(), portion.in_hands_max()), (67, 500));
        portion.learn(&message(2 * MIB));
        assert_eq!((portion.count(), portion.is_other_than(500)), (32, false));
        portion.learn(&message(65 * MIB));
        assert_eq!((portion.count(), portion.is_other_than(500), portion.in_hands_max()), (1, true, 1));
        portion.learn(&[]);
        assert_eq!(portion.count(), 1, "nothing came");
        portion.learn(&message(100));
        assert_eq!((portion.count(), portion.is_other_than(1)), (2, false), "no new consumer for that");
    }
}

//! How many messages are taken at once: fewer where they are large.

use windlass_brokers::Delivery;

/// About so many bytes of messages are taken at once.
const BYTES_MAX: usize = 64 << 20;

/// Products that send ahead what a consumer may have in hands are told a number by which that is no more than so many times
/// [`BYTES_MAX`]: to tell them another one the queue must be consumed anew.
const AHEAD: usize = 16;

/// How many messages are taken at once. The messages of a queue are mostly alike: the next ones are judged by those that came
/// last. Of the first ones nothing is known: they are few, and their number doubles while they prove small.
#[derive(Debug)]
pub(super) struct Portion {
    most: usize,
    count: usize,
}

impl Portion {
    /// At most so many, of at most so many bytes each.
    pub(super) fn new(most: usize, message_bytes_max: usize) -> Self {
        Self { most, count: fitting(most, message_bytes_max) }
    }

    /// So many are to be taken next.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// So many may be in hands of a consumer that begins now.
    pub(super) fn in_hands_max(&self) -> usize {
        if self.is_outgrown_by(self.most) { self.count } else { self.most }
    }

    /// Whether a consumer that may have so many in hands is to be replaced by one of
    /// [`in_hands_max`](Self::in_hands_max).
    pub(super) fn is_other_than(&self, in_hands_max: usize) -> bool {
        self.is_outgrown_by(in_hands_max) || (self.count == self.most && in_hands_max < self.most)
    }

    /// These came.
    pub(super) fn learn(&mut self, came: &[Delivery]) {
        let Some(largest) = came.iter().map(size).max() else { return };
        self.count = fitting(self.most, largest).min(self.count * 2);
    }

    fn is_outgrown_by(&self, in_hands_max: usize) -> bool {
        in_hands_max > self.count * AHEAD
    }
}

/// How many messages of a size are taken at once: one at least.
fn fitting(most: usize, bytes: usize) -> usize {
    (BYTES_MAX / bytes.max(1)).clamp(1, most)
}

/// What a message takes.
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
        assert_eq!(
            (portion.count(), portion.is_other_than(1)),
            (2, false),
            "it is not consumed anew for that"
        );
    }
}

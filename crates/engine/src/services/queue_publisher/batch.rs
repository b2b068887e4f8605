//! Messages that a queue publisher sends together.

use windlass_brokers::Message;

use windlass_store::AttemptId;

/// The approximate maximum bytes sent together, so that large parameters do not use too much memory at once.
const BYTES_MAX: usize = 16 << 20;

/// Messages of attempts.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) ids: Vec<AttemptId>,
    pub(super) messages: Vec<Message>,
    bytes: usize,
}

impl Batch {
    /// Whether a message still fits. The first one always fits.
    pub(super) fn has_room_for(&self, message: &Message) -> bool {
        self.messages.is_empty() || self.bytes + message.body.len() <= BYTES_MAX
    }

    pub(super) fn add(&mut self, id: AttemptId, message: Message) {
        self.bytes += message.body.len();
        self.ids.push(id);
        self.messages.push(message);
    }
}

#[cfg(test)]
mod tests {
    use windlass_core::{ActKey, TaskId};

    use super::*;

    #[test]
    fn as_much_goes_together_as_there_is_room_for_and_one_at_least() {
        let id = AttemptId { task: TaskId(1), key: ActKey::forward(0), attempt: 1, claim: 1 };
        let message = |bytes: usize| Message::new("", "", vec![b' '; bytes]);
        let mut batch = Batch::default();
        for _ in 0..3 {
            let part = message(5 << 20);
            assert!(batch.has_room_for(&part));
            batch.add(id, part);
        }
        assert!(batch.has_room_for(&message(1 << 20)), "it is full then");
        assert!(!batch.has_room_for(&message((1 << 20) + 1)));
        assert!(Batch::default().has_room_for(&message(BYTES_MAX + 1)));
        assert_eq!((batch.ids.len(), batch.messages.len()), (3, 3));
    }
}

//! Kinds of queues.

use lapin::types::{AMQPValue, FieldTable, ShortString};

use crate::{BrokerError, Queue};

/// The highest priority of a queue with priorities. Each priority costs the server memory per queue: ten are
/// recommended.
const PRIORITIES: u8 = 10;

/// The longest name of a queue in the protocol, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// The kind of a queue without arguments.
pub(super) const PLAIN: &str = "plain";

/// The argument of a queue of which one consumer at a time gets messages.
const SINGLE_ACTIVE: &str = "x-single-active-consumer";

/// The kind of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Replicated where there are several servers: confirmed messages survive the loss of any one server.
    Quorum,
    /// A quorum queue of which one consumer at a time gets messages: the next one gets them when the connection of the last
    /// one has ended and its messages in flight are back. So no message overtakes another one.
    SingleActive,
    /// Stored on one server. Has priorities.
    Classic,
    /// Declared without arguments, as most clients declare theirs: of the type that the server has as its default. Where
    /// another client has declared it, it is as that client wanted it.
    Plain,
}

impl Kind {
    pub(super) fn of(queue: &Queue) -> Result<Self, BrokerError> {
        match queue.kind.as_deref() {
            None | Some("quorum") => Ok(Self::Quorum),
            Some("single-active") => Ok(Self::SingleActive),
            Some("classic") => Ok(Self::Classic),
            Some(PLAIN) => Ok(Self::Plain),
            Some(kind) => Err(BrokerError::Invalid(format!(
                "RabbitMQ does not have the kind {kind:?} of the queue {queue}: use quorum, single-active, classic or plain"
            ))),
        }
    }

    /// Whether an existing queue, which the server refuses to declare again for this reason, can be used nevertheless: it
    /// has other limits, timeouts or priorities, which belong to its user.
    pub(super) fn accepts_difference(self, why: &str) -> bool {
        let is_about = |argument: &str| why.contains(&format!("inequivalent arg '{argument}"));
        is_about("x-")
            && (self == Self::Plain || !is_about("x-queue-type"))
            && !(self == Self::SingleActive && is_about(SINGLE_ACTIVE))
    }

    /// The arguments with which a queue of this kind is declared.
    pub(super) fn arguments(self) -> FieldTable {
        let mut arguments = FieldTable::default();
        let kind = match self {
            Self::Quorum | Self::SingleActive => "quorum",
            Self::Classic => "classic",
            Self::Plain => return arguments,
        };
        arguments.insert("x-queue-type".into(), AMQPValue::LongString(kind.into()));
        if self == Self::SingleActive {
            arguments.insert(SINGLE_ACTIVE.into(), AMQPValue::Boolean(true));
        }
        if self == Self::Classic {
            arguments.insert("x-max-priority".into(), AMQPValue::LongInt(PRIORITIES.into()));
        }
        arguments
    }
}

/// Refuses an invalid queue.
pub(super) fn check(queue: &Queue) -> Result<(), BrokerError> {
    Kind::of(queue)?;
    name(queue).map(drop)
}

/// A queue's name in the protocol.
pub(super) fn name(queue: &Queue) -> Result<ShortString, BrokerError> {
    let name = &queue.name;
    let why = if name.is_empty() {
        "a queue has no name"
    } else if name.len() > NAME_BYTES_MAX {
        "a queue's name has more than 255 bytes"
    } else if name.starts_with("amq.") {
        "names that begin with amq. belong to the server"
    } else {
        return ShortString::try_new(name.as_str()).map_err(|error| BrokerError::Invalid(error.to_string()));
    };
    Err(BrokerError::Invalid(format!("{why}: {name:?}")))
}

/// Maps a priority from −10 to 10 to one of the queue's eleven: mostly two of ours share one.
pub(super) fn priority_out(priority: i8) -> u8 {
    let priority = priority.clamp(-10, 10);
    (priority + 10).unsigned_abs() / 2
}

/// The inverse.
pub(super) fn priority_in(priority: u8) -> i8 {
    // At most 10, so the conversion is exact.
    priority.min(PRIORITIES).cast_signed() * 2 - 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_keep_their_order() {
        let all: Vec<u8> = (-10..=10).map(priority_out).collect();
        assert!(all.is_sorted());
        assert_eq!((all[0], all[10], all[20]), (0, 5, 10));
        assert_eq!([0, 5, 10, 255].map(priority_in), [-10, 0, 10, 10]);
    }

    #[test]
    fn names_and_kinds_are_checked() {
        for bad in ["", "amq.gen-1", &"x".repeat(256)] {
            assert!(matches!(name(&Queue::new(bad)), Err(BrokerError::Invalid(_))), "{bad}");
        }
        let mut queue = Queue::new("x".repeat(255));
        assert_eq!((name(&queue).unwrap().as_str().len(), Kind::of(&queue)), (255, Ok(Kind::Quorum)));
        queue.kind = Some("single-active".to_owned());
        assert_eq!(Kind::of(&queue), Ok(Kind::SingleActive));
        queue.kind = Some("plain".to_owned());
        assert_eq!(Kind::of(&queue).unwrap().arguments(), FieldTable::default());
        queue.kind = Some("stream".to_owned());
        assert!(matches!(Kind::of(&queue), Err(BrokerError::Invalid(_))));
    }
}

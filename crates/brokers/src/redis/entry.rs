//! Converts messages to stream entries: body and headers are fields, which consumers in any language read by
//! name.

use bytes::Bytes;
use redis::{Cmd, cmd};

use crate::{BrokerError, Delivery, Message, Receipt};

const BODY: &str = "body";
const ID: &str = "windlass-id";
const KEY: &str = "windlass-key";

/// An entry as Redis returns it: its id, and its fields' names and values in turn; none for a deleted entry.
pub(super) type Entry = (String, Option<Vec<Bytes>>);

/// How long a stream keeps its entries.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kept {
    /// Until its consumer deletes it, as in a queue. Such a stream must exist, or nothing is added and the
    /// answer is nil: the creator of a stream must know that it is new.
    UntilDone,
    /// Until about this number of newer entries exist, or a few more. The first entry creates such a stream.
    Last(u64),
}

/// The command that adds a message to a stream.
pub(super) fn add(stream: &str, message: &Message, kept: Kept) -> Result<Cmd, BrokerError> {
    let mut command = cmd("XADD");
    command.arg(stream);
    match kept {
        Kept::UntilDone => command.arg("NOMKSTREAM"),
        // About this number, and never fewer: the server deletes whole blocks of entries.
        Kept::Last(count) => command.arg("MAXLEN").arg("~").arg(count),
    };
    command.arg("*");
    command.arg(BODY).arg(&message.body[..]).arg(ID).arg(&message.id);
    if !message.key.is_empty() {
        command.arg(KEY).arg(&message.key);
    }
    for (name, value) in &message.headers {
        if [BODY, ID, KEY].contains(&name.as_str()) {
            return Err(BrokerError::Invalid(format!(
                "a header cannot be called {name} in Redis: the entry has a field of that name already"
            )));
        }
        command.arg(name).arg(value);
    }
    Ok(command)
}

/// The size of a message, headers included.
pub(super) fn size(message: &Message) -> usize {
    let headers = message.headers.iter().map(|(name, value)| name.len() + value.len());
    message.id.len() + message.key.len() + message.body.len() + headers.sum::<usize>()
}

/// The message in an entry, from any sender.
pub(super) fn delivery(id: String, fields: &[Bytes], deliveries: u32) -> Delivery {
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    let mut message = Message::new(id.clone(), "", Bytes::new());
    for field in fields.chunks_exact(2) {
        match &field[0][..] {
            name if name == BODY.as_bytes() => message.body = field[1].clone(),
            name if name == ID.as_bytes() => message.id = text(&field[1]),
            name if name == KEY.as_bytes() => message.key = text(&field[1]),
            _ => message.headers.push((text(&field[0]), text(&field[1]))),
        }
    }
    Delivery { message, receipt: Receipt(id.into()), deliveries: Some(deliveries) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_add_is_read() {
        let fields: Vec<Bytes> = ["token", "t", "body", "{}", "x", "\u{e4}"].map(Bytes::from).into();
        let delivery = delivery("7-1".to_owned(), &fields, 2);
        assert_eq!((delivery.message.id.as_str(), &delivery.message.body[..]), ("7-1", &b"{}"[..]));
        assert_eq!(
            (delivery.message.header("token"), delivery.message.header("x")),
            (Some("t"), Some("\u{e4}"))
        );
        assert_eq!((&*delivery.receipt.0, delivery.deliveries), ("7-1", Some(2)));
    }

    #[test]
    fn a_header_does_not_take_the_place_of_the_body() {
        let message = Message::new("1", "", "x").with_header("body", "y");
        assert!(
            matches!(add("q", &message, Kept::UntilDone), Err(BrokerError::Invalid(text)) if text.contains("body"))
        );
    }
}

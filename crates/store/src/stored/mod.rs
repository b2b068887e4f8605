//! How state is written down: a compact encoding with a version in front, payloads beside it as they came.
//!
//! All formats are postcard of the core's types. In format 1 flows were graphs of plain steps (`before.rs`), in format 2
//! all rollbacks got the same parameters (`format_2.rs`), in format 3 no flow had an exclusive queue (`format_3.rs`). Only
//! flows with secret parameters are in format 5. A
//! fixture of every format ever written is kept in `tests/it/fixtures` and read by a test, so a change of these types
//! that would make old data unreadable is seen at once: such a change needs another format and a reader of the one
//! before.

mod before;
mod format_2;
mod format_3;

use std::sync::Arc;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use windlass_core::{
    Actor, Alarm, Device, Event, Flow, Input, Json, Leader, Lock, LockHolder, LockName, LockWaiter, Member,
    Message, Millis, Name, Parent, Presence, State, TaskId, Timestamp,
};

use self::{
    before::{FlowBefore, InputHeadBefore, StateBefore},
    format_2::Flow2,
    format_3::{Flow3, InputHead3, State3},
};
use crate::port::StoreError;

/// The format written today.
pub const FORMAT: u8 = 4;

/// The format of flows with secret parameters: the flow, then their names. Other flows are written as before, so that
/// servers of the version before can read them.
const FORMAT_OF_SECRETS: u8 = 5;

/// The oldest format that is read.
const FORMAT_FIRST: u8 = 1;

/// What was submitted with a task, but for its parameters.
#[derive(Serialize, Deserialize)]
struct InputHead {
    labels: Vec<(String, String)>,
    priority: i8,
    at: Option<Timestamp>,
    by: Option<Actor>,
    traceparent: Option<Box<str>>,
    created_at: Timestamp,
    deadline: Option<Millis>,
    parent: Option<Parent>,
    rerun_of: Option<TaskId>,
    unique: Option<Box<str>>,
    exclusive: Option<LockName>,
}

/// Room for the state of a task of a few steps, so that most of what is written is not moved as it grows.
const CAPACITY: usize = 256;

/// Writes `value` behind the format's number.
///
/// # Panics
/// When the type cannot be written, which is a defect of its `Serialize`: empty bytes in its place would be stored, and
/// could never be read again.
fn write<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(CAPACITY);
    bytes.push(FORMAT);
    match postcard::to_extend(value, bytes) {
        Ok(bytes) => bytes,
        Err(error) => panic!("{} cannot be written: {error}", std::any::type_name::<T>()),
    }
}

/// Reads what was written in today's format, or in format 1, 2 or 3 as a value of the type that it had then.
fn read<T, First, Second, Third>(bytes: &[u8], what: &str) -> Result<T, StoreError>
where
    T: DeserializeOwned,
    First: DeserializeOwned + Into<T>,
    Second: DeserializeOwned + Into<T>,
    Third: DeserializeOwned + Into<T>,
{
    match bytes.split_first() {
        Some((&FORMAT, body)) => decode(body, what),
        Some((3, body)) => decode::<Third>(body, what).map(Into::into),
        Some((2, body)) => decode::<Second>(body, what).map(Into::into),
        Some((&FORMAT_FIRST, body)) => decode::<First>(body, what).map(Into::into),
        Some((format, _)) => Err(StoreError::Damaged(format!(
            "{what} is of format {format}, and this version reads formats {FORMAT_FIRST} to {FORMAT_OF_SECRETS}: use the version that wrote it or a newer one"
        ))),
        None => Err(StoreError::Damaged(format!("{what} is empty"))),
    }
}

fn decode<T: DeserializeOwned>(body: &[u8], what: &str) -> Result<T, StoreError> {
    match postcard::take_from_bytes(body) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => {
            let (length, at) = (body.len() + 1, body.len() + 1 - rest.len());
            Err(StoreError::Damaged(format!(
                "{what} cannot be read: it ends at byte {at}, and there are {length}"
            )))
        }
        Err(error) => Err(StoreError::Damaged(format!("{what} cannot be read: {error}"))),
    }
}

macro_rules! stored {
    ($write:ident, $read:ident, $type:ty, $what:literal) => {
        stored!($write, $read, $type, [$type, $type, $type], $what);
    };
    ($write:ident, $read:ident, $type:ty, [$first:ty, $second:ty, $third:ty], $what:literal) => {
        #[doc = concat!("Writes ", $what, ".")]
        #[must_use]
        pub fn $write(value: &$type) -> Vec<u8> {
            write(value)
        }

        #[doc = concat!("Reads ", $what, ".")]
        ///
        /// # Errors
        /// When it is damaged or of a format not known here.
        pub fn $read(bytes: &[u8]) -> Result<$type, StoreError> {
            read::<$type, $first, $second, $third>(bytes, $what)
        }
    };
}

stored!(write_state, read_state, State, [StateBefore, State3, State3], "the state of a task");
stored!(write_member, read_member, Member, "a member of a step");
stored!(write_plain_flow, read_plain_flow, Flow, [FlowBefore, Flow2, Flow3], "a flow");
stored!(write_events, read_events, Vec<Event>, "events of a task");
stored!(write_message, read_message, Message, "a message");
stored!(write_lock_waiter, read_lock_waiter, LockWaiter, "who waits for a lock");
stored!(write_tenure, read_tenure, Tenure, "who has a lock");
stored!(write_alarm, read_alarm, Alarm, "an alarm");
stored!(write_device, read_device, Device, "a device");
stored!(write_presence, read_presence, Presence, "the presence of a device");

/// Writes a flow.
#[must_use]
pub fn write_flow(flow: &Flow) -> Vec<u8> {
    if flow.secret.is_empty() {
        return write_plain_flow(flow);
    }
    let mut bytes = write(&(flow, &flow.secret));
    bytes[0] = FORMAT_OF_SECRETS;
    bytes
}

/// Reads a flow.
///
/// # Errors
/// When it is damaged or of a format not known here.
pub fn read_flow(bytes: &[u8]) -> Result<Flow, StoreError> {
    match bytes.split_first() {
        Some((&FORMAT_OF_SECRETS, body)) => {
            let (flow, secret) = decode::<(Flow, Vec<Name>)>(body, "a flow")?;
            Ok(Flow { secret, ..flow })
        }
        _ => read_plain_flow(bytes),
    }
}

/// Who has a lock. The first two are written as an `Option` of a holder is. Servers that do not know the third one take
/// the lock as damaged, and close it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tenure {
    /// Nobody.
    Free,
    /// An execution, or a task as a whole.
    Held(LockHolder),
    /// A process that leads.
    Led(LockHolder, Arc<Leader>),
}

impl Tenure {
    /// Who has this lock.
    #[must_use]
    pub fn of(lock: &Lock) -> Self {
        match (lock.holder, &lock.leader) {
            (None, _) => Self::Free,
            (Some(holder), None) => Self::Held(holder),
            (Some(holder), Some(leader)) => Self::Led(holder, leader.clone()),
        }
    }

    /// Who has it.
    #[must_use]
    pub fn holder(&self) -> Option<LockHolder> {
        match self {
            Self::Free => None,
            Self::Held(holder) | Self::Led(holder, _) => Some(*holder),
        }
    }

    /// Puts it into a lock that was read.
    pub fn restore(self, lock: &mut Lock) {
        lock.holder = self.holder();
        lock.leader = match self {
            Self::Led(_, leader) => Some(leader),
            Self::Free | Self::Held(_) => None,
        };
    }
}

/// Writes what was submitted with a task, but for its parameters.
#[must_use]
pub fn write_input(input: &Input) -> Vec<u8> {
    write(&InputHead {
        labels: input.labels.clone().into_iter().collect(),
        priority: input.priority,
        at: input.at,
        by: input.by.clone(),
        traceparent: input.traceparent.clone(),
        created_at: input.created_at,
        deadline: input.deadline,
        parent: input.parent,
        rerun_of: input.rerun_of,
        unique: input.unique.clone(),
        exclusive: input.exclusive.clone(),
    })
}

/// Reads what was submitted with a task.
///
/// # Errors
/// When it is damaged or of a format not known here.
pub fn read_input(head: &[u8], params: &str) -> Result<Input, StoreError> {
    let head = read::<InputHead, InputHeadBefore, InputHead3, InputHead3>(head, "the input of a task")?;
    Ok(Input {
        params: Json::from_stored(params),
        labels: head.labels.into_iter().collect(),
        priority: head.priority,
        at: head.at,
        deadline: head.deadline,
        parent: head.parent,
        rerun_of: head.rerun_of,
        unique: head.unique,
        exclusive: head.exclusive,
        by: head.by,
        traceparent: head.traceparent,
        created_at: head.created_at,
    })
}

#[cfg(test)]
mod tests {
    use serde::ser::{Error as _, Serializer};

    use super::*;

    struct Unwritable;

    impl Serialize for Unwritable {
        fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(S::Error::custom("no"))
        }
    }

    #[test]
    #[should_panic(expected = "cannot be written")]
    fn what_cannot_be_written_is_not_stored_as_nothing() {
        write(&Unwritable);
    }
}

//! Codes in columns, the same in every product.

use windlass_core::{ActKey, Direction, Ending, Free, Name, TaskId, TaskStatus, Wakeup};
use windlass_store::{PollState, Sender, StoreError};

/// The ended statuses of tasks, with their codes.
pub(crate) const ENDED: [(TaskStatus, i64); 4] = [
    (TaskStatus::Succeeded, 1),
    (TaskStatus::RolledBack, 2),
    (TaskStatus::Failed, 3),
    (TaskStatus::Cancelled, 4),
];

/// The code of how a task ended.
pub(crate) fn ending_code(ending: Ending) -> i64 {
    match ending {
        Ending::Succeeded => 1,
        Ending::RolledBack => 2,
        Ending::Failed => 3,
        Ending::Cancelled => 4,
    }
}

/// An act as a number: 31 bits of step, 32 of member, one of direction. A flow has 256 steps at most. Numbers are in the
/// order of the keys.
pub(crate) fn act_code(key: ActKey) -> i64 {
    let step = i64::try_from(key.step).unwrap_or(i64::MAX) & 0x3fff_ffff;
    let backward = i64::from(key.direction == Direction::Rollback);
    step << 33 | i64::from(key.member) << 1 | backward
}

/// The act that [`act_code`] wrote.
pub(crate) fn act_key(code: i64) -> ActKey {
    let direction = if code & 1 == 1 { Direction::Rollback } else { Direction::Forward };
    ActKey {
        step: usize::try_from(code >> 33).unwrap_or(usize::MAX),
        member: u32::try_from(code >> 1 & 0xffff_ffff).unwrap_or(u32::MAX),
        direction,
    }
}

/// What a row of waits is of, as a number: the start before the acts, the deadline behind them.
pub(crate) fn wakeup_code(wakeup: Wakeup) -> i64 {
    match wakeup {
        Wakeup::Start => -1,
        Wakeup::Act(key) => act_code(key),
        Wakeup::Deadline => i64::MAX,
    }
}

/// What [`wakeup_code`] wrote.
pub(crate) fn wakeup(code: i64) -> Wakeup {
    match code {
        ..0 => Wakeup::Start,
        i64::MAX => Wakeup::Deadline,
        code => Wakeup::Act(act_key(code)),
    }
}

/// What happens to an attempt that no session has claimed, as a number.
pub(crate) fn free_code(free: Free) -> i16 {
    match free {
        Free::HandOut => 0,
        Free::Park => 1,
        Free::GiveUp => 2,
    }
}

/// What [`free_code`] wrote.
pub(crate) fn free(code: i16) -> Free {
    match code {
        1 => Free::Park,
        2 => Free::GiveUp,
        _ => Free::HandOut,
    }
}

/// The state of a session's poll as a number: twice the number of the poll, and one more once the poll is closed; before
/// any poll it is 1. Reports may arrive in any order: the greatest number is the current state.
pub(crate) fn poll_code(poll: PollState) -> i64 {
    match poll {
        PollState::Unknown => 1,
        PollState::Open(number) => to_integer(number).saturating_mul(2).max(1),
        PollState::Closed(number) => to_integer(number).saturating_mul(2).saturating_add(1),
    }
}

/// The number of the poll whose greatest [`poll_code`] this is.
pub(crate) fn poll_number(code: i64) -> u64 {
    from_integer(code / 2)
}

/// Whether the poll is open whose greatest [`poll_code`] this is.
pub(crate) fn is_poll_open(code: i64) -> bool {
    code % 2 == 0
}

/// What attempts take turns by and are counted under: one without a key is unlike every key, also the empty one.
pub(crate) fn fairness_bytes(key: Option<&str>) -> Vec<u8> {
    key.map_or_else(Vec::new, |key| [b"=", key.as_bytes()].concat())
}

/// The key that [`fairness_bytes`] wrote.
pub(crate) fn fairness_key(bytes: &[u8]) -> Option<String> {
    let key = bytes.strip_prefix(b"=")?;
    Some(String::from_utf8_lossy(key).into_owned())
}

/// The first byte of a sender: a task, or a lock by its name.
const TASK_SENDER: u8 = 0;
const LOCK_SENDER: u8 = 1;

/// The sender of a message, in the order of senders.
pub(crate) fn sender_bytes(sender: &Sender) -> Vec<u8> {
    match sender {
        Sender::Task(task) => [&[TASK_SENDER], &task.to_bytes()[..]].concat(),
        Sender::Lock(name) => [&[LOCK_SENDER], name.as_bytes()].concat(),
    }
}

/// The sender that [`sender_bytes`] wrote.
pub(crate) fn sender(bytes: &[u8]) -> Result<Sender, StoreError> {
    let read = match bytes.split_first() {
        Some((&TASK_SENDER, id)) => id.try_into().ok().map(|id| Sender::Task(TaskId::from_bytes(id))),
        Some((&LOCK_SENDER, name)) => {
            let name = std::str::from_utf8(name).ok().and_then(|name| Name::new(name).ok());
            name.map(Sender::Lock)
        }
        _ => None,
    };
    read.ok_or_else(|| StoreError::Damaged("a message has no sender that could be read".to_owned()))
}

/// Numbers of events and the like: integers of databases have a sign, ours do not reach it.
pub(crate) fn to_integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Reverses [`to_integer`].
pub(crate) fn from_integer(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Numbers of attempts and the like.
pub(crate) fn small(number: i64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acts_come_back_as_they_were() {
        for (step, member) in [(0, 0), (255, 9_999), (3, u32::MAX)] {
            for direction in [Direction::Forward, Direction::Rollback] {
                let key = ActKey { step, member, direction };
                assert_eq!(act_key(act_code(key)), key);
                assert!(act_code(key) >= 0);
                assert_eq!(wakeup(wakeup_code(Wakeup::Act(key))), Wakeup::Act(key));
            }
        }
        assert_eq!(wakeup(wakeup_code(Wakeup::Start)), Wakeup::Start);
        assert_eq!(wakeup(wakeup_code(Wakeup::Deadline)), Wakeup::Deadline);
    }

    #[test]
    fn every_ending_is_listed_under_its_status() {
        for (ending, status) in [
            (Ending::Succeeded, TaskStatus::Succeeded),
            (Ending::RolledBack, TaskStatus::RolledBack),
            (Ending::Failed, TaskStatus::Failed),
            (Ending::Cancelled, TaskStatus::Cancelled),
        ] {
            assert!(ENDED.contains(&(status, ending_code(ending))));
        }
    }

    #[test]
    fn the_greatest_number_of_polls_is_their_state() {
        let reports = [
            PollState::Unknown,
            PollState::Open(0),
            PollState::Open(2),
            PollState::Closed(1),
            PollState::Open(1),
            PollState::Closed(2),
            PollState::Open(2),
            PollState::Unknown,
            PollState::Open(5),
        ];
        let (mut known, mut code) = ((0, false), poll_code(PollState::Unknown));
        for poll in reports {
            known = poll.after(known);
            code = code.max(poll_code(poll));
            assert_eq!((poll_number(code), is_poll_open(code)), known, "{poll:?}");
        }
    }

    #[test]
    fn senders_come_back_and_keep_their_order() {
        let lock = |name: &str| Sender::Lock(Name::new(name).unwrap());
        let senders = [Sender::Task(TaskId(0)), Sender::Task(TaskId(u128::MAX)), lock("a"), lock("b")];
        let bytes = senders.each_ref().map(sender_bytes);
        assert!(bytes.is_sorted());
        for (was, bytes) in senders.iter().zip(&bytes) {
            assert_eq!(sender(bytes).as_ref(), Ok(was));
        }
        assert!(sender(&[]).is_err() && sender(&[0, 1]).is_err() && sender(&[1]).is_err());
    }
}

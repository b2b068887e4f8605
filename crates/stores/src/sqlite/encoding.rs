//! How small things are written in columns: statuses, acts and ids as SQLite knows them.

use rusqlite::{Row, types::Type};
use windlass_core::{ActKey, Direction, Ending, TaskId, TaskStatus};

/// What `final.status` can be, newest listed in this order.
pub(super) const ENDED: [(TaskStatus, i64); 4] = [
    (TaskStatus::Succeeded, 1),
    (TaskStatus::RolledBack, 2),
    (TaskStatus::Failed, 3),
    (TaskStatus::Cancelled, 4),
];

/// `final.status` of a task that ended so.
pub(super) fn ending_code(ending: Ending) -> i64 {
    match ending {
        Ending::Succeeded => 1,
        Ending::RolledBack => 2,
        Ending::Failed => 3,
        Ending::Cancelled => 4,
    }
}

/// `history.act` and `log.act`: 31 bits of step, 32 of member, one of direction. A flow has 256 steps at most.
pub(super) fn act_code(key: ActKey) -> i64 {
    let step = i64::try_from(key.step).unwrap_or(i64::MAX) & 0x3fff_ffff;
    let backward = i64::from(key.direction == Direction::Rollback);
    step << 33 | i64::from(key.member) << 1 | backward
}

/// The act that [`act_code`] wrote.
pub(super) fn act_key(code: i64) -> ActKey {
    let direction = if code & 1 == 1 { Direction::Rollback } else { Direction::Forward };
    ActKey {
        step: usize::try_from(code >> 33).unwrap_or(usize::MAX),
        member: u32::try_from(code >> 1 & 0xffff_ffff).unwrap_or(u32::MAX),
        direction,
    }
}

/// Reads a task's id.
pub(super) fn task_id(row: &Row<'_>, column: usize) -> rusqlite::Result<TaskId> {
    match row.get_ref(column)?.as_blob().ok().and_then(|bytes| bytes.try_into().ok()) {
        Some(bytes) => Ok(TaskId::from_bytes(bytes)),
        None => {
            Err(rusqlite::Error::InvalidColumnType(column, "a task id of 16 bytes".to_owned(), Type::Blob))
        }
    }
}

/// Numbers of events and the like: SQLite's integers have a sign, ours do not reach it.
pub(super) fn to_integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The way back of [`to_integer`].
pub(super) fn from_integer(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
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
            }
        }
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
}

//! Locks as rows: queries, which of the locks are free, and the locks that are not stored.

use std::collections::HashMap;

use windlass_core::{Lock, LockName};
use windlass_store::{DamagedTask, Quarantine, StoreError, stored};

use crate::rows::{Columns, Fault, Link, from_integer, lock, sound};

/// Statements that read locks. A lock is one row for each waiter, or one without: `name, version, holder, place, waiter`.
pub(crate) trait LockSql: Link {
    /// The floor, as [`LockSql::lock_floor`], and behind it these locks by name.
    fn locks_by_name(names: &[LockName]) -> Self::Script<'_>;

    /// The version of the locks that are not stored.
    fn lock_floor() -> Self::Script<'static>;

    /// Stored locks that may be free, by name.
    fn free_locks(limit: usize) -> Self::Script<'static>;

    /// Locks that may be held, with names above `after`, by name.
    fn locks(after: Option<&LockName>, limit: usize) -> Self::Script<'_>;
}

/// The locks with these names, in this order. Where the floor rises after it was read, the commit is a conflict.
pub(crate) async fn locks_by_name<D: LockSql>(
    link: &mut D,
    quarantine: &Quarantine,
    names: &[LockName],
) -> Result<Vec<Lock>, Fault> {
    let answers = link.send(D::locks_by_name(names)).await?;
    let [floor, locks] = &answers[..] else { return Ok(Vec::new()) };
    Ok(in_order(names, read_locks(locks, quarantine)?, floor_of(floor)?))
}

/// The floor of locks: the version of those that are not stored.
pub(crate) async fn lock_floor<D: LockSql>(link: &mut D) -> Result<u64, Fault> {
    floor_of(&link.rows(D::lock_floor()).await?)
}

fn floor_of(rows: &[impl Columns]) -> Result<u64, Fault> {
    Ok(rows.first().map(|row| row.number(0)).transpose()?.map_or(0, from_integer))
}

/// At most `limit` locks that are stored and free.
pub(crate) async fn free_locks<D: LockSql>(
    link: &mut D,
    quarantine: &Quarantine,
    limit: usize,
) -> Result<Vec<Lock>, Fault> {
    let locks = read_locks(&link.rows(D::free_locks(limit)).await?, quarantine)?;
    Ok(locks.into_iter().filter(Lock::is_free).collect())
}

/// At most `limit` locks with names above `after`, by name.
pub(crate) async fn locks<D: LockSql>(
    link: &mut D,
    quarantine: &Quarantine,
    after: Option<&LockName>,
    limit: usize,
) -> Result<Vec<Lock>, Fault> {
    read_locks(&link.rows(D::locks(after, limit)).await?, quarantine)
}

/// Locks from rows in the order of their names. Rows that cannot be read go to the quarantine.
fn read_locks(rows: &[impl Columns], quarantine: &Quarantine) -> Result<Vec<Lock>, Fault> {
    let mut locks: Vec<Lock> = Vec::new();
    for row in rows {
        let of = row.any_text(0);
        if locks.last().is_none_or(|lock| lock.name.as_str() != of) {
            let unknown = |fault: &StoreError| DamagedTask::unknown_lock(&of, fault);
            let Some(name) = sound(quarantine, row.name(0), unknown)? else { continue };
            let tenure = stored::read_tenure(row.bytes(2)?);
            locks.push(lock(quarantine, name, from_integer(row.number(1)?), tenure)?);
        }
        let waiter = row.optional_number(3)?.zip(row.optional_bytes(4)?);
        if let (Some((place, waiter)), Some(lock)) = (waiter, locks.last_mut()) {
            let place = from_integer(place);
            let damaged = |fault: &StoreError| DamagedTask::lock_waiter(&of, place, None, fault);
            let waiter = quarantine.readable_row(stored::read_lock_waiter(waiter), damaged)?;
            if let Some(waiter) = waiter {
                lock.restore(place, waiter);
            }
        }
    }
    Ok(locks)
}

/// How long the column `holder` is of a free lock; it is longer where the lock has a holder. Nobody waits for a free lock,
/// so the length alone decides.
pub(crate) fn free_holder_bytes() -> i32 {
    i32::try_from(stored::write_tenure(&stored::Tenure::Free).len()).unwrap_or(i32::MAX)
}

/// The locks with these names, in this order. One that is not stored is free and has the version of the floor.
fn in_order(names: &[LockName], stored: Vec<Lock>, floor: u64) -> Vec<Lock> {
    let mut stored: HashMap<LockName, Lock> =
        stored.into_iter().map(|lock| (lock.name.clone(), lock)).collect();
    let lock = |name: &LockName| stored.remove(name).unwrap_or_else(|| Lock::new(name.clone(), floor));
    names.iter().map(lock).collect()
}

#[cfg(test)]
mod tests {
    use windlass_core::{ActKey, LockHolder, LockOwner, TaskId, Timestamp};

    use super::*;

    #[test]
    fn a_held_lock_is_never_taken_for_a_free_one() {
        let owner = LockOwner { task: TaskId(0), key: ActKey::forward(0), turn: 0 };
        let holder = stored::Tenure::Held(LockHolder { owner, fence: 0, since: Timestamp(0) });
        assert!(stored::write_tenure(&holder).len() > free_holder_bytes() as usize);
    }
}

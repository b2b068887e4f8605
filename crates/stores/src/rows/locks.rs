//! Locks as rows: which of them are free, and those that are not stored.

use std::collections::HashMap;

use windlass_core::{Lock, LockName};
use windlass_store::stored;

/// How long the column `holder` is of a lock that nobody has; longer of one that somebody has. Nobody waits for a free
/// lock, so it says all.
pub(crate) fn free_holder_bytes() -> i32 {
    i32::try_from(stored::write_lock_holder(&None).len()).unwrap_or(i32::MAX)
}

/// The locks with these names, in this order. One that is not stored is free and has the version of the floor.
pub(crate) fn in_order(names: &[LockName], stored: Vec<Lock>, floor: u64) -> Vec<Lock> {
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
        let holder = Some(LockHolder { owner, fence: 0, since: Timestamp(0) });
        assert!(stored::write_lock_holder(&holder).len() > free_holder_bytes() as usize);
    }
}

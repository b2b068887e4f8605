//! What an import fills, how it keeps servers away meanwhile, and what an export reads of keys.

use windlass_store::{ImportStage, StoreError, SubmitKey};

/// The tables with what a store keeps of tasks and of all that belongs to them, in every product.
pub(crate) const FILLED: [&str; 18] = [
    "windlass_task",
    "windlass_wait",
    "windlass_member",
    "windlass_result",
    "windlass_history",
    "windlass_outbox",
    "windlass_submit_key",
    "windlass_unique_task",
    "windlass_remains",
    "windlass_message",
    "windlass_lock",
    "windlass_lock_waiter",
    "windlass_alarm",
    "windlass_flow",
    "windlass_queue",
    "windlass_limit",
    "windlass_begun",
    "windlass_log",
];

/// How many tasks wait to be taken in.
pub(crate) const ENQUEUED: &str =
    "SELECT count(*) FROM windlass_enqueued WHERE refused IS NULL AND stands_for IS NULL";

/// Why an export ends whose connection is lost: another one would read what came after.
pub(crate) const SNAPSHOT_LOST: &str =
    "the connection was lost by which the store was read as of one moment: begin anew";

/// What stands for the lowest version that servers must know while an import fills the tables: none does.
pub(crate) const IMPORTING: i64 = i32::MAX as i64;

/// The same while an import sees whether the tables are empty and nobody works on them.
pub(crate) const RESERVED: i64 = IMPORTING - 1;

/// What an import is doing, by what stands for the lowest version that servers must know.
pub(crate) fn stage_of(readable_from: Option<i64>) -> ImportStage {
    match readable_from {
        Some(IMPORTING) => ImportStage::Filling,
        Some(RESERVED) => ImportStage::Reserved,
        _ => ImportStage::None,
    }
}

/// What then stands for the lowest version that servers must know, which is `readable_from` without an import.
pub(crate) fn mark_of(stage: ImportStage, readable_from: i64) -> i64 {
    match stage {
        ImportStage::None => readable_from,
        ImportStage::Reserved => RESERVED,
        ImportStage::Filling => IMPORTING,
    }
}

/// An idempotency key from its row.
pub(crate) fn submit_key(scope: &[u8], fingerprint: &[u8]) -> Result<SubmitKey, StoreError> {
    let hash = |bytes: &[u8]| {
        let wrong = |_| StoreError::Damaged("an idempotency key has not 32 bytes".to_owned());
        bytes.try_into().map_err(wrong)
    };
    Ok(SubmitKey { scope: hash(scope)?, fingerprint: hash(fingerprint)? })
}

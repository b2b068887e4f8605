//! What an import fills.

/// The tables with what a store keeps of tasks and of all that belongs to them, in every product.
pub(crate) const FILLED: [&str; 17] = [
    "windlass_task",
    "windlass_wait",
    "windlass_member",
    "windlass_result",
    "windlass_history",
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

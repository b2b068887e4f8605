//! The tables: what each row has, and how it is written and read.

pub(super) mod claim_rows;
pub(super) mod directory;
pub(super) mod history_rows;
pub(super) mod lock_rows;
pub(super) mod member_rows;
pub(super) mod outbox;
pub(super) mod record_rows;
pub(super) mod task_rows;
pub(super) mod touched;
pub(super) mod unique_rows;

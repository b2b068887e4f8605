//! Committing a batch of changes: what it touches is read and locked, it is decided on what was found, and written.

pub(crate) mod commit;
mod decide;
pub(crate) mod find;
mod found;
mod keys;
mod writes;

pub(crate) use decide::decide;
pub(crate) use found::{Found, FoundLock, FoundWait};
pub(crate) use keys::Keys;
pub(crate) use writes::{SubmitKeyWrite, TaskWrite, WaitBefore, WaitWrite, Writes};

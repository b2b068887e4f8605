//! From a command to a commit: the [`Committer`] takes operations from the [`Inbox`] in batches, lets the core decide
//! them and commits the changes.

mod alarm_work;
pub(crate) mod audit;
mod batch;
mod children;
mod committer;
pub(crate) mod device_log;
mod evaluation;
mod follow_ups;
mod grants;
pub(crate) mod inbox;
mod joins;
pub(crate) mod latest_time;
mod lock_work;
mod part;
mod reports;
pub(crate) mod task_cache;
mod task_work;

pub use committer::Committer;
pub use evaluation::Elsewhere;
pub use inbox::Inbox;

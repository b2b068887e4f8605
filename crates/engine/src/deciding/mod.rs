//! From a command to a commit: what waits to be decided ([`Inbox`]) is taken in batches, decided by the core and committed
//! by the [`Committer`].

mod alarm_work;
mod batch;
mod children;
mod committer;
mod evaluation;
pub(crate) mod inbox;
pub(crate) mod latest_time;
mod lock_work;
pub(crate) mod task_cache;
mod task_work;

pub use committer::Committer;
pub use evaluation::Elsewhere;
pub use inbox::Inbox;

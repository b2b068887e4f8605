//! The services that make the engine move. Each has `run_once`; the program loops over them.

mod alarm_work;
mod announcer;
mod batch;
mod children;
mod clerk;
mod committer;
mod courier;
mod damage_reporter;
mod deciding;
mod dispatcher;
mod janitor;
mod lease_keeper;
mod lock_work;
mod lookout;
mod membership;
mod messenger;
mod reclaimer;
mod task_work;
mod timekeeper;
mod trouble;

pub use announcer::{Announcer, WriteEvent};
pub use clerk::{Clerk, ReadEnqueued, Unreadable};
pub use committer::Committer;
pub use courier::{Courier, CourierSettings, RESULTS_GROUP, WriteStep};
pub use damage_reporter::DamageReporter;
pub use deciding::Elsewhere;
pub use dispatcher::Dispatcher;
pub use janitor::Janitor;
pub use lease_keeper::LeaseKeeper;
pub(crate) use lease_keeper::LeaseRounds;
pub use lookout::Lookout;
pub use membership::{HEARTBEAT_EVERY, Membership, SERVICE_LEASE};
pub use messenger::Messenger;
pub use reclaimer::Reclaimer;
pub use timekeeper::Timekeeper;
pub use trouble::Trouble;

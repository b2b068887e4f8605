//! The services that make the engine progress. Each has `run_once`; the program loops over them.

pub(crate) mod announcing;
mod change_poller;
mod damage_reporter;
mod dispatcher;
mod enqueue_importer;
mod janitor;
pub(crate) mod leading;
mod lease_keeper;
mod membership;
mod messenger;
pub(crate) mod offering;
mod outbox_relay;
mod queue_publisher;
mod reclaimer;
mod rounds;
mod timekeeper;
mod trouble;

pub use change_poller::ChangePoller;
pub use damage_reporter::DamageReporter;
pub use dispatcher::Dispatcher;
pub use enqueue_importer::{EnqueueImporter, ReadEnqueued, Unreadable};
pub use janitor::Janitor;
pub use lease_keeper::LeaseKeeper;
pub(crate) use lease_keeper::LeaseRounds;
pub use membership::{HEARTBEAT_EVERY, Membership, SERVICE_LEASE};
pub(crate) use messenger::MESSAGES_MAX;
pub use messenger::Messenger;
pub use offering::OfferedAt;
pub use outbox_relay::{OutboxRelay, WriteEvent};
pub use queue_publisher::{QueuePublisher, QueuePublisherSettings, RESULTS_GROUP, WriteStep};
pub use reclaimer::Reclaimer;
pub use rounds::*;
pub use timekeeper::Timekeeper;
pub use trouble::Trouble;

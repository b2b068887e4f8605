//! The engine itself: what it is made of, and how it refuses.
//!
//! Tasks are taken in in `submit.rs`, told things in `tell.rs`, asked about in `ask.rs` and `why`; workers are
//! heard in `exchange`.

use std::{
    pin::pin,
    sync::{Arc, OnceLock},
};

use futures_util::future::select;
use thiserror::Error;
use windlass_core::{AlarmId, AlarmRejection, LockName, LockRejection, Millis, Name, Rejection, TaskId};

use crate::{
    Counts, Feed, RerunRefusal, Rounds, Signal, Tokens,
    announcing::Announcing,
    exchange::Dispatching,
    ids::TaskIds,
    inbox::Inbox,
    known::KnownTasks,
    latest_time::LatestTime,
    leading::Leading,
    offering::Offering,
    ports::{Now, Store, StoreError},
    progress::ProgressBoard,
    queue_rates::QueueRates,
    services::LeaseRounds,
    sessions::LocalSessions,
};

/// Takes tasks in, hands attempts out, hears reports. Cheap to share; see the crate's page for the services
/// that make it move.
pub struct Engine {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) inbox: Inbox,
    pub(crate) known: KnownTasks,
    pub(crate) tokens: Tokens,
    pub(crate) sessions: LocalSessions,
    pub(crate) dispatching: Dispatching,
    pub(crate) feed: Feed,
    pub(crate) timers: Signal,
    /// Set when the store is to be told of sessions soon.
    pub(crate) polls_closed: Signal,
    pub(crate) lease_rounds: LeaseRounds,
    pub(crate) counts: Counts,
    pub(crate) rounds: Rounds,
    pub(crate) progress: ProgressBoard,
    pub(crate) rates: QueueRates,
    /// When the lease keeper had its first round: since then it is known which workers there are.
    pub(crate) began: OnceLock<Now>,
    pub(crate) ids: TaskIds,
    pub(crate) leading: Leading,
    pub(crate) latest: LatestTime,
    pub(crate) offering: Offering,
    pub(crate) announcing: Announcing,
}

/// Why the engine did not do what it was asked. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EngineError {
    /// There is no such flow.
    #[error("there is no flow {0}")]
    UnknownFlow(String),
    /// There is no such task.
    #[error("there is no task {0}")]
    UnknownTask(TaskId),
    /// There is no such alarm.
    #[error("there is no alarm {0}")]
    UnknownAlarm(AlarmId),
    /// What was submitted has nothing by which its flow tells tasks that are the same.
    #[error("`unique` of the flow {flow}: {message}")]
    NoUniqueKey {
        /// The flow.
        flow: Name,
        /// What its key evaluates to.
        message: String,
    },
    /// Another task has the unique key, and its flow asks for a refusal then.
    #[error("task {task} of the flow {flow} exists and has the same unique key")]
    UniqueConflict {
        /// The flow.
        flow: Name,
        /// The task that exists.
        task: TaskId,
    },
    /// The same key was used for something else.
    #[error("this idempotency key was used for task {task} with another body")]
    KeyReused {
        /// The task it was used for.
        task: TaskId,
    },
    /// The same was submitted before under the same key, and its task is not there: it was deleted after its end, or it did
    /// not get to the disk.
    #[error("this idempotency key was used for task {task}, which is not there")]
    KeyWithoutTask {
        /// The task that was submitted.
        task: TaskId,
    },
    /// The rules refuse it.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The alarm's rules refuse it.
    #[error(transparent)]
    AlarmRejected(#[from] AlarmRejection),
    /// The task cannot be run again like this.
    #[error(transparent)]
    RerunRefused(#[from] RerunRefusal),
    /// Too much waits to be written: come back later.
    #[error("too many requests wait to be written")]
    Overloaded,
    /// The number of a worker's call is too far above those of its earlier calls.
    #[error(
        "`seq` is {seq}, and the session's last call had {last}: number the calls of a session one by one"
    )]
    SeqLeap {
        /// The highest number that the session's calls had.
        last: u64,
        /// The number of the refused call.
        seq: u64,
    },
    /// Others changed it each time it was tried: try again.
    #[error("others changed it at the same time")]
    Conflict,
    /// Nobody has this lock, and nobody waits for it.
    #[error("there is no lock {0} that anybody has or waits for")]
    UnknownLock(LockName),
    /// The lock's rules refuse it.
    #[error(transparent)]
    LockRejected(#[from] LockRejection),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Engine {
    /// An engine over `store`. `random` tells this server's ids apart from others'.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, random: u64) -> Self {
        let tokens = Tokens::new(&store.token_key());
        Self {
            known: KnownTasks::new(store.clone()),
            store,
            inbox: Inbox::default(),
            tokens,
            sessions: LocalSessions::default(),
            dispatching: Dispatching::default(),
            feed: Feed::default(),
            timers: Signal::default(),
            polls_closed: Signal::default(),
            lease_rounds: LeaseRounds::default(),
            counts: Counts::default(),
            rounds: Rounds::default(),
            progress: ProgressBoard::default(),
            rates: QueueRates::default(),
            began: OnceLock::new(),
            ids: TaskIds::new(random),
            leading: Leading::default(),
            latest: LatestTime::default(),
            offering: Offering::default(),
            announcing: Announcing::default(),
        }
    }

    /// What waits to be decided; the program waits on it and runs [`crate::services::Committer`].
    pub fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// Set when something new is due; the program looks at [`Engine::next_wake`] then.
    pub fn timers(&self) -> &Signal {
        &self.timers
    }

    /// Set when a worker's connection was closed; the program runs [`crate::services::LeaseKeeper`] then.
    pub fn polls_closed(&self) -> &Signal {
        &self.polls_closed
    }

    /// Waits until something new is due, or other servers on the store may have made something ready or due.
    pub async fn stirred(&self) {
        let (timers, news) = (pin!(self.timers.wait()), self.store.news());
        select(timers, news).await;
    }

    /// The wall time is ahead of the date by this much, because the date was set back.
    pub fn is_ahead(&self, by: Millis) {
        self.store.is_ahead(by);
    }

    /// Whether other servers may work on the same store.
    #[must_use]
    pub fn shares_its_store(&self) -> bool {
        self.store.is_shared()
    }

    /// Waits until other servers on the store may have made something ready.
    pub async fn news(&self) {
        self.store.news().await;
    }

    /// How often something was sent to a server of the store and waited for.
    #[must_use]
    pub fn store_round_trips(&self) -> Option<u64> {
        self.store.round_trips()
    }

    /// How many bytes the parameters and results of tasks take in memory, where the store keeps them there.
    #[must_use]
    pub fn resident_payload_bytes(&self) -> Option<u64> {
        self.store.resident_bytes()
    }

    /// How much was committed.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// How often rounds of this server's services have failed.
    pub fn rounds(&self) -> &Rounds {
        &self.rounds
    }

    /// How many tasks this server has met whose rows are damaged.
    pub fn damaged_tasks(&self) -> usize {
        self.store.quarantine().len()
    }

    /// Live events.
    pub fn feed(&self) -> &Feed {
        &self.feed
    }

    /// In how long a service has something to do, where that is known.
    pub fn next_wake(&self, now: Now) -> Option<Millis> {
        [self.store.next_wake(now), self.next_poll_end(now)].into_iter().flatten().min()
    }

    /// In how long a poll has waited long enough.
    pub fn next_poll_end(&self, now: Now) -> Option<Millis> {
        self.sessions.next_expiry().map(|at| Millis(at.0.saturating_sub(now.mono.0)))
    }
}

//! The engine itself: its parts and its errors.
//!
//! Tasks are submitted and commanded in `commands`, and read in `queries`; calls of workers are processed in
//! `exchange`.

use std::{
    future::pending,
    pin::pin,
    sync::{
        Arc, OnceLock, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::future::select;
use thiserror::Error;
use windlass_core::{
    AlarmId, AlarmRejection, DefinitionFault, LockName, LockRejection, Millis, Name, Rejection, RolloutFault,
    RolloutRejection, TaskId, TriggerRejection,
};
use windlass_schedule::ScheduleError;
use windlass_store::{Now, Signal, Store, StoreError, TaskIds};

use crate::{
    Counts, Feed, Observer, RerunRefusal, Rounds, Sampling, Tokens,
    commands::{
        ACCESS_TOKENS_MAX, AccessTokenFault, DEVICES_APPLIED_MAX, FlowsOnDisk, ROLLOUTS_MAX,
        ROLLOUTS_OPEN_MAX, TRIGGERS_MAX, leaders::Watched,
    },
    deciding::{inbox::Inbox, latest_time::LatestTime, task_cache::TaskCache},
    exchange::{Dispatching, sessions::LocalSessions},
    queries::{progress::ProgressBoard, queue_rates::QueueRates},
    services::{DevicesChanged, StoredLeases, announcing::Announcing, leading::Leading, offering::Offering},
};

/// Accepts tasks, hands out attempts, processes reports. Cheap to share; see the crate's page for the services that
/// make it progress.
pub struct Engine {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) inbox: Inbox,
    pub(crate) task_cache: TaskCache,
    pub(crate) tokens: Tokens,
    pub(crate) sessions: LocalSessions,
    pub(crate) dispatching: Dispatching,
    pub(crate) feed: Feed,
    pub(crate) timers: Signal,
    /// Set when messages wait in the store that this server has not posted to its inbox.
    pub(crate) messages: Signal,
    /// Set when sessions should be renewed in the store soon.
    pub(crate) polls_closed: Signal,
    pub(crate) stored_leases: StoredLeases,
    pub(crate) counts: Counts,
    pub(crate) rounds: Rounds,
    pub(crate) progress: ProgressBoard,
    pub(crate) rates: QueueRates,
    /// When the lease keeper had its first round: from then on this server knows its workers.
    pub(crate) began: OnceLock<Now>,
    pub(crate) ids: TaskIds,
    pub(crate) leading: Leading,
    pub(crate) watched: Watched,
    pub(crate) latest: LatestTime,
    pub(crate) offering: Offering,
    pub(crate) announcing: Announcing,
    /// Devices were declared or removed here since this server's device keeper has read them.
    pub(crate) devices_changed: DevicesChanged,
    /// Triggers were changed here since this server's device keeper has read them.
    pub(crate) topics_changed: AtomicBool,
    /// Set when a trigger was changed on this server.
    pub(crate) triggers_changed: Signal,
    /// Set when a rollout was changed on this server.
    pub(crate) rollouts_changed: Signal,
    pub(crate) flows_on_disk: FlowsOnDisk,
    pub(crate) observers: RwLock<Vec<Arc<dyn Observer>>>,
    /// Which traces are recorded; unset = none.
    pub(crate) sampling: OnceLock<Sampling>,
}

/// Why the engine refused a request. Nothing was changed.
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
    /// The unique key of the submitted task could not be computed.
    #[error("`unique` of the flow {flow}: {message}")]
    NoUniqueKey {
        /// The flow.
        flow: Name,
        /// The unsuitable value of its key, or the error of the evaluation.
        message: String,
    },
    /// The name of the exclusive queue of the task could not be computed, or its parent has the queue.
    #[error("`exclusive` of the flow {flow}: {message}")]
    NoQueueName {
        /// The flow.
        flow: Name,
        /// The unsuitable value, or the error of the evaluation.
        message: String,
    },
    /// Another task has the unique key, and the flow requires a refusal in that case.
    #[error("task {task} of the flow {flow} exists and has the same unique key")]
    UniqueConflict {
        /// The flow.
        flow: Name,
        /// The task that exists.
        task: TaskId,
    },
    /// The same idempotency key was used with other content.
    #[error("this idempotency key was used for task {task} with another body")]
    KeyReused {
        /// The task it was used for.
        task: TaskId,
    },
    /// The same content was submitted before under the same idempotency key, and its task does not exist: it was
    /// deleted after its end, or it did not reach the disk.
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
    /// The task cannot be rerun as requested.
    #[error(transparent)]
    RerunRefused(#[from] RerunRefusal),
    /// Too many items wait to be written: try again later.
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
    /// Each try conflicted with other changes: try again.
    #[error("others changed it at the same time")]
    Conflict,
    /// The device was not declared.
    #[error("there is no device {0}")]
    UnknownDevice(Name),
    /// A device cannot be used as it is declared.
    #[error("device {}: {message}", .index + 1)]
    UnusableDevice {
        /// Its place among those that were declared together, from 0.
        index: usize,
        /// What is wrong, and what to do.
        message: String,
    },
    /// Too many devices were declared together.
    #[error("{0} devices are too many for one call: declare at most {DEVICES_APPLIED_MAX} at a time")]
    TooManyDevices(usize),
    /// The device cannot be removed: a task has its lock, or waits for it.
    #[error("the device {device} is in use")]
    DeviceInUse {
        /// The device.
        device: Name,
        /// The number of executions that wait for it.
        waiting: usize,
    },
    /// There is no such trigger.
    #[error("there is no trigger {0}")]
    UnknownTrigger(Name),
    /// The state of the trigger does not allow it.
    #[error("the trigger cannot be changed: {0}")]
    TriggerRejected(#[from] TriggerRejection),
    /// The definition of a trigger cannot work.
    #[error(transparent)]
    DefinitionFault(#[from] DefinitionFault),
    /// The schedule of a trigger cannot work.
    #[error(transparent)]
    ScheduleRefused(#[from] ScheduleError),
    /// The parameters of a task that a trigger starts cannot be computed.
    #[error("the parameters of the flow {flow}: {message}")]
    TriggerParams {
        /// The flow.
        flow: Name,
        /// Why.
        message: String,
    },
    /// The store has as many triggers as it may have.
    #[error(
        "there are {TRIGGERS_MAX} triggers, which is the limit: remove one, or let one trigger start several flows"
    )]
    TooManyTriggers,
    /// There is no such rollout.
    #[error("there is no rollout {0}")]
    UnknownRollout(Name),
    /// Another rollout has the name.
    #[error(
        "there is a rollout {0} with another definition: use another name, or remove that one once it has ended"
    )]
    RolloutExists(Name),
    /// The state of the rollout does not allow it.
    #[error("the rollout cannot be changed: {0}")]
    RolloutRejected(#[from] RolloutRejection),
    /// The definition of a rollout cannot work.
    #[error(transparent)]
    RolloutFault(#[from] RolloutFault),
    /// The flow of a rollout does the same for all devices.
    #[error(
        "no step of the flow {0} depends on the parameters `device` and `device_labels`, so each device would get the same \
         jobs: write `device: {{expression: device}}` in its steps"
    )]
    RolloutIgnoresDevice(Name),
    /// No device has the labels of a rollout.
    #[error("no device has these labels: GET /v1/devices lists the devices with their labels")]
    NoDevices,
    /// The store has as many rollouts as it may have.
    #[error(
        "there are {all} rollouts, and {open} of them have not ended: the limits are {ROLLOUTS_MAX} and \
         {ROLLOUTS_OPEN_MAX}; remove rollouts that have ended, or wait for their end"
    )]
    TooManyRollouts {
        /// All.
        all: usize,
        /// Those that have not ended.
        open: usize,
    },
    /// There is no such access token.
    #[error("there is no access token {0}")]
    UnknownAccessToken(Name),
    /// Another access token has the name.
    #[error("there is an access token {0}: use another name, or revoke that one first")]
    AccessTokenExists(Name),
    /// An access token cannot work as it is described.
    #[error(transparent)]
    AccessTokenFault(#[from] AccessTokenFault),
    /// The store has as many access tokens as it may have.
    #[error("there are {ACCESS_TOKENS_MAX} access tokens, which is the limit: revoke those that nobody uses")]
    TooManyAccessTokens,
    /// No task has this exclusive queue.
    #[error("no task has the exclusive queue {0}")]
    NoQueueHolder(LockName),
    /// A leader cannot have this name.
    #[error(
        "invalid name of a leader: use 1 to 120 of A-Z a-z 0-9 _ - and of . and single slashes, which count as two"
    )]
    InvalidLeaderName,
    /// The lock has neither a holder nor waiters.
    #[error("lock {0} has neither a holder nor waiters")]
    UnknownLock(LockName),
    /// The lock's rules refuse it.
    #[error(transparent)]
    LockRejected(#[from] LockRejection),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Engine {
    /// Whether this server has a network of devices.
    #[must_use]
    pub fn has_devices(&self) -> bool {
        self.leading.wants_devices.load(Ordering::Relaxed)
    }

    /// These devices were declared or removed: the device keeper of this server reads them at once.
    pub(crate) fn note_devices<'n>(&self, names: impl IntoIterator<Item = &'n Name>) {
        self.devices_changed.note(names);
        self.offering.stir();
    }

    /// An engine over `store`. `random` makes this server's ids distinct from those of other servers.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, random: u64) -> Self {
        let tokens = Tokens::new(&store.token_key());
        Self {
            task_cache: TaskCache::new(store.clone()),
            store,
            inbox: Inbox::default(),
            tokens,
            sessions: LocalSessions::default(),
            dispatching: Dispatching::default(),
            feed: Feed::default(),
            timers: Signal::default(),
            messages: Signal::default(),
            polls_closed: Signal::default(),
            stored_leases: StoredLeases::default(),
            counts: Counts::default(),
            rounds: Rounds::default(),
            progress: ProgressBoard::default(),
            rates: QueueRates::default(),
            began: OnceLock::new(),
            ids: TaskIds::new(random),
            leading: Leading::default(),
            watched: Watched::default(),
            latest: LatestTime::default(),
            offering: Offering::default(),
            announcing: Announcing::default(),
            devices_changed: DevicesChanged::default(),
            topics_changed: AtomicBool::new(false),
            triggers_changed: Signal::default(),
            rollouts_changed: Signal::default(),
            flows_on_disk: FlowsOnDisk::default(),
            observers: RwLock::default(),
            sampling: OnceLock::new(),
        }
    }

    /// The operations that wait to be decided; the program waits on it and runs [`crate::deciding::Committer`].
    pub fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// Set when there is new due work; the program then reads [`Engine::next_wake`].
    pub fn timers(&self) -> &Signal {
        &self.timers
    }

    /// Set when messages were sent; the program runs [`crate::services::Messenger`] then.
    pub fn messages(&self) -> &Signal {
        &self.messages
    }

    /// Set when a worker's connection was closed; the program runs [`crate::services::LeaseKeeper`] then.
    pub fn polls_closed(&self) -> &Signal {
        &self.polls_closed
    }

    /// Waits until there is new due work, or other servers on the store may have made attempts ready or work due.
    pub async fn stirred(&self) {
        let (timers, news) = (pin!(self.timers.wait()), pin!(self.news()));
        select(timers, news).await;
    }

    /// Notifies the store that the wall time is ahead of the system clock by this much, because the clock was set back.
    pub fn is_ahead(&self, by: Millis) {
        self.store.is_ahead(by);
    }

    /// Whether other servers may work on the same store.
    #[must_use]
    pub fn shares_its_store(&self) -> bool {
        self.store.cluster().is_some()
    }

    /// Waits until other servers on the store may have made attempts ready.
    pub async fn news(&self) {
        match self.store.cluster() {
            Some(cluster) => cluster.news().await,
            None => pending().await,
        }
    }

    /// The number of round trips to the database server, if there is one.
    #[must_use]
    pub fn store_round_trips(&self) -> Option<u64> {
        self.store.cluster()?.round_trips()
    }

    /// How many bytes the parameters and results of tasks take in memory, where the store keeps them there.
    #[must_use]
    pub fn resident_payload_bytes(&self) -> Option<u64> {
        self.store.resident_bytes()
    }

    /// Counts of the committed work.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The consecutive failed rounds of this server's services.
    pub fn rounds(&self) -> &Rounds {
        &self.rounds
    }

    /// The number of tasks with damaged rows that this server has found.
    pub fn damaged_tasks(&self) -> usize {
        self.store.quarantine().len()
    }

    /// Live events.
    pub fn feed(&self) -> &Feed {
        &self.feed
    }

    /// The time until a service has due work, if known.
    pub fn next_wake(&self, now: Now) -> Option<Millis> {
        [self.store.next_wake(now), self.next_poll_end(now)].into_iter().flatten().min()
    }

    /// The time until the first open poll reaches the end of its wait.
    pub fn next_poll_end(&self, now: Now) -> Option<Millis> {
        self.sessions.next_expiry().map(|at| Millis(at.0.saturating_sub(now.mono.0)))
    }
}

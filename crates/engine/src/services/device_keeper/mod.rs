//! Gives devices their jobs, and settles them by the answers.
//!
//! ```text
//! ready ──claim──▶ waits while the device is offline ──publish──▶ running ──answer──▶ settled
//!                                                                    └── timeout and settle time ──▶ failed
//! ```
//!
//! One server at a time does this: the one that has the lease of [`Service::Devices`]. It claims attempts under a session
//! that never ends, so a restart or another server goes on with them. An attempt waits under that session until its message
//! is confirmed; from then on it is running, its timeout counts, and its claim outlives servers. A crash between the
//! confirmation and its commit publishes the message again, with the same `uuid` and `attempt`, unless the answer is there by
//! then: what waits at the network is heard first.
//!
//! That a device does one job at a time is not decided here: the device is a lock that the step holds.

mod alarms;
mod answers;
mod changed;
mod claiming;
mod fleet;
mod learning;
mod publishing;
mod reading;
mod running;
mod triggers;
mod waiting;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, atomic::Ordering},
    time::Duration,
};

use windlass_brokers::{DeviceConnection, DeviceNetwork};
use windlass_core::{
    ActKey, AlarmId, AlarmKind, DEVICE_MODULE, Millis, Name, Task, device_of_lock,
    planted::{Bug, is_planted},
};
use windlass_store::{
    AttemptId, FOREVER, Now, PollState, Service, SessionId, SessionRenewal, Signal, WorkerState,
};

use super::{leading::Led, offering::OfferedAt, trouble::Trouble};
use crate::{
    Engine, EngineError,
    deciding::device_log::{device_of, entry},
};
use alarms::Alarms;
pub(crate) use changed::DevicesChanged;
use fleet::Fleet;
use learning::Learning;
pub use learning::{LEARNED_MAX, Learn};
use running::Running;
use triggers::Topics;
use waiting::Waiters;

/// The maximum number of jobs claimed or published in one round.
const ROUND_MAX: usize = 500;

/// The maximum number of jobs that wait for their devices to come online.
const WAITING_MAX: usize = 100_000;

/// How long after its begin a server hears nothing. A claim that was made just before a crash may be lost: the attempt is claimed
/// again once the grace after a start is over, and an answer without `attempt` that comes before has nothing to settle.
const HEAR_AFTER: Millis = Millis(600);

/// How often the service checks which jobs must not run any more, and which devices there are.
const LOOK_EVERY: Millis = Millis::from_secs(1);

/// How often a server reads which jobs are claimed for the service; less often with more than [`HELD_MANY`] of them.
const HELD_EVERY: Millis = Millis::from_secs(10);

/// See [`HELD_EVERY`].
const HELD_MANY: usize = 10_000;

/// The pause of a server that another one stands before.
const STANDBY_PAUSE: Millis = Millis(200);

/// How long a call waits for messages from devices.
const RECEIVE_WAIT: Duration = Duration::from_millis(500);

/// How long a server hears before it publishes, if messages never end.
const CATCH_UP_MAX: Millis = Millis::from_secs(3);

/// The payload of a message that is kept for searches is cut to this many bytes.
const KEPT_BYTES_MAX: usize = 16 << 10;

/// How long one task may have a device before an alarm is raised, unless the settings say otherwise.
pub const LOCKED_TOO_LONG: Millis = Millis::from_secs(3600);

/// Gives devices their jobs.
pub struct DeviceKeeper {
    engine: Arc<Engine>,
    network: Arc<dyn DeviceNetwork>,
    session: SessionId,
    stirred: Arc<Signal>,
    trouble: Trouble,
    /// Locked during a round that claims and publishes.
    round: futures_util::lock::Mutex<()>,
    state: Mutex<State>,
    locked_too_long: Millis,
    learn: Learn,
}

#[derive(Default)]
struct State {
    /// The lease under which this server gives devices their jobs now.
    led: Option<Led>,
    /// When this server began, while it does not hear yet.
    hears_after: Option<Millis>,
    /// The connection over which this server heard last.
    hearing: Option<Hearing>,
    /// How often in a row the presence of a device was not what this server knew, up to the number after which it is taken for
    /// damaged.
    conflicts: u32,
    fleet: Fleet,
    topics: Topics,
    /// Jobs that were claimed and not published: for devices that are offline, or because the network is unavailable.
    waiting: Waiters,
    /// Those of them whose publish failed: the broker may have the message nevertheless.
    maybe_published: BTreeSet<AttemptId>,
    running: Running,
    alarms: Alarms,
    learning: Learning,
    looked_at: Option<Millis>,
    /// When the claims of the service were read.
    held_at: Option<Millis>,
    /// This server is ending: it does not connect again.
    has_ended: bool,
}

/// How far this server has heard over a connection.
struct Hearing {
    /// Weak, so that a lost connection and its unread messages do not stay in memory.
    connection: Weak<dyn DeviceConnection>,
    since: Millis,
    /// All messages that waited when the connection was made were heard, or [`CATCH_UP_MAX`] has passed.
    is_caught_up: bool,
}

impl Hearing {
    /// Whether it is about this connection.
    fn concerns(&self, connection: &Arc<dyn DeviceConnection>) -> bool {
        self.connection.ptr_eq(&Arc::downgrade(connection))
    }
}

impl State {
    /// A job waits no longer.
    fn forget(&mut self, id: &AttemptId) {
        self.waiting.remove(id);
        self.maybe_published.remove(id);
    }
}

impl DeviceKeeper {
    /// A device keeper of `engine`. From now on this server requests the lease of the service.
    #[must_use]
    pub fn new(engine: Arc<Engine>, network: Arc<dyn DeviceNetwork>) -> Self {
        engine.leading.wants_devices.store(true, Ordering::Relaxed);
        // The same on every server and after every restart: the leader goes on with what is claimed.
        let session = SessionId::publisher(DEVICE_MODULE, 1);
        let place =
            OfferedAt { broker: network.name().to_owned(), queue: "devices".to_owned(), trouble: None };
        let stirred = match Name::new(DEVICE_MODULE) {
            Ok(module) => engine.offering.begin(module, session, place),
            Err(_) => Arc::default(),
        };
        let (trouble, round, state) = Default::default();
        let (locked_too_long, learn) = (LOCKED_TOO_LONG, Learn::default());
        Self { engine, network, session, stirred, trouble, round, state, locked_too_long, learn }
    }

    /// Devices that nobody declared are learned by these rules; none where this is not called.
    #[must_use]
    pub fn learn_by(self, learn: Learn) -> Self {
        Self { learn, ..self }
    }

    /// A device that one task has for longer than this raises an alarm; [`LOCKED_TOO_LONG`] where this is not called.
    #[must_use]
    pub fn locked_too_long(self, locked_too_long: Millis) -> Self {
        Self { locked_too_long, ..self }
    }

    /// Returns when jobs may have become ready.
    pub async fn stirred(&self) {
        self.stirred.wait().await;
    }

    /// Claims jobs, and publishes those whose devices are online. Returns the maximum time until the next call.
    ///
    /// # Errors
    /// When the store fails. A failure of the network is not an error: the jobs wait, and an alarm is raised.
    pub async fn run_once(&self, now: Now) -> Result<Millis, EngineError> {
        let _round = self.round.lock().await;
        if self.state().has_ended {
            return Ok(STANDBY_PAUSE);
        }
        let Some(led) = self.engine.leads(Service::Devices, now) else {
            self.stand_by().await;
            return Ok(STANDBY_PAUSE);
        };
        let round = self.round(led, now).await;
        if round.is_err() {
            // A job may be claimed that did not get into `waiting`, or published and not recorded: the next round reads what is
            // claimed, and publishes nothing before what waits was heard again.
            let mut state = self.state();
            (state.led, state.hearing) = (None, None);
        }
        self.engine.unless_lost(led, round)
    }

    async fn round(&self, led: Led, now: Now) -> Result<Millis, EngineError> {
        self.time_out(led, now).await?;
        if let Some(rest) = self.trouble.rest(now) {
            self.tell_trouble(now).await?;
            return Ok(rest);
        }
        let is_another = self.state().led.is_some_and(|before| before != led);
        if is_another {
            // Another server may have led since: this one begins like any other.
            self.stand_by().await;
        }
        let connection = match self.network.connect().await {
            Ok(connection) => connection,
            Err(error) => {
                self.has_failed(&error, now);
                self.tell_trouble(now).await?;
                return Ok(self.trouble.rest(now).unwrap_or(STANDBY_PAUSE));
            }
        };
        if self.state().led.is_none() {
            self.begin(led, now).await?;
        }
        self.read_fleet(now).await?;
        let is_time = self.state().looked_at.is_none_or(|at| now.mono.0 >= at.0 + LOOK_EVERY.0);
        if is_time {
            self.state().looked_at = Some(now.mono);
            self.let_go(now).await?;
            self.accept_held_again(now).await?;
            self.watch(led, now).await?;
            self.learn(led, now).await?;
        }
        let claimed = self.claim(now).await?;
        self.catch_up_on_status(&*connection).await;
        if claimed < ROUND_MAX {
            self.hears_after_claims(now);
        }
        let published = self.publish(led, &connection, now).await?;
        if published.is_some() {
            self.trouble.ends();
        }
        self.tell_trouble(now).await?;
        let goes_on = claimed == ROUND_MAX || published == Some(ROUND_MAX);
        Ok(if goes_on { Millis(0) } else { Millis(LOOK_EVERY.0 / 2) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that was ready is claimed: from now on this server hears, if it has led for long enough.
    fn hears_after_claims(&self, now: Now) {
        let mut state = self.state();
        if state.hears_after.is_some_and(|at| now.mono >= at) {
            state.hears_after = None;
        }
    }

    /// Another server leads: this one leaves the network to it.
    async fn stand_by(&self) {
        let led = std::mem::take(&mut *self.state()).led;
        if led.is_some() {
            self.network.disconnect().await;
            tracing::info!("this server no longer gives devices their jobs");
        }
    }

    /// Goes on with the jobs that were claimed and not published before, by this server or another one.
    async fn begin(&self, led: Led, now: Now) -> Result<(), EngineError> {
        let worker = WorkerState {
            name: format!("jobs of devices over {}", self.network.name()).into(),
            modules: Name::new(DEVICE_MODULE).into_iter().collect(),
            ..WorkerState::default()
        };
        let renewal = SessionRenewal {
            session: self.session,
            poll: PollState::Unknown,
            lease: FOREVER,
            lease_unpolled: FOREVER,
            worker: Some(Arc::new(worker)),
        };
        self.engine.store.renew(vec![renewal], now).await?;
        self.engine.begin_hearing_from_afar(now).await?;
        self.read_fleet(now).await?;
        self.state().waiting = Waiters::default();
        self.accept_held(now).await?;
        self.go_on_with_running(now).await?;
        self.go_on_with_alarms(now).await?;
        {
            let mut state = self.state();
            // What the broker has kept is requested again, though a new connection brings it: after a failed round the connection
            // is an old one, and a device may have been declared since.
            (state.led, state.hears_after) = (Some(led), Some(Millis(now.mono.0 + HEAR_AFTER.0)));
            let State { waiting, maybe_published, .. } = &mut *state;
            maybe_published.retain(|id| waiting.contains(id));
        }
        tracing::info!(network = self.network.name(), "this server gives devices their jobs now");
        Ok(())
    }

    fn has_failed(&self, error: &windlass_brokers::BrokerError, now: Now) {
        if self.trouble.goes_on(error, now) {
            tracing::warn!(network = self.network.name(), %error, "devices cannot be reached; trying again");
        }
    }

    /// Raises the alarm about an unavailable network, and resolves it when the network works again.
    async fn tell_trouble(&self, now: Now) -> Result<(), EngineError> {
        let id = AlarmId(format!("{}.{DEVICE_MODULE}", AlarmKind::BrokerAway.as_str()).into());
        let describe =
            |error: &str| format!("devices cannot be reached over {}: {error}", self.network.name());
        self.trouble.tell(&self.engine, id, describe, now).await
    }

    /// What was received and not settled comes again, once the devices are read again. The network sends it with the next
    /// connection alone.
    async fn hear_again(&self) {
        {
            let mut state = self.state();
            state.hearing = None;
            state.fleet.forget_presence();
        }
        if !is_planted(Bug::AnswersNotHeardAgain) {
            self.network.disconnect().await;
        }
        self.stirred.set();
    }

    /// Leaves the network, so that another server goes on at once.
    pub async fn end(&self) {
        let _round = self.round.lock().await;
        self.state().has_ended = true;
        self.network.disconnect().await;
    }
}

/// Whether the step still has the lock of its device. An operator may have given the device to another task.
fn has_device(task: &Task, key: ActKey) -> bool {
    fence_of_device(task, key).is_some()
}

/// The fence under which the step still has the lock of its device.
fn fence_of_device(task: &Task, key: ActKey) -> Option<u64> {
    let locks = task.act(key).map_or(&[][..], |act| act.locks());
    let lock = locks.iter().find(|lock| lock.is_held() && device_of_lock(&lock.name).is_some())?;
    lock.fence
}

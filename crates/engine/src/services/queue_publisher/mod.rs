//! Offers the ready attempts of a module on a broker.
//!
//! ```text
//! ready ──claim──▶ offered, not sent ──publish──▶ offered ──a worker reports it as running──▶ running
//!   ▲                                                │
//!   └── its task is paused or starts rolling back ───┘
//! ```
//!
//! A queue publisher is a session that claims attempts only to offer them: it claims as a worker does, so that ranks,
//! limits, turns and pauses apply to brokers as well. It claims at most its window at once. The store is authoritative
//! and the broker carries hints. Messages that the broker has lost are sent again, under the same token. If two workers
//! get the same message, only one of them gets the attempt.

mod batch;
mod doubt;
mod life;
mod offers;

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use windlass_brokers::{Broker, BrokerError, Message, Queue};
use windlass_core::{
    AlarmId, AlarmKind, Free, Millis, Name,
    planted::{Bug, is_planted},
    when_free,
};
use windlass_store::{AttemptId, ClaimOutcome, ClaimRequest, Claimed, Leave, Loaded, Now, SessionId, Signal};

use crate::{
    Engine, EngineError, HandedOut, OfferedAt, Results,
    services::{
        queue_publisher::{batch::Batch, doubt::Doubt, offers::Offers},
        trouble::Trouble,
    },
};

/// The maximum number of attempts claimed or sent in one round.
const ROUND_MAX: usize = 500;

/// How often the session is renewed in the store.
const RENEW_EVERY: Millis = Millis::from_secs(10);

/// How often the publisher checks which attempts workers have taken: more often while the window is nearly full.
const REFRESH_EVERY: Millis = Millis(500);
const REFRESH_SOON: Millis = Millis(20);
/// The same where each check is a round trip to a database.
const REFRESH_SHARED: Millis = Millis(100);

/// How often the publisher checks whether tasks of offered attempts were paused or started rolling back, and the queue.
const LOOK_EVERY: Millis = Millis::from_secs(1);

/// The maximum number of attempts released in one round.
const RELEASES_MAX: usize = 100;

/// The bytes of a message besides its body: its token, names and the broker's own additions.
const ENVELOPE_BYTES: usize = 2048;

/// The consumer group in which servers read the answers of modules.
pub const RESULTS_GROUP: &str = "windlass";

/// The module whose attempts a queue publisher offers, and the queue.
#[derive(Debug, Clone)]
pub struct QueuePublisherSettings {
    /// The module.
    pub module: Name,
    /// Its queue on the broker.
    pub queue: Queue,
    /// The queue on which consumers answer. All servers read it, as [`RESULTS_GROUP`].
    pub results: Queue,
    /// The maximum number of attempts that are offered and not taken yet.
    pub window: u32,
}

/// Writes attempts as messages.
pub trait WriteStep: Send + Sync {
    /// The message of an attempt. Without `has_headers` its body includes the data that otherwise goes in headers.
    fn message(&self, attempt: &HandedOut, has_headers: bool) -> Message;

    /// The same with a reference instead of the parameters: for a message that is larger than the broker accepts.
    fn reference(&self, attempt: &HandedOut, has_headers: bool) -> Message;
}

/// Offers the ready attempts of one module.
pub struct QueuePublisher {
    engine: Arc<Engine>,
    broker: Arc<dyn Broker>,
    writer: Arc<dyn WriteStep>,
    settings: QueuePublisherSettings,
    session: SessionId,
    stirred: Arc<Signal>,
    trouble: Trouble,
    /// Locked during a round.
    round: futures_util::lock::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    offers: Offers,
    renewed_at: Option<Millis>,
    refreshed_at: Option<Millis>,
    looked_at: Option<Millis>,
    doubt: Option<Doubt>,
    has_ended: bool,
}

impl QueuePublisher {
    /// A queue publisher of `engine`. `chance` distinguishes its session from those of other queue publishers.
    #[must_use]
    pub fn new(
        engine: Arc<Engine>,
        broker: Arc<dyn Broker>,
        writer: Arc<dyn WriteStep>,
        settings: QueuePublisherSettings,
        chance: u64,
    ) -> Self {
        let place =
            OfferedAt { broker: broker.name().to_owned(), queue: settings.queue.name.clone(), trouble: None };
        let session =
            SessionId::publisher(&format!("{}\n{}\n{}", settings.module, place.broker, place.queue), chance);
        let stirred = engine.offering.begin(settings.module.clone(), session, place);
        Self {
            engine,
            broker,
            writer,
            settings,
            session,
            stirred,
            trouble: Trouble::default(),
            round: futures_util::lock::Mutex::new(()),
            state: Mutex::default(),
        }
    }

    /// Returns when attempts may have become ready.
    pub async fn stirred(&self) {
        self.stirred.wait().await;
    }

    /// Offers ready attempts, sends messages again that the broker has lost, and releases attempts that must not run.
    /// Returns the maximum time until the next call.
    ///
    /// # Errors
    /// When the store fails. A failure of the broker is not an error: the attempts wait, and an alarm is raised.
    pub async fn run_once(&self, now: Now) -> Result<Millis, EngineError> {
        let _round = self.round.lock().await;
        if self.state().has_ended {
            return Ok(RENEW_EVERY);
        }
        self.renew(now).await?;
        self.go_on_with_left_behind(now).await?;
        self.refresh(now).await?;
        if let Some(rest) = self.trouble.rest(now) {
            return Ok(rest);
        }
        let is_time = self.state().looked_at.is_none_or(|at| now.mono.0 >= at.0 + LOOK_EVERY.0);
        let mut has_answered = false;
        if is_time {
            self.state().looked_at = Some(now.mono);
            self.let_go(now).await?;
            has_answered = self.look(now).await?;
        }
        let round = ROUND_MAX.min(self.engine.store.loads_at_once());
        let sent = self.send_again(round, now).await?;
        // Attempts that cannot be sent wait in the store, where other workers may claim them.
        let is_away = self.trouble.is_away();
        if is_away {
            self.release_unsent(now).await?;
        }
        let fresh = match is_away {
            false => self.claim(round, now).await?,
            true if has_answered && self.state().offers.unsent(1).is_empty() => self.claim_probe(now).await?,
            true => Vec::new(),
        };
        let is_full = fresh.len() == round;
        self.send(fresh, now).await;
        self.tell_trouble(now).await?;
        let goes_on = is_full || sent == round;
        Ok(if goes_on { Millis(0) } else { self.refresh_every() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refresh_every(&self) -> Millis {
        let state = self.state();
        let is_nearly_full = state.offers.len() * 2 > self.settings.window as usize;
        match (is_nearly_full, self.engine.store.cluster().is_some()) {
            (false, _) => REFRESH_EVERY,
            (true, true) => REFRESH_SHARED,
            (true, false) => REFRESH_SOON,
        }
    }

    /// Forgets attempts that workers have taken, and adds claims whose confirmation was lost.
    async fn refresh(&self, now: Now) -> Result<(), EngineError> {
        let every = self.refresh_every();
        let is_time = self.state().refreshed_at.is_none_or(|at| now.mono.0 >= at.0 + every.0);
        if is_time { self.compare(now).await } else { Ok(()) }
    }

    async fn compare(&self, now: Now) -> Result<(), EngineError> {
        let held = self.engine.store.held(self.session).await?;
        let mut state = self.state();
        state.refreshed_at = Some(now.mono);
        state.offers.compare(held.into_iter().map(|claimed| claimed.id));
        Ok(())
    }

    /// Releases attempts that must not run now: their task was paused, or started rolling back.
    async fn let_go(&self, now: Now) -> Result<(), EngineError> {
        let offered = self.state().offers.versions();
        if offered.is_empty() {
            return Ok(());
        }
        let tasks: Vec<_> = offered.iter().map(|(id, _)| id.task).collect();
        let versions = self.engine.store.versions(&tasks).await?;
        let changed: Vec<AttemptId> = offered
            .iter()
            .zip(versions)
            .filter(|((_, known), version)| *known != *version)
            .map(|((id, _), _)| *id)
            .collect();
        let tasks = self.engine.heads_of(&changed).await?;
        for id in changed {
            let task = tasks.get(&id.task);
            if task.is_some_and(|loaded| when_free(&loaded.task, id.key) == Free::HandOut) {
                self.state().offers.note_version(id, task.map(|loaded| loaded.task.state.events));
                continue;
            }
            self.engine.store.release(self.session, id, None, now).await?;
            self.state().offers.remove(&id);
            self.engine.timers.set();
        }
        Ok(())
    }

    /// Claims ready attempts, up to the window and to the size of a round.
    async fn claim(&self, round: usize, now: Now) -> Result<Vec<HandedOut>, EngineError> {
        let room = (self.settings.window as usize).saturating_sub(self.state().offers.len());
        let free = u32::try_from(room.min(round)).unwrap_or(u32::MAX);
        if free == 0 {
            return Ok(Vec::new());
        }
        let claim_request = ClaimRequest { module: self.settings.module.clone(), commands: None, free };
        let (now, leave) = (self.engine.latest.not_before(now), Leave::default());
        let claimed = self.engine.store.claim(self.session, &[claim_request], &leave, now).await?;
        let ClaimOutcome::Claimed(claimed) = claimed else {
            self.stirred.set();
            return Ok(Vec::new());
        };
        let tasks = self.engine.tasks_of_claimed(&claimed).await?;
        let mut fresh = Vec::with_capacity(claimed.len());
        for Claimed { id, .. } in claimed {
            let Some(loaded) = tasks.get(&id.task) else { continue };
            self.state().offers.add(id, loaded.task.state.events);
            fresh.push(self.engine.handed_out(id, loaded));
        }
        self.engine.rates.note(fresh.iter().map(|_| &self.settings.module), now.mono);
        Ok(fresh)
    }

    /// Sends attempts that must be sent again, or that were not sent after their claim. Returns their number.
    async fn send_again(&self, round: usize, now: Now) -> Result<usize, EngineError> {
        let unsent = self.state().offers.unsent(round);
        let mut attempts = Vec::with_capacity(unsent.len());
        if !unsent.is_empty() {
            let tasks = self.engine.tasks_of(&unsent).await?;
            let ours = |loaded: &&Loaded, id: &AttemptId| {
                loaded
                    .claims
                    .iter()
                    .any(|claim| (claim.key, claim.number, claim.session) == (id.key, id.claim, self.session))
            };
            for id in &unsent {
                match tasks.get(&id.task).filter(|loaded| ours(loaded, id)) {
                    Some(loaded) => {
                        let claim = id.claim + u64::from(is_planted(Bug::SentAgainUnderAnotherToken));
                        attempts.push(self.engine.handed_out(AttemptId { claim, ..*id }, loaded));
                    }
                    None => self.state().offers.remove(id),
                }
            }
        }
        self.send(attempts, now).await;
        Ok(unsent.len())
    }

    /// Releases attempts that were never sent, once the broker has failed for long. Nothing is claimed meanwhile.
    async fn release_unsent(&self, now: Now) -> Result<(), EngineError> {
        let never_sent =
            if self.trouble.is_long(now) { self.state().offers.never_sent(RELEASES_MAX) } else { Vec::new() };
        for id in &never_sent {
            self.engine.store.release(self.session, *id, None, now).await?;
            self.state().offers.remove(id);
        }
        if !never_sent.is_empty() {
            self.engine.timers.set();
        }
        Ok(())
    }

    async fn send(&self, attempts: Vec<HandedOut>, now: Now) {
        let mut batch = Batch::default();
        for attempt in attempts {
            if attempt.is_too_large() {
                self.engine.refuse_too_large(attempt.id);
                continue;
            }
            let message = self.message(&attempt);
            if !batch.has_room_for(&message) && !self.publish(mem::take(&mut batch), now).await {
                // The other attempts are sent later, together with these.
                return;
            }
            batch.add(attempt.id, message);
        }
        if !batch.ids.is_empty() {
            self.publish(batch, now).await;
        }
    }

    /// Publishes messages. Returns whether the broker works.
    async fn publish(&self, batch: Batch, now: Now) -> bool {
        let outcomes = self.broker.publish(&self.settings.queue, &batch.messages).await;
        let mut state = self.state();
        let (mut sent, mut failure) = (Vec::new(), None);
        for (id, outcome) in batch.ids.into_iter().zip(outcomes) {
            match outcome {
                Ok(()) => {
                    state.offers.was_sent(id, now.mono);
                    sent.push(id.task);
                }
                // This broker has a lower limit than its product usually has: it gets a shorter message. If that is too
                // large as well, the attempt fails.
                Err(BrokerError::TooLarge { .. }) if state.offers.shorten(id) => {}
                Err(error @ BrokerError::TooLarge { .. }) => {
                    self.engine.refuse_offered(id, &error.to_string());
                }
                Err(error) => failure = Some(error),
            }
        }
        match &failure {
            Some(error) => self.has_failed(error, now),
            None if !sent.is_empty() => self.trouble.ends(),
            None => {}
        }
        self.engine.offering.were_sent(sent);
        failure.is_none()
    }

    fn message(&self, attempt: &HandedOut) -> Message {
        let has_headers = self.broker.has_headers(&self.settings.queue);
        let message = self.writer.message(attempt, has_headers);
        if self.state().offers.is_shortened(attempt.id) {
            return self.writer.reference(attempt, has_headers);
        }
        if self.fits(&message) {
            return message;
        }
        // The results, which the parameters contain anyway, are dropped first: a worker may be unable to reach a
        // server.
        let lean = HandedOut { results: Results::TooLarge, ..attempt.clone() };
        let message = self.writer.message(&lean, has_headers);
        if self.fits(&message) { message } else { self.writer.reference(attempt, has_headers) }
    }

    fn fits(&self, message: &Message) -> bool {
        message.body.len() + ENVELOPE_BYTES <= self.broker.message_bytes_max()
    }

    fn has_failed(&self, error: &BrokerError, now: Now) {
        if self.trouble.goes_on(error, now) {
            let (broker, queue) = (self.broker.name(), &self.settings.queue);
            tracing::warn!(broker, %queue, %error, "ready attempts cannot be offered; trying again");
        }
    }

    /// Raises the alarm about an unavailable broker, and resolves it when the broker works again.
    async fn tell_trouble(&self, now: Now) -> Result<(), EngineError> {
        let module = &self.settings.module;
        self.engine.offering.note(module, self.trouble.told());
        let id = AlarmId(format!("{}.{module}", AlarmKind::BrokerAway.as_str()).into());
        let describe = |error: &str| {
            let (queue, broker) = (&self.settings.queue, self.broker.name());
            format!("the steps of {module} cannot be offered in the queue {queue} of {broker}: {error}")
        };
        self.trouble.tell(&self.engine, id, describe, now).await
    }
}

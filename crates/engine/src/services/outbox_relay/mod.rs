//! Announces task events to subscribers, such as a topic of a broker.
//!
//! ```text
//! committer:  state, events and their place in the outbox, in one transaction
//!                                     │
//! outbox relay:  outbox ─▶ read ─▶ each Subscriber ─▶ confirmed by all: out of the outbox
//!                └───────── not confirmed: sent again ◀──┘
//! ```
//!
//! Each event is announced at least once while the store keeps its commits, and the events of a task in their order: an
//! event is sent only after the previous one was confirmed. One server does this at a time, and continues after the
//! last confirmed event. Events that were confirmed but still in the outbox when it died are announced again by the
//! next server.
//!
//! The outbox is read in pages, so that events which a subscriber refuses do not hold up those of other tasks, however many
//! they are. While a subscriber is unreachable, all events wait. While a page is announced, the next one is read with the tasks
//! that have ended, and the one before leaves the outbox.

mod page;
mod progress;
mod subscriber;

use std::{
    fmt::Display,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::{future::join3, lock::Mutex as AsyncMutex};
use windlass_brokers::BrokerError;
use windlass_core::{
    AlarmId, AlarmKind, Millis, TaskId,
    planted::{Bug, is_planted},
};
use windlass_store::{Announced, Change, Now, Service, Signal, StoreError};

pub use self::subscriber::{Subscriber, TaskEvent, TopicSubscriber, WriteEvent};
use self::{
    page::{Line, Page},
    progress::{PageEnd, Progress},
};
use crate::{
    Engine, EngineError,
    deciding::inbox::Item,
    services::{leading::Led, trouble::Trouble},
};

/// The maximum number of changes in a page of the outbox.
const PAGE: usize = 2_000;

/// A page is announced in this many parts. Between two parts the relay checks that it still leads.
const PARTS: usize = 4;

/// No new change is started after this time in a round, because other tasks wait as well.
const ROUND_TIME: Millis = Millis::from_secs(1);

/// How often the outbox is read without a signal.
const LOOK_EVERY: Millis = Millis::from_secs(1);
/// The same if other servers commit as well.
const LOOK_SHARED: Millis = Millis(200);

/// Announces task events.
pub struct OutboxRelay {
    engine: Arc<Engine>,
    subscribers: Vec<Arc<dyn Subscriber>>,
    stirred: Arc<Signal>,
    page: usize,
    trouble: Trouble,
    progress: Mutex<Progress>,
    round: AsyncMutex<Round>,
}

/// What a round leaves for the next one.
#[derive(Default)]
struct Round {
    ahead: Option<Ahead>,
    has_ended: bool,
}

/// A page that was read ahead.
struct Ahead {
    page: Page,
    /// The lease under which it was read. Under another lease, another server may have announced the page.
    led: Led,
    /// The changes of the page before it, which are announced and still in the outbox.
    announced: Vec<Announced>,
}

/// Why an event was not confirmed.
struct Failure {
    message: String,
    /// The subscriber cannot be reached, so it would not confirm other events either.
    is_unreachable: bool,
}

impl OutboxRelay {
    /// An outbox relay of `engine`: from now on events are kept until all subscribers have confirmed them. While one of
    /// them is unavailable, all wait.
    #[must_use]
    pub fn new(engine: Arc<Engine>, subscribers: Vec<Arc<dyn Subscriber>>) -> Self {
        let stirred = engine.announcing.begin();
        Self {
            engine,
            subscribers,
            stirred,
            page: PAGE,
            trouble: Trouble::default(),
            progress: Mutex::default(),
            round: AsyncMutex::default(),
        }
    }

    /// The same with pages of this many changes.
    #[must_use]
    pub fn with_pages_of(self, changes: usize) -> Self {
        Self { page: changes, ..self }
    }

    /// Returns when there may be new events.
    pub async fn stirred(&self) {
        self.stirred.wait().await;
    }

    /// Announces a bounded number of the waiting events. Returns the maximum time until the next call. It reads the
    /// clock again in between.
    ///
    /// # Errors
    /// When the store fails. A failure of the broker is not an error: the events wait, and an alarm is raised.
    pub async fn run_once(&self, clock: impl Fn() -> Now) -> Result<Millis, EngineError> {
        let mut round = self.round.lock().await;
        if round.has_ended {
            return Ok(LOOK_EVERY);
        }
        let Some(led) = self.engine.leads(Service::Announcing, clock()) else {
            // Another server runs this service now, so this server's state of the broker and its alarm is outdated.
            self.trouble.forget();
            *self.progress() = Progress::default();
            round.ahead = None;
            return Ok(LOOK_EVERY);
        };
        let pause = self.run_round(&mut round.ahead, led, &clock).await;
        Ok(self.engine.unless_lost(led, pause.map(Some))?.unwrap_or(LOOK_EVERY))
    }

    /// Ends in order, after the current round: what was announced leaves the outbox.
    ///
    /// # Errors
    /// When the store fails. Then the next server announces it again.
    pub async fn end(&self, now: Now) -> Result<(), EngineError> {
        let mut round = self.round.lock().await;
        round.has_ended = true;
        match (round.ahead.take(), self.engine.leads(Service::Announcing, now)) {
            (Some(ahead), Some(led)) => self.remove(led, ahead.announced).await,
            _ => Ok(()),
        }
    }

    async fn run_round(
        &self,
        ahead: &mut Option<Ahead>,
        led: Led,
        clock: &impl Fn() -> Now,
    ) -> Result<Millis, EngineError> {
        let now = clock();
        let (before, rest) = (ahead.take(), self.progress().rest(now.mono));
        let page = match before {
            Some(ahead) if ahead.led == led && rest.is_none() => Ok((ahead.page, ahead.announced)),
            before => {
                let announced = before.map(|ahead| ahead.announced).unwrap_or_default();
                self.remove(led, announced).await?;
                if let Some(rest) = rest {
                    return Ok(rest);
                }
                let above = self.progress().above();
                self.read(above, now).await.map(|page| (page, Vec::new()))
            }
        };
        match page {
            Ok((page, before)) => *ahead = self.announce_and_read_on(led, page, before, clock).await?,
            // Nothing is announced until an operator has repaired the rows.
            Err(error @ StoreError::Damaged(_)) => {
                self.stop_at(&format!("{}: {error}", self.places()), clock());
            }
            Err(error) => return Err(error.into()),
        }
        self.tell_trouble(led, clock()).await?;
        Ok(match self.engine.store.cluster().is_some() {
            _ if self.progress().goes_on() => Millis(0),
            true => LOOK_SHARED,
            false => LOOK_EVERY,
        })
    }

    /// Announces a page while the next one is read, which it returns, and the changes `before` it leave the outbox.
    async fn announce_and_read_on(
        &self,
        led: Led,
        mut page: Page,
        before: Vec<Announced>,
        clock: &impl Fn() -> Now,
    ) -> Result<Option<Ahead>, EngineError> {
        let lines = match self.lines(&mut page).await {
            Ok(lines) => lines,
            Err(error) => {
                self.remove(led, before).await?;
                return Err(error.into());
            }
        };
        let Page { last, mut announced, .. } = page;
        let read_on = async {
            // If this fails, the next round reads it.
            self.read(last?, clock()).await.ok()
        };
        let announcing = self.announce(lines, last, clock);
        let (completed, next, removed) = join3(announcing, read_on, self.remove(led, before)).await;
        announced.extend(completed);
        let (above, rest) = {
            let progress = self.progress();
            (progress.above(), progress.rest(clock().mono))
        };
        // What is announced must have left the outbox before the outbox is read from its start.
        let next = next.filter(|page| page.above == above && rest.is_none() && removed.is_ok());
        let Some(page) = next else {
            self.remove(led, announced).await?;
            return removed.map(|()| None);
        };
        Ok(Some(Ahead { page, led, announced }))
    }

    /// Removes changes from the outbox.
    async fn remove(&self, led: Led, announced: Vec<Announced>) -> Result<(), EngineError> {
        if announced.is_empty() {
            return Ok(());
        }
        self.engine.inbox.decide_as(led.lease, vec![Item::Change(Change::Announced(announced))]).await?;
        Ok(())
    }

    /// Announces these events, those of tasks up to `last`, and returns the completed changes. Each turn sends one event for
    /// each of the first tasks, so that no event overtakes an unconfirmed one; after a failed event no more events of its task
    /// are sent.
    async fn announce(
        &self,
        mut lines: Vec<Line>,
        last: Option<TaskId>,
        clock: &impl Fn() -> Now,
    ) -> Vec<Announced> {
        let begun = clock();
        let (mut announced, mut unreachable, mut refused) = (Vec::new(), None, None);
        let mut end = PageEnd { last, is_empty: lines.is_empty(), is_cut: false };
        while !lines.is_empty() {
            let now = clock();
            if self.engine.leads(Service::Announcing, now).is_none() {
                return announced;
            }
            let part = (self.page / PARTS).max(1);
            if now.mono.0 >= begun.mono.0 + ROUND_TIME.0 {
                end.is_cut = true;
                lines.truncate(part);
                lines.iter_mut().for_each(Line::end_with_change);
            }
            let first = lines.iter().take(part).filter_map(|line| Some((&line.task, line.events.front()?)));
            let events: Vec<TaskEvent<'_>> =
                first.map(|(task, next)| TaskEvent { task, n: next.n, event: &next.event }).collect();
            let outcomes = self.tell_all(&events).await;
            self.engine.counts.announce(outcomes.iter().filter(|outcome| outcome.is_ok()).count());
            for (line, outcome) in lines.iter_mut().zip(outcomes) {
                let Some(next) = line.events.pop_front() else { continue };
                let task = line.task.id;
                match outcome {
                    Ok(()) => {
                        self.progress().confirm(task, next.n, next.completes.is_some(), now.mono);
                        announced.extend(next.completes);
                    }
                    Err(failure) => {
                        if is_planted(Bug::AnnouncementLost) {
                            announced.extend(next.completes);
                        }
                        if !is_planted(Bug::AnnouncementOvertaken) {
                            line.events.clear();
                        }
                        if failure.is_unreachable {
                            unreachable = Some(failure.message);
                        } else {
                            self.progress().refuse(task, now.mono);
                            refused = Some(format!("{} (task {task})", failure.message));
                        }
                    }
                }
            }
            lines.retain(|line| !line.events.is_empty());
        }
        if let Some(message) = &refused {
            self.has_failed(message, clock());
        }
        match unreachable {
            Some(message) => self.stop_at(&message, clock()),
            None => self.end_page(&end, clock()),
        }
        announced
    }

    /// Announces events to all subscribers that have not confirmed them yet. An event is confirmed when each of them has.
    async fn tell_all(&self, events: &[TaskEvent<'_>]) -> Vec<Result<(), Failure>> {
        let mut outcomes: Vec<Result<(), Failure>> = events.iter().map(|_| Ok(())).collect();
        for (number, subscriber) in self.subscribers.iter().enumerate() {
            let lacks = |event: &TaskEvent<'_>| !self.progress().has_told(event.task.id, event.n, number);
            let places: Vec<usize> = (0..events.len()).filter(|place| lacks(&events[*place])).collect();
            if places.is_empty() {
                continue;
            }
            let open: Vec<TaskEvent<'_>> = places.iter().map(|place| events[*place]).collect();
            for (place, told) in places.into_iter().zip(subscriber.announce(&open).await) {
                match told {
                    Ok(()) => self.progress().note_told(events[place].task.id, events[place].n, number),
                    Err(error) if outcomes[place].is_ok() => {
                        let message = format!("{}: {error}", subscriber.place());
                        let is_unreachable = matches!(error, BrokerError::Unreachable(_));
                        outcomes[place] = Err(Failure { message, is_unreachable });
                    }
                    Err(_) => {}
                }
            }
        }
        outcomes
    }

    /// Nothing can be announced now. After a pause the outbox is read from its start.
    fn stop_at(&self, error: &dyn Display, now: Now) {
        self.has_failed(error, now);
        self.progress().start_over(now.mono);
    }

    fn end_page(&self, end: &PageEnd, now: Now) {
        let mut progress = self.progress();
        let Some(pass) = progress.end_page(end, now.mono) else { return };
        // A broker that received nothing is in an unknown state, unless nothing waits.
        if !progress.is_refused() && (pass.is_empty || pass.is_confirmed) {
            self.trouble.ends();
        }
    }

    fn has_failed(&self, error: &dyn Display, now: Now) {
        if self.trouble.goes_on(error, now) {
            tracing::warn!(%error, "events cannot be announced; trying again");
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn places(&self) -> String {
        let places: Vec<String> = self.subscribers.iter().map(|subscriber| subscriber.place()).collect();
        places.join(" and ")
    }

    /// Raises the alarm about an unavailable broker, and resolves it when the broker works again.
    async fn tell_trouble(&self, led: Led, now: Now) -> Result<(), EngineError> {
        let id = AlarmId(AlarmKind::BrokerAway.as_str().into());
        let describe = |error: &str| format!("task events cannot be announced {error}");
        self.trouble.tell_as(led.lease, &self.engine, id, describe, now).await
    }
}

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

use std::{
    collections::{BTreeMap, VecDeque},
    fmt::Display,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use windlass_brokers::{Announcement, Broker, BrokerError, Topic};
use windlass_core::{
    AlarmId, AlarmKind, Event, Millis, Task, TaskId,
    planted::{Bug, is_planted},
};
use windlass_store::{Announced, Change, Now, Service, Signal, StoreError};

use crate::{
    Engine, EngineError,
    deciding::inbox::Item,
    services::{leading::Led, trouble::Trouble},
};

/// The maximum number of changes whose events are announced in one round. Their tasks are in memory meanwhile.
const ROUND_MAX: usize = 500;

/// No new change is started after this time in a round, because other tasks wait as well.
const ROUND_TIME: Millis = Millis::from_secs(1);

/// How often the outbox is read without a signal.
const LOOK_EVERY: Millis = Millis::from_secs(1);
/// The same if other servers commit as well.
const LOOK_SHARED: Millis = Millis(200);

/// Writes events as messages.
pub trait WriteEvent: Send + Sync {
    /// The announcement of a task's event with this number.
    fn announcement(&self, task: &Task, n: u64, event: &Event) -> Announcement;
}

/// An event of a task to announce.
#[derive(Debug, Clone, Copy)]
pub struct TaskEvent<'a> {
    /// The task as it is now, without parameters and results.
    pub task: &'a Task,
    /// The number of the event in its task, from 1.
    pub n: u64,
    /// The event.
    pub event: &'a Event,
}

/// Hears of the events of tasks.
#[async_trait]
pub trait Subscriber: Send + Sync {
    /// Where events go, for log and alarm messages: "on the topic T of BROKER".
    fn place(&self) -> String;

    /// Announces events of different tasks and returns when each is confirmed or refused: one outcome per event, in
    /// their order. An event that was confirmed may be announced again.
    async fn announce(&self, events: &[TaskEvent<'_>]) -> Vec<Result<(), BrokerError>>;
}

/// Announces events on a topic of a broker.
pub struct TopicSubscriber {
    broker: Arc<dyn Broker>,
    writer: Arc<dyn WriteEvent>,
    topic: Topic,
}

impl TopicSubscriber {
    /// A subscriber that has events written by `writer` and announces them on this topic.
    #[must_use]
    pub fn new(broker: Arc<dyn Broker>, writer: Arc<dyn WriteEvent>, topic: Topic) -> Self {
        Self { broker, writer, topic }
    }
}

#[async_trait]
impl Subscriber for TopicSubscriber {
    fn place(&self) -> String {
        format!("on the topic {} of {}", self.topic.name, self.broker.name())
    }

    async fn announce(&self, events: &[TaskEvent<'_>]) -> Vec<Result<(), BrokerError>> {
        let announcement = |event: &TaskEvent<'_>| self.writer.announcement(event.task, event.n, event.event);
        let announcements: Vec<Announcement> = events.iter().map(announcement).collect();
        self.broker.announce(&self.topic, &announcements).await
    }
}

/// Announces task events.
pub struct OutboxRelay {
    engine: Arc<Engine>,
    subscribers: Vec<Arc<dyn Subscriber>>,
    stirred: Arc<Signal>,
    trouble: Trouble,
    /// The last confirmed event of each task with a partly announced change: the outbox records whole changes only.
    /// Otherwise a broker that fails now and then would have to confirm a whole change in one go.
    confirmed: Mutex<BTreeMap<TaskId, u64>>,
}

/// The events to announce of one task in a round, in their order.
struct Line {
    task: Arc<Task>,
    events: VecDeque<Next>,
}

struct Next {
    n: u64,
    event: Event,
    /// Set for the last event of a change: its confirmation completes the change.
    completes: Option<Announced>,
}

impl Line {
    /// Drops the events after the current change.
    fn end_with_change(&mut self) {
        if let Some(last) = self.events.iter().position(|next| next.completes.is_some()) {
            self.events.truncate(last + 1);
        }
    }
}

impl OutboxRelay {
    /// An outbox relay of `engine`: from now on events are kept until all subscribers have confirmed them. While one of
    /// them is unavailable, all wait.
    #[must_use]
    pub fn new(engine: Arc<Engine>, subscribers: Vec<Arc<dyn Subscriber>>) -> Self {
        let stirred = engine.announcing.begin();
        Self { engine, subscribers, stirred, trouble: Trouble::default(), confirmed: Mutex::default() }
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
        let now = clock();
        let Some(led) = self.engine.leads(Service::Announcing, now) else {
            // Another server runs this service now, so this server's state of the broker and its alarm is outdated.
            self.trouble.forget();
            self.confirmed().clear();
            return Ok(LOOK_EVERY);
        };
        let round = self.round(led, &clock).await;
        Ok(self.engine.unless_lost(led, round.map(Some))?.unwrap_or(LOOK_EVERY))
    }

    async fn round(&self, led: Led, clock: &impl Fn() -> Now) -> Result<Millis, EngineError> {
        let now = clock();
        if let Some(rest) = self.trouble.rest(now) {
            return Ok(rest);
        }
        let mut is_full = false;
        let announced = match self.waiting().await {
            // Nothing is announced until an operator has repaired the rows.
            Err(error @ StoreError::Damaged(_)) => {
                self.has_failed(&format!("{}: {error}", self.places()), clock());
                Vec::new()
            }
            waiting => {
                let lines;
                (lines, is_full) = waiting?;
                self.announce(lines, clock).await
            }
        };
        let went = !announced.is_empty();
        if went {
            let out = vec![Item::Change(Change::Announced(announced))];
            self.engine.inbox.decide_as(led.lease, out).await?;
        }
        self.tell_trouble(led, clock()).await?;
        Ok(match self.engine.store.cluster().is_some() {
            _ if is_full && went => Millis(0),
            true => LOOK_SHARED,
            false => LOOK_EVERY,
        })
    }

    /// Announces these events and returns the completed changes. Each pass sends one event per task, so that no event
    /// overtakes an unconfirmed one; after a failed event no more events of its task are sent.
    async fn announce(&self, mut lines: Vec<Line>, clock: &impl Fn() -> Now) -> Vec<Announced> {
        let begun = clock();
        // A broker that received nothing is in an unknown state, unless nothing waits.
        let mut is_well = lines.is_empty();
        let (mut announced, mut failure) = (Vec::new(), None);
        while !lines.is_empty() {
            let now = clock();
            if self.engine.leads(Service::Announcing, now).is_none() {
                break;
            }
            if now.mono.0 >= begun.mono.0 + ROUND_TIME.0 {
                lines.iter_mut().for_each(Line::end_with_change);
            }
            let first = lines.iter().filter_map(|line| Some((&line.task, line.events.front()?)));
            let events: Vec<TaskEvent<'_>> =
                first.map(|(task, next)| TaskEvent { task, n: next.n, event: &next.event }).collect();
            let outcomes = self.tell_all(&events).await;
            self.engine.counts.announce(outcomes.iter().filter(|outcome| outcome.is_ok()).count());
            for (line, outcome) in lines.iter_mut().zip(outcomes) {
                match outcome {
                    Ok(()) => {
                        is_well = true;
                        announced.extend(self.note_confirmed(line));
                    }
                    Err(error) => {
                        let next = line.events.pop_front();
                        if is_planted(Bug::AnnouncementLost) {
                            announced.extend(next.and_then(|next| next.completes));
                        }
                        if !is_planted(Bug::AnnouncementOvertaken) {
                            line.events.clear();
                        }
                        failure = Some(error);
                    }
                }
            }
            lines.retain(|line| !line.events.is_empty());
        }
        match failure {
            Some(error) => self.has_failed(&error, clock()),
            None if is_well => self.trouble.ends(),
            None => {}
        }
        announced
    }

    /// Announces events to all subscribers. An event is confirmed when each of them has confirmed it.
    async fn tell_all(&self, events: &[TaskEvent<'_>]) -> Vec<Result<(), String>> {
        let mut outcomes = vec![Ok(()); events.len()];
        for subscriber in &self.subscribers {
            let told = subscriber.announce(events).await;
            for (outcome, told) in outcomes.iter_mut().zip(told) {
                if let (Ok(()), Err(error)) = (&outcome, told) {
                    *outcome = Err(format!("{}: {error}", subscriber.place()));
                }
            }
        }
        outcomes
    }

    /// Records that the next event of a task was confirmed. Returns the change that is completed by it.
    fn note_confirmed(&self, line: &mut Line) -> Option<Announced> {
        let Next { n, completes, .. } = line.events.pop_front()?;
        let mut confirmed = self.confirmed();
        if completes.is_some() {
            confirmed.remove(&line.task.id);
        } else {
            confirmed.insert(line.task.id, n);
        }
        completes
    }

    /// Drops events that were confirmed. `waiting` has all waiting events unless `is_full`: tasks that are not in it
    /// were then announced or deleted.
    fn leave_out_confirmed(&self, waiting: &mut BTreeMap<TaskId, VecDeque<Next>>, is_full: bool) {
        let mut confirmed = self.confirmed();
        if !is_full {
            confirmed.retain(|task, _| waiting.contains_key(task));
        }
        for (task, up_to) in &*confirmed {
            if let Some(events) = waiting.get_mut(task) {
                events.retain(|next| next.n > *up_to);
            }
        }
    }

    fn confirmed(&self) -> MutexGuard<'_, BTreeMap<TaskId, u64>> {
        self.confirmed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_failed(&self, error: &dyn Display, now: Now) {
        if self.trouble.goes_on(error, now) {
            tracing::warn!(%error, "events cannot be announced; trying again");
        }
    }

    fn places(&self) -> String {
        let places: Vec<String> = self.subscribers.iter().map(|subscriber| subscriber.place()).collect();
        places.join(" and ")
    }

    /// A bounded number of waiting events by task, and whether there may be more. Events of tasks that were deleted
    /// meanwhile are dropped.
    async fn waiting(&self) -> Result<(Vec<Line>, bool), StoreError> {
        let waiting = self.engine.store.unannounced(ROUND_MAX).await?;
        let is_full = waiting.len() == ROUND_MAX;
        let mut events: BTreeMap<TaskId, VecDeque<Next>> = BTreeMap::new();
        for change in waiting {
            let announced = change.announced();
            let last = change.after + change.events.len() as u64;
            let next = (change.after + 1..).zip(change.events).map(|(n, event)| Next {
                n,
                event,
                completes: (n == last).then_some(announced),
            });
            events.entry(change.task).or_default().extend(next);
        }
        self.leave_out_confirmed(&mut events, is_full);
        let ids: Vec<TaskId> = events.keys().copied().collect();
        // Announcements have no parameters and results.
        let tasks = self.engine.store.load_heads(&ids).await?;
        let lines = events.into_values().zip(tasks);
        let lines = lines.filter_map(|(events, loaded)| Some(Line { task: loaded?.task, events }));
        Ok((lines.collect(), is_full))
    }

    /// Raises the alarm about an unavailable broker, and resolves it when the broker works again.
    async fn tell_trouble(&self, led: Led, now: Now) -> Result<(), EngineError> {
        let id = AlarmId(AlarmKind::BrokerAway.as_str().into());
        let describe = |error: &str| format!("task events cannot be announced {error}");
        self.trouble.tell_as(led.lease, &self.engine, id, describe, now).await
    }
}

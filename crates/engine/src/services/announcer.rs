//! Announces what happens to tasks on a topic of a broker.
//!
//! ```text
//! committer:  state, events and their place in the outbox, in one transaction
//!                                     │
//! announcer:  outbox ─▶ read ─▶ Broker::announce ─▶ confirmed: out of the outbox
//!                └────────────── not confirmed: again ◀──┘
//! ```
//!
//! Each event is announced at least once, and those of a task in their order: none is sent before the one before it was
//! confirmed. One server does this at a time, and goes on behind the last event that was confirmed. What was confirmed when
//! it died, and was not out of the outbox yet, is announced again by whoever follows.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt::Display,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use windlass_brokers::{Announcement, Broker, Topic};
use windlass_core::{
    AlarmId, AlarmKind, Event, Millis, Task, TaskId,
    planted::{Bug, is_planted},
};

use super::trouble::Trouble;
use crate::{
    Engine, EngineError, Signal,
    inbox::Item,
    ports::{Announced, Change, Now, Service, StoreError},
};

/// Changes whose events are announced in one round. Their tasks are in memory meanwhile.
const ROUND_MAX: usize = 200;

/// No change is begun after so long in a round: others wait as well.
const ROUND_TIME: Millis = Millis::from_secs(1);

/// How often it is looked for what others have left, where nobody tells.
const LOOK_EVERY: Millis = Millis::from_secs(1);
/// The same where other servers commit as well.
const LOOK_SHARED: Millis = Millis(200);

/// Writes events as messages.
pub trait WriteEvent: Send + Sync {
    /// What is announced of the event of a task with this number.
    fn announcement(&self, task: &Task, n: u64, event: &Event) -> Announcement;
}

/// Announces what happens to tasks.
pub struct Announcer {
    engine: Arc<Engine>,
    broker: Arc<dyn Broker>,
    writer: Arc<dyn WriteEvent>,
    topic: Topic,
    stirred: Arc<Signal>,
    trouble: Trouble,
    /// Up to which event a task is announced whose change is announced in part: the outbox knows whole changes alone. A
    /// broker that refuses now and then would otherwise have to confirm a whole change in a row.
    confirmed: Mutex<BTreeMap<TaskId, u64>>,
}

/// What is to be announced of a task in a round, the next first.
struct Line {
    task: Arc<Task>,
    events: VecDeque<Next>,
}

struct Next {
    n: u64,
    event: Event,
    /// Of the last event of a change: then all of it is announced.
    completes: Option<Announced>,
}

impl Line {
    /// Leaves out what is behind the change that is under way.
    fn end_with_change(&mut self) {
        if let Some(last) = self.events.iter().position(|next| next.completes.is_some()) {
            self.events.truncate(last + 1);
        }
    }
}

impl Announcer {
    /// An announcer of `engine`: from now on what happens to tasks is kept until it is announced.
    #[must_use]
    pub fn new(
        engine: Arc<Engine>,
        broker: Arc<dyn Broker>,
        writer: Arc<dyn WriteEvent>,
        topic: Topic,
    ) -> Self {
        let stirred = engine.announcing.begin();
        Self {
            engine,
            broker,
            writer,
            topic,
            stirred,
            trouble: Trouble::default(),
            confirmed: Mutex::default(),
        }
    }

    /// Returns when something may have happened.
    pub async fn stirred(&self) {
        self.stirred.wait().await;
    }

    /// Announces a bounded part of what waits. Tells after how long it is to be called again at the latest. It asks for the
    /// time again as it goes on.
    ///
    /// # Errors
    /// When the store fails. That the broker does is no error: what happened waits, with an alarm.
    pub async fn run_once(&self, clock: impl Fn() -> Now) -> Result<Millis, EngineError> {
        let now = clock();
        if !self.engine.leads(Service::Announcing, now) {
            // What was known of the broker, and told of it, is the matter of another server by now.
            self.trouble.forget();
            self.confirmed().clear();
            return Ok(LOOK_EVERY);
        }
        if let Some(rest) = self.trouble.rest(now) {
            return Ok(rest);
        }
        let mut is_full = false;
        let announced = match self.waiting().await {
            // None of it is announced until somebody has mended that.
            Err(error @ StoreError::Damaged(_)) => {
                self.has_failed(&error, clock());
                Vec::new()
            }
            waiting => {
                let lines;
                (lines, is_full) = waiting?;
                self.announce(lines, &clock).await
            }
        };
        let went = !announced.is_empty();
        if went {
            self.engine.inbox.decide(vec![Item::Change(Change::Announced(announced))]).await?;
        }
        self.tell_trouble(clock()).await?;
        Ok(match self.engine.store.is_shared() {
            _ if is_full && went => Millis(0),
            true => LOOK_SHARED,
            false => LOOK_EVERY,
        })
    }

    /// Announces these and gives those of which every event was confirmed. It goes in rounds of one event of each task, so
    /// that none overtakes one that is not confirmed; of a task whose event is refused nothing more is sent.
    async fn announce(&self, mut lines: Vec<Line>, clock: &impl Fn() -> Now) -> Vec<Announced> {
        let begun = clock();
        // Of a broker that was given nothing nobody knows how it is, unless nothing waits.
        let mut is_well = lines.is_empty();
        let (mut announced, mut failure) = (Vec::new(), None);
        while !lines.is_empty() {
            let now = clock();
            if !self.engine.leads(Service::Announcing, now) {
                break;
            }
            if now.mono.0 >= begun.mono.0 + ROUND_TIME.0 {
                lines.iter_mut().for_each(Line::end_with_change);
            }
            let first = lines.iter().filter_map(|line| Some((&line.task, line.events.front()?)));
            let announcements: Vec<Announcement> =
                first.map(|(task, next)| self.writer.announcement(task, next.n, &next.event)).collect();
            let outcomes = self.broker.announce(&self.topic, &announcements).await;
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

    /// The next event of a task was confirmed. Returns the change that is announced by that.
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

    /// Leaves out what was confirmed. What waits is all here unless `is_full`: other tasks are announced then, or deleted.
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
            let (broker, topic) = (self.broker.name(), &self.topic.name);
            tracing::warn!(broker, topic, %error, "events cannot be announced; it is tried again");
        }
    }

    /// A bounded part of what waits, by task, and whether there may be more. Of a task that was deleted meanwhile there is
    /// nothing to say.
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

    /// Raises the alarm about a broker that is away, and resolves it when it is there again.
    async fn tell_trouble(&self, now: Now) -> Result<(), EngineError> {
        let id = AlarmId(AlarmKind::BrokerAway.as_str().into());
        let describe = |error: &str| {
            let (topic, broker) = (&self.topic.name, self.broker.name());
            format!("what happens to tasks cannot be announced on the topic {topic} of {broker}: {error}")
        };
        self.trouble.tell(&self.engine, id, describe, now).await
    }
}

//! The state of this server's queue publishers, for the code that wakes or queries them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use windlass_core::{ActState, Action, Name, Task, TaskId, Timestamp};

use windlass_store::{AttemptId, Claimed, SessionId, Signal};

use crate::Engine;

/// The queue publishers of this server, by module.
#[derive(Debug, Default)]
pub(crate) struct Offering {
    publishers: Mutex<BTreeMap<Name, QueuePublisher>>,
    /// Tasks of which somebody waits for the first message.
    watched: Mutex<HashMap<TaskId, Arc<Signal>>>,
}

/// Waits until this server has sent a message of a task, and the broker has confirmed it. Create it before the task is
/// accepted, or the message may have been sent before.
#[derive(Debug)]
pub struct SentWatch<'a> {
    offering: &'a Offering,
    task: TaskId,
    sent: Arc<Signal>,
}

impl SentWatch<'_> {
    /// Returns once a message was sent and confirmed.
    pub async fn sent(&self) {
        self.sent.wait().await;
    }
}

impl Drop for SentWatch<'_> {
    fn drop(&mut self) {
        self.offering.watched().remove(&self.task);
    }
}

impl Engine {
    /// Watches for the first message of a task that is accepted next, under this id.
    #[must_use]
    pub fn watch_sent(&self, task: TaskId) -> SentWatch<'_> {
        let sent = Arc::<Signal>::default();
        self.offering.watched().insert(task, sent.clone());
        SentWatch { offering: &self.offering, task, sent }
    }

    /// Whether a ready attempt of the task is of a module whose attempts this server offers on a broker.
    #[must_use]
    pub fn offers_attempts_of(&self, task: &Task) -> bool {
        let mut ready = task.open_acts().filter(|(_, act)| act.state == ActState::Ready);
        ready.any(|(key, _)| {
            let module = task.action(key).and_then(Action::worker).map(|(module, _)| module);
            module.is_some_and(|module| self.offering.of(module).is_some())
        })
    }
}

#[derive(Debug, Clone)]
struct QueuePublisher {
    stirred: Arc<Signal>,
    place: OfferedAt,
    session: SessionId,
    /// Attempts of queue publishers that are gone, until this one takes them over.
    left_behind: BTreeSet<AttemptId>,
}

/// The queue in which the attempts of a module are offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferedAt {
    /// The broker, without user and password.
    pub broker: String,
    /// The queue.
    pub queue: String,
    /// Since when the broker accepts no messages, and its error message.
    pub trouble: Option<(Timestamp, String)>,
}

impl Engine {
    /// The modules whose attempts this server offers on a broker, and where.
    #[must_use]
    pub fn offered(&self) -> Vec<(Name, OfferedAt)> {
        self.offering.with(|publishers| {
            publishers.iter().map(|(module, publisher)| (module.clone(), publisher.place.clone())).collect()
        })
    }
}

impl Offering {
    /// Starts a queue publisher. The returned signal is set when there may be attempts for it.
    pub(crate) fn begin(&self, module: Name, session: SessionId, place: OfferedAt) -> Arc<Signal> {
        let stirred = Arc::<Signal>::default();
        let publisher =
            QueuePublisher { stirred: stirred.clone(), place, session, left_behind: BTreeSet::new() };
        self.with(|publishers| publishers.insert(module, publisher));
        stirred
    }

    /// Records that the broker of a module fails, or works again.
    pub(crate) fn note(&self, module: &Name, trouble: Option<(Timestamp, String)>) {
        self.with(|publishers| {
            if let Some(publisher) = publishers.get_mut(module) {
                publisher.place.trouble = trouble;
            }
        });
    }

    /// Wakes all queue publishers because attempts may have become ready.
    pub(crate) fn stir(&self) {
        self.with(|publishers| publishers.values().for_each(|publisher| publisher.stirred.set()));
    }

    /// Hands over an attempt that a queue publisher offered which is gone. Returns whether a publisher of this server
    /// takes it over: its message is still on the broker then, and the attempt must not be claimed elsewhere.
    pub(crate) fn leave_behind(&self, gone: &Claimed) -> bool {
        self.with(|publishers| {
            let heir = publishers
                .get_mut(&gone.module)
                .filter(|publisher| publisher.session.offers_beside(gone.session));
            let Some(heir) = heir else { return false };
            heir.left_behind.insert(gone.id);
            heir.stirred.set();
            true
        })
    }

    /// The attempts that the queue publisher of a module must take over.
    pub(crate) fn take_left_behind(&self, module: &Name) -> BTreeSet<AttemptId> {
        self.with(|publishers| {
            publishers
                .get_mut(module)
                .map(|publisher| mem::take(&mut publisher.left_behind))
                .unwrap_or_default()
        })
    }

    /// Ends the queue publisher of a module: it takes over no more attempts.
    pub(crate) fn end(&self, module: &Name) {
        self.with(|publishers| publishers.remove(module));
    }

    /// The queue in which this server offers the attempts of a module.
    pub(crate) fn of(&self, module: &Name) -> Option<OfferedAt> {
        self.with(|publishers| publishers.get(module).map(|publisher| publisher.place.clone()))
    }

    /// Messages of these tasks were sent, and confirmed by the broker.
    pub(crate) fn were_sent(&self, tasks: impl IntoIterator<Item = TaskId>) {
        let watched = self.watched();
        if watched.is_empty() {
            return;
        }
        for task in tasks {
            if let Some(sent) = watched.get(&task) {
                sent.set();
            }
        }
    }

    fn watched(&self) -> MutexGuard<'_, HashMap<TaskId, Arc<Signal>>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, act: impl FnOnce(&mut BTreeMap<Name, QueuePublisher>) -> T) -> T {
        act(&mut self.publishers.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

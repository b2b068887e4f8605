//! An MQTT broker: one session for all servers, one for each device, and the last status of devices. It is unavailable at
//! times, and may lose everything that it keeps.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use windlass_core::{Name, TaskId};
use windlass_store::Signal;

use crate::world::{Entry, Journal};

/// What happens at the broker.
#[derive(Debug, Clone)]
pub(crate) enum MqttEvent {
    /// A server connected, and waiting messages come again.
    Connected,
    /// A job arrived.
    Published(Published),
    /// A message of a device arrived that names a job.
    Answered(Answered),
    /// A server acknowledged the message with this number.
    Acknowledged(u64),
    /// It lost everything that it kept.
    Wiped,
}

/// A job that a server published.
#[derive(Debug, Clone)]
pub(crate) struct Published {
    pub(crate) number: u64,
    pub(crate) topic: String,
    pub(crate) task: TaskId,
    pub(crate) attempt: u64,
    /// The numbers of the messages that waited when this connection was made, and that were not received over it yet.
    pub(crate) unheard: Vec<u64>,
}

/// What a device reports.
#[derive(Debug, Clone)]
pub(crate) struct Answered {
    pub(crate) number: u64,
    /// The device and the task that it names, and the attempt, if it names one.
    pub(crate) device: Name,
    pub(crate) task: TaskId,
    pub(crate) attempt: Option<u64>,
    pub(crate) success: bool,
    /// The number of the job that it answers, if it says about it what is true.
    pub(crate) job: Option<u64>,
}

/// A message for the servers.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub(super) number: u64,
    pub(super) topic: String,
    pub(super) payload: String,
    pub(super) retained: bool,
}

/// The session of the servers.
#[derive(Default)]
struct Session {
    waiting: VecDeque<Kept>,
    /// Received and not acknowledged, by number.
    received: BTreeMap<u64, Kept>,
    /// The messages that waited when the connection was made, and that were not received over it yet.
    unheard: BTreeSet<u64>,
}

/// The connection of a device.
#[derive(Default)]
struct Inbox {
    is_connected: bool,
    /// Whether the broker keeps jobs for it while it is disconnected.
    is_kept: bool,
    jobs: VecDeque<(u64, String)>,
    arrived: Arc<Signal>,
}

/// The state of the broker. A clone is another handle of it.
#[derive(Clone)]
pub(crate) struct Mqtt(Arc<Mutex<Inner>>);

struct Inner {
    journal: Journal,
    is_down: bool,
    session: Option<Session>,
    /// The connection of a server, and what wakes it. A later one ends it.
    link: Option<(u64, Arc<Signal>)>,
    links: u64,
    retained: BTreeMap<String, String>,
    /// By topic.
    inboxes: BTreeMap<String, Inbox>,
    numbers: u64,
}

impl Mqtt {
    pub(crate) fn new(journal: Journal) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            journal,
            is_down: false,
            session: None,
            link: None,
            links: 0,
            retained: BTreeMap::new(),
            inboxes: BTreeMap::new(),
            numbers: 0,
        })))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all connections, and accepts none until it is up again.
    pub(crate) fn go_down(&self) {
        let mut inner = self.inner();
        inner.is_down = true;
        inner.hang_up();
        for inbox in inner.inboxes.values_mut() {
            inbox.is_connected = false;
            inbox.arrived.set();
        }
    }

    pub(crate) fn come_up(&self) {
        self.inner().is_down = false;
    }

    pub(crate) fn is_down(&self) -> bool {
        self.inner().is_down
    }

    /// Loses all sessions, and the last status of devices.
    pub(crate) fn wipe(&self) {
        let mut inner = self.inner();
        inner.session = None;
        inner.retained.clear();
        inner.inboxes.values_mut().for_each(|inbox| inbox.jobs.clear());
        inner.journal.add(Entry::Mqtt(MqttEvent::Wiped));
    }

    /// A device connects, and waits for jobs on this topic. Returns what wakes it; nothing if the broker is down.
    pub(crate) fn connect_device(&self, topic: &str, is_kept: bool) -> Option<Arc<Signal>> {
        let mut inner = self.inner();
        if inner.is_down {
            return None;
        }
        let inbox = inner.inboxes.entry(topic.to_owned()).or_default();
        if !is_kept {
            inbox.jobs.clear();
        }
        (inbox.is_connected, inbox.is_kept) = (true, is_kept);
        Some(inbox.arrived.clone())
    }

    pub(crate) fn disconnect_device(&self, topic: &str) {
        if let Some(inbox) = self.inner().inboxes.get_mut(topic) {
            inbox.is_connected = false;
        }
    }

    pub(crate) fn is_connected(&self, topic: &str) -> bool {
        self.inner().inboxes.get(topic).is_some_and(|inbox| inbox.is_connected)
    }

    /// The next job of a connected device, and its number.
    pub(crate) fn take_job(&self, topic: &str) -> Option<(u64, String)> {
        self.inner().inboxes.get_mut(topic).filter(|inbox| inbox.is_connected)?.jobs.pop_front()
    }

    /// A number for a message that a device is about to write.
    pub(crate) fn number(&self) -> u64 {
        let mut inner = self.inner();
        inner.numbers += 1;
        inner.numbers
    }

    /// A device, or the broker by a last will, publishes. Returns whether it arrived.
    pub(crate) fn hear(
        &self,
        topic: &str,
        payload: String,
        retain: bool,
        answered: Option<Answered>,
    ) -> bool {
        let mut inner = self.inner();
        if inner.is_down {
            return false;
        }
        let number = match &answered {
            Some(answered) => answered.number,
            None => {
                inner.numbers += 1;
                inner.numbers
            }
        };
        if let Some(answered) = answered {
            inner.journal.add(Entry::Mqtt(MqttEvent::Answered(answered)));
        }
        if retain {
            inner.retained.insert(topic.to_owned(), payload.clone());
        }
        let kept = Kept { number, topic: topic.to_owned(), payload, retained: false };
        // Without a session nobody has subscribed.
        if let Some(session) = &mut inner.session {
            session.waiting.push_back(kept);
        }
        if let Some((_, arrived)) = &inner.link {
            arrived.set();
        }
        true
    }

    /// A server connects and subscribes: the connection that was open ends, and what was not acknowledged comes again.
    pub(super) fn open(&self) -> Option<(u64, Arc<Signal>)> {
        let mut inner = self.inner();
        if inner.is_down {
            return None;
        }
        inner.hang_up();
        inner.links += 1;
        let link = (inner.links, Arc::<Signal>::default());
        inner.link = Some(link.clone());
        let session = inner.session.get_or_insert_default();
        let again = std::mem::take(&mut session.received);
        again.into_values().rev().for_each(|kept| session.waiting.push_front(kept));
        session.unheard = session.waiting.iter().map(|kept| kept.number).collect();
        inner.send_retained();
        inner.journal.add(Entry::Mqtt(MqttEvent::Connected));
        Some(link)
    }

    pub(super) fn is_open(&self, link: u64) -> bool {
        self.inner().link.as_ref().is_some_and(|(open, _)| *open == link)
    }

    pub(super) fn close(&self, link: u64) {
        let mut inner = self.inner();
        if inner.link.as_ref().is_some_and(|(open, _)| *open == link) {
            inner.hang_up();
        }
    }

    /// Sends the last status of devices again. False if the connection is over.
    pub(super) fn refresh(&self, link: u64) -> bool {
        let is_open = self.is_open(link);
        if is_open {
            self.inner().send_retained();
        }
        is_open
    }

    /// The next messages for a server; none if its connection is over.
    pub(super) fn receive(&self, link: u64, max: usize) -> Option<Vec<Kept>> {
        if !self.is_open(link) {
            return None;
        }
        let mut inner = self.inner();
        let session = inner.session.as_mut()?;
        let count = session.waiting.len().min(max);
        let taken: Vec<Kept> = session.waiting.drain(..count).collect();
        for kept in &taken {
            session.unheard.remove(&kept.number);
            session.received.insert(kept.number, kept.clone());
        }
        Some(taken)
    }

    /// A server acknowledges messages, unless its connection is over.
    pub(super) fn acknowledge(&self, link: u64, numbers: impl Iterator<Item = u64>) {
        if !self.is_open(link) {
            return;
        }
        let mut inner = self.inner();
        for number in numbers {
            let known = inner.session.as_mut().and_then(|session| session.received.remove(&number));
            if known.is_some() {
                inner.journal.add(Entry::Mqtt(MqttEvent::Acknowledged(number)));
            }
        }
    }

    /// A server publishes a job, which arrives once or more often. False if its connection is over.
    pub(super) fn publish(&self, link: u64, topic: &str, payload: &[u8], copies: usize) -> bool {
        if !self.is_open(link) {
            return false;
        }
        let text = String::from_utf8_lossy(payload).into_owned();
        let mut inner = self.inner();
        inner.numbers += 1;
        let number = inner.numbers;
        if let Some((task, attempt)) = job_of(&text) {
            let unheard = inner.session.iter().flat_map(|session| session.unheard.iter().copied()).collect();
            let published = Published { number, topic: topic.to_owned(), task, attempt, unheard };
            inner.journal.add(Entry::Mqtt(MqttEvent::Published(published)));
        }
        if let Some(inbox) = inner.inboxes.get_mut(topic).filter(|inbox| inbox.is_connected || inbox.is_kept)
        {
            (0..copies).for_each(|_| inbox.jobs.push_back((number, text.clone())));
            inbox.arrived.set();
        }
        true
    }
}

impl Inner {
    fn hang_up(&mut self) {
        if let Some((_, arrived)) = self.link.take() {
            arrived.set();
        }
    }

    /// Sends what is retained to the server that has subscribed.
    fn send_retained(&mut self) {
        let Some(session) = &mut self.session else { return };
        for (topic, payload) in &self.retained {
            self.numbers += 1;
            let (number, topic, payload) = (self.numbers, topic.clone(), payload.clone());
            session.waiting.push_back(Kept { number, topic, payload, retained: true });
        }
        if let Some((_, arrived)) = &self.link {
            arrived.set();
        }
    }
}

/// The task and the attempt that a job names.
pub(crate) fn job_of(payload: &str) -> Option<(TaskId, u64)> {
    let job: serde_json::Value = serde_json::from_str(payload).ok()?;
    Some((job["uuid"].as_str()?.parse().ok()?, job["attempt"].as_u64()?))
}

//! A broker in memory.

mod announcing;
mod offering;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use windlass_brokers::{
    Announcement, Broker, BrokerError, Consumer, ConsumerSettings, InFlight, Look, Message, Positions,
    Progress, Queue, Topic,
};

/// A broker whose queue keeps what it is given, and on whose topic announcements get lost on the way, or their
/// confirmations on their way to the server, by a seed.
pub(crate) struct TestBroker {
    chance: Mutex<u64>,
    /// The number of announcements of each four that are lost, and of those whose confirmation is lost.
    pub(crate) losses: AtomicU64,
    pub(crate) heard: Mutex<Vec<(String, u64)>>,
    /// Tasks whose announcements are refused, and how many were.
    pub(crate) refuses: Mutex<BTreeMap<String, u64>>,
    /// The ids of messages, in the order in which they came.
    pub(crate) published: Mutex<Vec<String>>,
    /// The number of messages of the queue that are acknowledged, or lost.
    pub(crate) gone: AtomicU64,
    /// The number of confirmed answers.
    pub(crate) answered: AtomicU64,
    /// The number of them that were read.
    pub(crate) read: AtomicU64,
    /// It cannot be reached.
    pub(crate) is_unreachable: AtomicBool,
}

impl TestBroker {
    pub(crate) fn new(seed: u64, losses: u64) -> Arc<Self> {
        Arc::new(Self {
            chance: Mutex::new(seed),
            losses: AtomicU64::new(losses),
            heard: Mutex::default(),
            refuses: Mutex::default(),
            published: Mutex::default(),
            gone: AtomicU64::default(),
            answered: AtomicU64::default(),
            read: AtomicU64::default(),
            is_unreachable: AtomicBool::default(),
        })
    }

    fn next(&self) -> u64 {
        let mut chance = self.chance.lock().unwrap();
        *chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *chance >> 33
    }

    /// What was heard of each task, without repetitions.
    pub(crate) fn first_heard(&self) -> BTreeMap<String, Vec<u64>> {
        let mut first: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for (task, n) in &*self.heard.lock().unwrap() {
            let numbers = first.entry(task.clone()).or_default();
            if !numbers.contains(n) {
                numbers.push(*n);
            }
        }
        first
    }
}

fn lost<T>() -> Result<T, BrokerError> {
    Err(BrokerError::Unreachable("lost on the way".to_owned()))
}

#[async_trait]
impl Broker for TestBroker {
    fn name(&self) -> &str {
        "lossy"
    }

    fn message_bytes_max(&self) -> usize {
        usize::MAX
    }

    fn has_headers(&self, _queue: &Queue) -> bool {
        true
    }

    fn check(&self, _queue: &Queue) -> Result<(), BrokerError> {
        Ok(())
    }

    fn check_topic(&self, _topic: &Topic) -> Result<(), BrokerError> {
        Ok(())
    }

    async fn declare(&self, _queue: &Queue) -> Result<(), BrokerError> {
        Ok(())
    }

    async fn publish(&self, _queue: &Queue, messages: &[Message]) -> Vec<Result<(), BrokerError>> {
        if self.is_unreachable.load(Ordering::Relaxed) {
            return messages.iter().map(|_| lost()).collect();
        }
        self.published.lock().unwrap().extend(messages.iter().map(|message| message.id.clone()));
        vec![Ok(()); messages.len()]
    }

    async fn announce(&self, _topic: &Topic, announcements: &[Announcement]) -> Vec<Result<(), BrokerError>> {
        let say = |announcement: &Announcement| {
            let (chance, losses) = (self.next() % 8, self.losses.load(Ordering::Relaxed));
            if chance < losses {
                return lost();
            }
            let (task, n) = announcement.message.id.split_once('/').unwrap();
            if let Some(times) = self.refuses.lock().unwrap().get_mut(task) {
                *times += 1;
                return Err(BrokerError::Refused("not for you".to_owned()));
            }
            self.heard.lock().unwrap().push((task.to_owned(), n.parse().unwrap()));
            if chance < 2 * losses { lost() } else { Ok(()) }
        };
        announcements.iter().map(say).collect()
    }

    async fn look(&self, _queue: &Queue) -> Result<Look, BrokerError> {
        if self.is_unreachable.load(Ordering::Relaxed) {
            return lost();
        }
        let messages = self.published.lock().unwrap().len() as u64 - self.gone.load(Ordering::Relaxed);
        Ok(Look { messages: Some(messages), in_flight: InFlight::Counted, identity: None })
    }

    async fn progress(&self, _queue: &Queue, _group: &str) -> Result<Progress, BrokerError> {
        let (settled, end) = (self.read.load(Ordering::Relaxed), self.answered.load(Ordering::Relaxed));
        let positions = Positions { settled: settled.into(), end: end.into() };
        Ok(Progress::Positions([(0, positions)].into()))
    }

    async fn consume(
        &self,
        _queue: &Queue,
        _settings: &ConsumerSettings,
    ) -> Result<Box<dyn Consumer>, BrokerError> {
        lost()
    }
}

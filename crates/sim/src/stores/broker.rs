//! A broker with one queue of steps and one of results. It loses, repeats and delays messages.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use windlass_brokers::{
    Announcement, Broker, BrokerError, Consumer, ConsumerSettings, InFlight, Look, Message, Positions,
    Progress, Queue, Topic,
};
use windlass_engine::{HandedOut, WorkerReport, services::WriteStep};

use crate::world::{Device, Operation};

/// The state of the broker. A clone is another handle of it.
#[derive(Clone, Default)]
pub(crate) struct Queues(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    /// The attempts by their tokens.
    steps: BTreeMap<String, HandedOut>,
    /// The queue of steps, and the number of messages that consumers have received and not acknowledged.
    waiting: VecDeque<String>,
    taken: u64,
    /// Results by number, in order of arrival.
    answers: BTreeMap<u64, WorkerReport>,
    answered: u64,
    /// The results that servers have settled.
    settled: u64,
}

impl Queues {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A consumer receives a message.
    pub(crate) fn take(&self) -> Option<HandedOut> {
        let mut inner = self.inner();
        let token = inner.waiting.pop_front()?;
        inner.taken += 1;
        inner.steps.get(&token).cloned()
    }

    /// A consumer acknowledges a message, or gives it back.
    pub(crate) fn settle(&self, token: &str, is_done: bool) {
        let mut inner = self.inner();
        inner.taken -= 1;
        if !is_done {
            inner.waiting.push_back(token.to_owned());
        }
    }

    pub(crate) fn answer(&self, report: WorkerReport) {
        let mut inner = self.inner();
        inner.answered += 1;
        let number = inner.answered;
        inner.answers.insert(number, report);
    }

    /// The unsettled results, the oldest first.
    pub(crate) fn answers(&self, most: usize) -> Vec<(u64, WorkerReport)> {
        self.inner().answers.iter().take(most).map(|(number, report)| (*number, report.clone())).collect()
    }

    /// A server has settled these.
    pub(crate) fn heard(&self, numbers: &[u64]) {
        let mut inner = self.inner();
        for number in numbers {
            if inner.answers.remove(number).is_some() {
                inner.settled += 1;
            }
        }
    }
}

/// A server's connection to the broker.
pub(crate) struct QueuesThere {
    pub(crate) queues: Queues,
    pub(crate) device: Device,
    pub(crate) dice: Mutex<fastrand::Rng>,
    /// How often, in a thousand messages, one is refused, confirmed and lost, or duplicated.
    pub(crate) losses: u64,
}

impl QueuesThere {
    fn keep(&self, message: &Message) -> Result<(), BrokerError> {
        let chance = self.dice.lock().unwrap_or_else(PoisonError::into_inner).u64(..1000);
        let copies = match chance / self.losses.max(1) {
            0 if self.losses > 0 => return unreachable("it refuses"),
            1 if self.losses > 0 => 0,
            2 if self.losses > 0 => 2,
            _ => 1,
        };
        let mut inner = self.queues.inner();
        (0..copies).for_each(|_| inner.waiting.push_back(message.id.clone()));
        drop(inner);
        if self.losses > 0 && chance / self.losses == 3 { unreachable("it does not confirm") } else { Ok(()) }
    }
}

fn unreachable<T>(why: &str) -> Result<T, BrokerError> {
    Err(BrokerError::Unreachable(why.to_owned()))
}

#[async_trait]
impl Broker for QueuesThere {
    fn name(&self) -> &str {
        "queues"
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
        if let Err(error) = self.device.wait(Operation::Read).await {
            return messages.iter().map(|_| unreachable(&error.to_string())).collect();
        }
        let outcomes = messages.iter().map(|message| self.keep(message)).collect();
        match self.device.wait(Operation::Back).await {
            Ok(()) => outcomes,
            Err(error) => messages.iter().map(|_| unreachable(&error.to_string())).collect(),
        }
    }

    async fn announce(&self, _topic: &Topic, announcements: &[Announcement]) -> Vec<Result<(), BrokerError>> {
        announcements.iter().map(|_| unreachable("it has no topics")).collect()
    }

    async fn look(&self, _queue: &Queue) -> Result<Look, BrokerError> {
        let messages = {
            let inner = self.queues.inner();
            inner.waiting.len() as u64 + inner.taken
        };
        match self.device.wait(Operation::Back).await {
            Ok(()) => Ok(Look { messages: Some(messages), in_flight: InFlight::Counted, identity: None }),
            Err(error) => unreachable(&error.to_string()),
        }
    }

    async fn progress(&self, _queue: &Queue, _group: &str) -> Result<Progress, BrokerError> {
        let inner = self.queues.inner();
        let settled = u128::from(inner.settled);
        let positions = Positions { settled, end: settled + inner.answers.len() as u128 };
        Ok(Progress::Positions([(0, positions)].into()))
    }

    async fn consume(
        &self,
        _queue: &Queue,
        _settings: &ConsumerSettings,
    ) -> Result<Box<dyn Consumer>, BrokerError> {
        unreachable("its consumers are in the same process")
    }
}

/// Writes steps as their tokens, and records the attempts of these tokens.
pub(crate) struct Steps(pub(crate) Queues);

impl WriteStep for Steps {
    fn message(&self, attempt: &HandedOut, _has_headers: bool) -> Message {
        self.0.inner().steps.insert(attempt.token.clone(), attempt.clone());
        Message::new(attempt.token.clone(), attempt.id.task.to_string(), "")
    }

    fn reference(&self, attempt: &HandedOut, has_headers: bool) -> Message {
        self.message(attempt, has_headers)
    }
}

//! A queue being consumed: messages are read, handled, and settled by what became of each.
//!
//! ```text
//! receive ─▶ handle ─┬─ done ────▶ acknowledge
//!    ▲               ├─ refused ─▶ alarm ─▶ dead queue ─▶ acknowledge
//!    │               └─ later ───▶ kept in hands, and handled once more after a pause ─┐
//!    └─────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! What is to be handled later stays in hands: some products count how often they deliver a message, and throw it away when
//! that is often. Others go on meanwhile, as far as there is room for them.

use std::{mem, sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::time::{self, Instant};
use windlass_brokers::{Broker, BrokerError, Consumer, ConsumerSettings, Delivery, Queue, Receipt, bury};
use windlass_core::{AlarmCommand, AlarmId, AlarmKind, TaskId};
use windlass_engine::{
    Engine,
    services::{Trouble, Unreadable},
};
use windlass_store::Clock;

use super::portion::Portion;

/// How long one look for messages waits.
const WAIT: Duration = Duration::from_secs(5);

/// Another server reads what this one has in hands after so long.
const SILENT_AFTER: Duration = Duration::from_secs(30);

/// Longest id of an alarm that every store keeps.
const ALARM_ID_BYTES_MAX: usize = 255;

/// After something failed.
const FAILED_PAUSE: Duration = Duration::from_millis(500);

/// What a queue is consumed for.
#[async_trait]
pub(super) trait Handle: Send + Sync {
    /// Does what messages ask for, and tells of each, in their order, what became of it.
    async fn handle(&self, deliveries: &[Delivery]) -> Vec<Result<(), Unreadable>>;
}

/// A queue, and what is done with its messages.
pub(super) struct Consumption<H> {
    pub(super) engine: Arc<Engine>,
    pub(super) clock: Arc<dyn Clock + Send + Sync>,
    pub(super) broker: Arc<dyn Broker>,
    pub(super) queue: Queue,
    /// All servers share the messages under this name.
    pub(super) group: &'static str,
    /// Messages read at once, at most.
    pub(super) round_max: usize,
    /// What the messages are, in the plural, for people.
    pub(super) what: &'static str,
    /// What is missing where one is of no use, for people.
    pub(super) useless: &'static str,
    pub(super) handler: H,
}

impl<H: Handle> Consumption<H> {
    /// Consumes, for ever. A broker that is away is tried again and again, with an alarm; what it has stays there.
    pub(super) async fn run(self) {
        let mut portion = Portion::new(self.round_max, self.broker.message_bytes_max());
        let trouble = Trouble::default();
        loop {
            if let Err(error) = self.consume(&mut portion, &trouble).await {
                if trouble.goes_on(&error, self.clock.now()) {
                    let (broker, queue, what) = (self.broker.name(), &self.queue, self.what);
                    tracing::warn!(broker, %queue, %error, "{what} cannot be read; it is tried again");
                }
                self.tell(&trouble).await;
                time::sleep(FAILED_PAUSE).await;
            }
        }
    }

    /// Raises the alarm about a broker that is away, and resolves it when it is there again.
    async fn tell(&self, trouble: &Trouble) {
        let id = alarm_id(AlarmKind::BrokerAway, &self.queue, self.broker.name());
        let (broker, queue, what) = (self.broker.name(), &self.queue, self.what);
        let describe =
            |error: &str| format!("{what} cannot be read from the queue {queue} of {broker}: {error}");
        if let Err(error) = trouble.tell(&self.engine, id, describe, self.clock.now()).await {
            tracing::debug!(broker, %queue, %error, "an alarm cannot be told; it is tried again");
        }
    }

    /// Consumes until that is to be begun anew.
    async fn consume(&self, portion: &mut Portion, trouble: &Trouble) -> Result<(), BrokerError> {
        let settings = ConsumerSettings {
            group: self.group.to_owned(),
            name: self.engine.server_id().map_or_else(String::new, |id| id.to_string()),
            in_hands_max: portion.in_hands_max(),
            silent_after: SILENT_AFTER,
        };
        let mut consumer = self.broker.consume(&self.queue, &settings).await?;
        let mut later: Vec<Delivery> = Vec::new();
        let (mut tried_at, mut is_late) = (Instant::now(), false);
        loop {
            let room = portion.count().saturating_sub(later.len());
            let wait = if later.is_empty() { WAIT } else { FAILED_PAUSE };
            let mut deliveries = if room > 0 {
                consumer.receive(room, wait).await?
            } else {
                time::sleep(FAILED_PAUSE).await;
                Vec::new()
            };
            if trouble.is_away() {
                let (broker, queue, what) = (self.broker.name(), &self.queue, self.what);
                tracing::info!(broker, %queue, "{what} are read again");
            }
            trouble.ends();
            if trouble.is_known() {
                self.tell(trouble).await;
            }
            portion.learn(&deliveries);
            if !later.is_empty() && tried_at.elapsed() >= FAILED_PAUSE {
                consumer.keep(&receipts(&later)).await?;
                deliveries.append(&mut later);
            }
            if !deliveries.is_empty() {
                later.extend(self.handle(consumer.as_mut(), deliveries, &mut is_late).await?);
                tried_at = Instant::now();
            }
            if later.is_empty() && portion.is_other_than(settings.in_hands_max) {
                return Ok(());
            }
        }
    }

    /// Handles messages and settles them. Gives those that are to be handled later.
    async fn handle(
        &self,
        consumer: &mut dyn Consumer,
        deliveries: Vec<Delivery>,
        is_late: &mut bool,
    ) -> Result<Vec<Delivery>, BrokerError> {
        let told = self.handler.handle(&deliveries).await;
        let (mut done, mut refused, mut later) = (Vec::new(), Vec::new(), Vec::new());
        for (delivery, told) in deliveries.into_iter().zip(told) {
            match told {
                Ok(()) => done.push(delivery.receipt),
                Err(Unreadable::Refused(why)) => refused.push((delivery, why)),
                Err(Unreadable::Later(why)) => later.push((delivery, why)),
            }
        }
        if !done.is_empty() {
            consumer.acknowledge(&done).await?;
        }
        for (delivery, why) in refused {
            match self.put_aside(&delivery, &why).await? {
                Ok(()) => consumer.acknowledge(&[delivery.receipt]).await?,
                Err(not_yet) => later.push((delivery, not_yet)),
            }
        }
        let was_late = mem::replace(is_late, !later.is_empty());
        if let (Some((_, why)), false) = (later.first(), was_late) {
            // Once, until all are done: the store may be away for long.
            let (broker, queue, what, count) = (self.broker.name(), &self.queue, self.what, later.len());
            tracing::warn!(broker, %queue, count, why, "{what} cannot be taken in; they are kept and tried again");
        }
        Ok(later.into_iter().map(|(delivery, _)| delivery).collect())
    }

    /// Puts a message that nobody can use into the dead queue, with an alarm that says why. Gives the reason why that is to be
    /// done later.
    async fn put_aside(&self, delivery: &Delivery, why: &str) -> Result<Result<(), String>, BrokerError> {
        let (broker, queue, useless) = (self.broker.name(), &self.queue, self.useless);
        let dead = queue.dead();
        tracing::warn!(broker, %queue, why, "a message {useless}, and goes to the dead queue");
        let message = format!("a message of {queue} at {broker} {useless}, and is in {dead} now: {why}");
        let raise = AlarmCommand::Raise {
            kind: AlarmKind::MessageRefused,
            task: TaskId::NONE,
            step: None,
            message: message.into(),
        };
        let id = alarm_id(AlarmKind::MessageRefused, queue, broker);
        if let Err(error) = self.engine.tell_alarm(id, raise).await {
            return Ok(Err(format!("the alarm of a message that {useless} cannot be raised: {error}")));
        }
        bury(self.broker.as_ref(), queue, delivery.message.clone(), why).await?;
        Ok(Ok(()))
    }
}

/// The alarm about a queue of a broker, as `KIND:QUEUE@HOST:PORT`. Queues of one name may be on several brokers.
fn alarm_id(kind: AlarmKind, queue: &Queue, broker: &str) -> AlarmId {
    let place = broker.split_once("://").map_or(broker, |(_, place)| place).replace('/', ".");
    let mut id = format!("{}:{}@{place}", kind.as_str(), queue.name);
    id.truncate(id.floor_char_boundary(ALARM_ID_BYTES_MAX));
    AlarmId(id.into())
}

fn receipts(deliveries: &[Delivery]) -> Vec<Receipt> {
    deliveries.iter().map(|delivery| delivery.receipt.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_of_one_name_on_two_brokers_have_alarms_of_their_own() {
        let id = |queue: &str, broker: &str| {
            alarm_id(AlarmKind::BrokerAway, &Queue::new(queue), broker).0.to_string()
        };
        assert_eq!(id("orders", "redis://127.0.0.1:6379/0"), "broker_away:orders@127.0.0.1:6379.0");
        assert_eq!(id("orders", "amqp://127.0.0.1:5672"), "broker_away:orders@127.0.0.1:5672");
        assert_eq!(id(&"o".repeat(300), "sqs://eu-north-1").len(), ALARM_ID_BYTES_MAX);
    }
}

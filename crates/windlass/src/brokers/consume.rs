//! Consumes a queue: reads messages, handles them and settles each one according to its result.
//!
//! ```text
//! receive ─▶ handle ─┬─ done ────▶ acknowledge
//!    ▲               ├─ refused ─▶ alarm ─▶ dead-letter queue ─▶ acknowledge
//!    │               └─ later ───▶ kept in flight, and handled again after a pause  ─┐
//!    └─────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A message for later stays in flight: some products count deliveries and discard a message that was
//! delivered too often. Other messages are handled meanwhile, up to the limit.
//!
//! A handler may allow two rounds to overlap, see [`Handle::overlaps`].

use std::{future::Future, mem, panic::resume_unwind, sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::{
    task::JoinSet,
    time::{self, Instant},
};
use windlass_brokers::{
    Binding, Broker, BrokerError, Consumer, ConsumerSettings, Delivery, Queue, Receipt, bury,
};
use windlass_core::{AlarmCommand, AlarmId, AlarmKind, TaskId};
use windlass_engine::{
    Engine,
    services::{Trouble, Unreadable},
};
use windlass_store::Clock;

use super::portion::Portion;

/// How long one receive call waits for messages.
const WAIT: Duration = Duration::from_secs(5);

/// After this silence another server may read this server's messages in flight.
const SILENT_AFTER: Duration = Duration::from_secs(30);

/// The longest alarm id that every store accepts.
const ALARM_ID_BYTES_MAX: usize = 255;

/// How long one receive call waits while earlier messages are being handled. Some products return nothing if this is zero.
const WAIT_BETWEEN: Duration = Duration::from_millis(1);

/// How many rounds of messages are handled concurrently by a handler that overlaps: the server reads and prepares one
/// round while the store writes the other one.
const ROUNDS_AT_ONCE: usize = 2;

/// The pause after a failure.
const FAILED_PAUSE: Duration = Duration::from_millis(500);

/// Handles the messages of a consumed queue.
#[async_trait]
pub(super) trait Handle: Send + Sync + 'static {
    /// Handles messages and returns the result of each one, in their order.
    async fn handle(&self, deliveries: &[Delivery]) -> Vec<Result<(), Unreadable>>;

    /// Whether a message for later delays all messages after it.
    fn keeps_order(&self) -> bool {
        false
    }

    /// Whether the next round of messages may be handled while the previous round is still being handled.
    fn overlaps(&self) -> bool {
        false
    }
}

/// A queue and the handler of its messages.
pub(super) struct Consumption<H> {
    pub(super) engine: Arc<Engine>,
    pub(super) clock: Arc<dyn Clock + Send + Sync>,
    pub(super) broker: Arc<dyn Broker>,
    pub(super) queue: Queue,
    /// What the queue gets of an exchange.
    pub(super) binding: Option<Binding>,
    /// Consumer group: all servers share the messages under this name.
    pub(super) group: &'static str,
    /// The most messages in flight.
    pub(super) in_flight_max: usize,
    /// Plural noun for the messages, in log and alarm messages.
    pub(super) what: &'static str,
    /// Predicate for a message that the handler refuses, in log and alarm messages.
    pub(super) useless: &'static str,
    pub(super) handler: Arc<H>,
}

impl<H: Handle> Consumption<H> {
    /// Consumes until `stop`, and disconnects from the broker, which nobody else may use then: its messages in flight go
    /// back. This takes until the time that `stops_at` returns then, at most.
    pub(super) async fn run_until(
        self,
        stop: impl Future<Output = ()>,
        stops_at: impl FnOnce() -> std::time::Instant,
    ) {
        tokio::select! {
            biased;
            () = stop => {}
            () = self.run() => {}
        }
        if time::timeout_at(stops_at().into(), self.broker.disconnect()).await.is_err() {
            let (broker, queue) = (self.broker.name(), &self.queue);
            tracing::warn!(broker, %queue, "the broker has not confirmed the end of the connection in time");
        }
    }

    /// Consumes for ever. While the broker is unavailable, retries and keeps an alarm raised; messages stay
    /// on the broker.
    pub(super) async fn run(&self) {
        let mut portion = Portion::new(self.in_flight_max, self.broker.message_bytes_max());
        let trouble = Trouble::default();
        loop {
            if let Err(error) = self.consume(&mut portion, &trouble).await {
                if trouble.goes_on(&error, self.clock.now()) {
                    let (broker, queue, what) = (self.broker.name(), &self.queue, self.what);
                    tracing::warn!(broker, %queue, %error, "cannot read {what}; retrying");
                }
                self.tell(&trouble).await;
                time::sleep(FAILED_PAUSE).await;
            }
        }
    }

    /// Raises the alarm while the broker is unavailable, and resolves it once the broker is reachable again.
    async fn tell(&self, trouble: &Trouble) {
        let id = alarm_id(AlarmKind::BrokerAway, &self.queue.name, self.broker.name());
        let (broker, queue, what) = (self.broker.name(), &self.queue, self.what);
        let describe =
            |error: &str| format!("cannot read {what} from the queue {queue} of {broker}: {error}");
        if let Err(error) = trouble.tell(&self.engine, id, describe, self.clock.now()).await {
            tracing::debug!(broker, %queue, %error, "cannot change an alarm; retrying");
        }
    }

    /// Consumes until the consumer must be replaced by one with another limit of messages in flight.
    async fn consume(&self, portion: &mut Portion, trouble: &Trouble) -> Result<(), BrokerError> {
        let settings = ConsumerSettings {
            group: self.group.to_owned(),
            name: self.engine.server_id().map_or_else(String::new, |id| id.to_string()),
            in_hands_max: portion.in_hands_max(),
            silent_after: SILENT_AFTER,
            binding: self.binding.clone(),
        };
        let mut consumer = self.broker.consume(&self.queue, &settings).await?;
        let mut later: Vec<Delivery> = Vec::new();
        let mut rounds = Rounds::default();
        let (mut tried_at, mut is_late) = (Instant::now(), false);
        loop {
            let room = match later.is_empty() {
                false if self.handler.keeps_order() => 0,
                // The limit of messages in flight counts for all rounds together.
                _ if self.handler.overlaps() => portion.count().div_ceil(ROUNDS_AT_ONCE),
                _ => portion.count(),
            };
            let room = room.saturating_sub(later.len());
            let overlaps = self.handler.overlaps() && later.is_empty();
            let wait = match later.is_empty() {
                _ if rounds.len() > 0 => WAIT_BETWEEN,
                true => WAIT,
                false => FAILED_PAUSE,
            };
            let mut deliveries = if room > 0 {
                consumer.receive(room, wait).await?
            } else {
                time::sleep(FAILED_PAUSE).await;
                Vec::new()
            };
            if trouble.is_away() {
                let (broker, queue, what) = (self.broker.name(), &self.queue, self.what);
                tracing::info!(broker, %queue, "reading {what} again");
            }
            trouble.ends();
            if trouble.is_known() {
                self.tell(trouble).await;
            }
            portion.learn(&deliveries);
            if !later.is_empty() && tried_at.elapsed() >= FAILED_PAUSE {
                consumer.keep(&receipts(&later)).await?;
                later.append(&mut deliveries);
                deliveries = mem::take(&mut later);
            }
            let is_idle = deliveries.is_empty();
            if overlaps && !is_idle {
                rounds.begin(self.handler.clone(), deliveries);
            } else if !is_idle {
                let told = self.handler.handle(&deliveries).await;
                later.extend(self.settle(consumer.as_mut(), (deliveries, told), &mut is_late).await?);
                tried_at = Instant::now();
            }
            // Without new messages the next receive call may wait long, so what is being handled is settled first.
            let is_outgrown = portion.is_other_than(settings.in_hands_max);
            while rounds.len() >= ROUNDS_AT_ONCE || ((is_idle || is_outgrown) && rounds.len() > 0) {
                let Some(handled) = rounds.next().await else { break };
                later.extend(self.settle(consumer.as_mut(), handled, &mut is_late).await?);
                tried_at = Instant::now();
            }
            if is_outgrown && later.is_empty() {
                return Ok(());
            }
        }
    }

    /// Settles messages that were handled. Returns those to handle later.
    async fn settle(
        &self,
        consumer: &mut dyn Consumer,
        (deliveries, told): Handled,
        is_late: &mut bool,
    ) -> Result<Vec<Delivery>, BrokerError> {
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
            // One warning until all are done: the store may be unavailable for long.
            let (broker, queue, what, count) = (self.broker.name(), &self.queue, self.what, later.len());
            tracing::warn!(broker, %queue, count, why, "cannot handle {what} now; they stay in flight and are retried");
        }
        Ok(later.into_iter().map(|(delivery, _)| delivery).collect())
    }

    /// Moves a refused message to the dead-letter queue and raises an alarm with the reason. Returns the
    /// reason when this must be retried later.
    async fn put_aside(&self, delivery: &Delivery, why: &str) -> Result<Result<(), String>, BrokerError> {
        let (broker, queue, useless) = (self.broker.name(), &self.queue, self.useless);
        let dead = queue.dead();
        tracing::warn!(broker, %queue, why, "a message {useless}; it goes to the dead-letter queue");
        let message = format!("a message of {queue} at {broker} {useless} and is now in {dead}: {why}");
        let raise = AlarmCommand::Raise {
            kind: AlarmKind::MessageRefused,
            task: TaskId::NONE,
            step: None,
            message: message.into(),
        };
        let id = alarm_id(AlarmKind::MessageRefused, &queue.name, broker);
        if let Err(error) = self.engine.tell_alarm(id, raise).await {
            return Ok(Err(format!("cannot raise the alarm of a message that {useless}: {error}")));
        }
        bury(self.broker.as_ref(), queue, delivery.message.clone(), why).await?;
        Ok(Ok(()))
    }
}

/// A round of messages with one result per message, in the same order.
type Handled = (Vec<Delivery>, Vec<Result<(), Unreadable>>);

/// Rounds of messages that are being handled. Dropping this aborts them; the broker delivers their messages again.
#[derive(Default)]
struct Rounds(JoinSet<Handled>);

impl Rounds {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn begin<H: Handle>(&mut self, handler: Arc<H>, deliveries: Vec<Delivery>) {
        self.0.spawn(async move {
            let told = handler.handle(&deliveries).await;
            (deliveries, told)
        });
    }

    /// Waits until one round is handled; `None` = no round is running.
    async fn next(&mut self) -> Option<Handled> {
        match self.0.join_next().await? {
            Ok(handled) => Some(handled),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                Err(_) => None,
            },
        }
    }
}

/// The id of the alarm about a queue: `KIND:QUEUE@HOST:PORT`. Several brokers may have queues of the same
/// name.
pub(crate) fn alarm_id(kind: AlarmKind, queue: &str, broker: &str) -> AlarmId {
    let place = broker.split_once("://").map_or(broker, |(_, place)| place).replace('/', ".");
    let mut id = format!("{}:{queue}@{place}", kind.as_str());
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
        let id = |queue: &str, broker: &str| alarm_id(AlarmKind::BrokerAway, queue, broker).0.to_string();
        assert_eq!(id("orders", "redis://127.0.0.1:6379/0"), "broker_away:orders@127.0.0.1:6379.0");
        assert_eq!(id("orders", "amqp://127.0.0.1:5672"), "broker_away:orders@127.0.0.1:5672");
        assert_eq!(id(&"o".repeat(300), "sqs://eu-north-1").len(), ALARM_ID_BYTES_MAX);
    }
}

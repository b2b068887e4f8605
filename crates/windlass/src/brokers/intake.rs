//! Starts one task for each message of a queue, or fires a trigger.
//!
//! All servers share the messages, or only the elected one is connected to the broker:
//!
//! ```text
//! stand by ─▶ elected ─▶ connect, read ─┬─ at risk ──▶ disconnect ─▶ resign ─▶ stand by
//!                                       └─ the server ends ─▶ disconnect ─▶ resign
//! ```
//!
//! An elected server accepts messages one after the other. So tasks have the order of the queue, and a server that was
//! paused and wakes up too late cannot change it: it repeats what its successor accepts, in the same order and under the
//! same idempotency keys.

use std::{convert::Infallible, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::future::join_all;
use tokio::{sync::watch, time};
use windlass_brokers::{Broker, Delivery};
use windlass_core::AlarmKind;
use windlass_engine::services::{Trouble, Unreadable};
use windlass_store::Clock as _;

use super::{
    consume::{Consumption, Handle, alarm_id},
    election::Election,
    settings::IntakeSettings,
};
use crate::http::{App, TaskMessage};

/// The most messages in flight.
const IN_FLIGHT_MAX: usize = 1_000;

/// The same of an elected server, which accepts them one after the other. Few enough to be read ahead whatever their
/// size, so that the consumer is not replaced while messages are in flight, which could change their order.
const ROUND_IN_ORDER_MAX: usize = 64;

/// The pause after the client of the broker could not be made, for example because a certificate cannot be read.
const UNUSABLE_PAUSE: Duration = Duration::from_secs(5);

/// Consumer group: all servers share the messages under this name.
const GROUP: &str = "windlass-intake";

/// The handling of messages, one after the other or together.
#[derive(Clone, Copy)]
enum Order {
    /// In the order in which they were delivered. A message that must wait delays all after it.
    AsDelivered,
    /// At once, in any order.
    Any,
}

/// Starts a task for each message of a queue.
struct Intake {
    app: Arc<App>,
    /// Name of the broker, for the task's origin and its idempotency key.
    broker: String,
    settings: IntakeSettings,
    order: Order,
}

/// Starts tasks from the messages of a queue, for ever.
pub(super) async fn run(app: Arc<App>, broker: Arc<dyn Broker>, settings: IntakeSettings) {
    consumption(app, broker, settings, Order::Any).run().await;
}

/// The same, but only while this server is elected. Only then it has a connection to the broker, which is its own.
/// Drops `ends` when it has ended, after `ends` was set.
pub(super) async fn run_elected(
    app: Arc<App>,
    settings: IntakeSettings,
    election: Election,
    mut ends: watch::Receiver<bool>,
) {
    tokio::select! {
        () = read_when_elected(&app, &settings, &election, &mut ends) => {}
        never = report_outages(&app, &settings, &election) => match never {},
    }
    drop(ends);
    std::future::pending().await
}

/// Stands by, reads while elected, and stands by again, until `ends` is set.
async fn read_when_elected(
    app: &Arc<App>,
    settings: &IntakeSettings,
    election: &Election,
    ends: &mut watch::Receiver<bool>,
) {
    loop {
        let term = tokio::select! {
            biased;
            _ = ends.wait_for(|ends| *ends) => return,
            term = election.won() => term,
        };
        let queue = &settings.queue;
        match windlass_brokers::connect(settings.broker.as_str()) {
            Ok(broker) => {
                tracing::info!(broker = broker.name(), %queue, "this server reads the queue now");
                let stop = async {
                    tokio::select! {
                        () = term.at_risk() => {}
                        _ = ends.wait_for(|ends| *ends) => {}
                    }
                };
                let consumption = consumption(app.clone(), broker, settings.clone(), Order::AsDelivered);
                consumption.run_until(stop, || term.stops_at()).await;
                tracing::info!(%queue, "this server does not read the queue any more");
            }
            Err(error) => {
                tracing::error!(%queue, %error, "cannot use the broker; retrying");
                let _ = time::timeout(UNUSABLE_PAUSE, ends.wait_for(|ends| *ends)).await;
            }
        }
        term.resign().await;
    }
}

/// Keeps an alarm raised while the coordinator does not answer this server: then nobody may be elected.
async fn report_outages(app: &App, settings: &IntakeSettings, election: &Election) -> Infallible {
    let (queue, by, outages) = (&settings.queue, election.by(), Trouble::default());
    loop {
        match election.answer().await {
            Ok(()) => outages.ends(),
            Err(error) => drop(outages.goes_on(&error, app.clock.now())),
        }
        let describe =
            |error: &str| format!("cannot elect a server that reads the queue {queue}: {by}: {error}");
        let id = alarm_id(AlarmKind::BrokerAway, &queue.name, by);
        if outages.is_known()
            && let Err(error) = outages.tell(&app.engine, id, describe, app.clock.now()).await
        {
            tracing::debug!(%queue, by, %error, "cannot change an alarm; retrying");
        }
    }
}

fn consumption(
    app: Arc<App>,
    broker: Arc<dyn Broker>,
    settings: IntakeSettings,
    order: Order,
) -> Consumption<Intake> {
    Consumption {
        engine: app.engine.clone(),
        clock: app.clock.clone(),
        broker: broker.clone(),
        queue: settings.queue.clone(),
        binding: None,
        group: GROUP,
        in_flight_max: match order {
            Order::AsDelivered => ROUND_IN_ORDER_MAX,
            Order::Any => IN_FLIGHT_MAX,
        },
        what: "messages that start tasks",
        useless: "started no task",
        handler: Arc::new(Intake { app, broker: broker.name().to_owned(), settings, order }),
    }
}

#[async_trait]
impl Handle for Intake {
    async fn handle(&self, deliveries: &[Delivery]) -> Vec<Result<(), Unreadable>> {
        match self.order {
            Order::Any if self.settings.trigger.is_some() => {
                join_all(deliveries.iter().map(|delivery| self.take(delivery))).await
            }
            Order::Any => self.take_all(deliveries).await,
            Order::AsDelivered => self.take_in_order(deliveries).await,
        }
    }

    fn keeps_order(&self) -> bool {
        matches!(self.order, Order::AsDelivered)
    }

    fn overlaps(&self) -> bool {
        matches!(self.order, Order::Any)
    }
}

impl Intake {
    async fn take(&self, delivery: &Delivery) -> Result<(), Unreadable> {
        if let Some(trigger) = &self.settings.trigger {
            let (body, key) = self.settings.parts(&delivery.message).map_err(Unreadable::Refused)?;
            let key = key.map(|key| self.own(&key));
            return self.app.fire_by_message(trigger, body, key.as_deref(), &self.by()).await;
        }
        let mut taken = self.take_all(std::slice::from_ref(delivery)).await;
        taken.pop().unwrap_or(Ok(()))
    }

    /// Starts the tasks of these messages together.
    async fn take_all(&self, deliveries: &[Delivery]) -> Vec<Result<(), Unreadable>> {
        let read = |delivery: &Delivery| {
            let message = self.settings.document(&delivery.message)?;
            Ok(TaskMessage { key: message.key.map(|key| self.own(&key)), ..message })
        };
        let taken = self.app.take_in_all(deliveries.iter().map(read).collect(), &self.by()).await;
        taken.into_iter().map(|taken| taken.map(drop)).collect()
    }

    /// Who starts the tasks, for their history.
    fn by(&self) -> String {
        format!("a message of {} at {}", self.settings.queue, self.broker)
    }

    /// Scopes the key of a message to its queue and broker, for use as idempotency key.
    fn own(&self, key: &str) -> String {
        format!("{}/{}/{key}", self.broker, self.settings.queue)
    }

    async fn take_in_order(&self, deliveries: &[Delivery]) -> Vec<Result<(), Unreadable>> {
        let mut results = Vec::with_capacity(deliveries.len());
        for delivery in deliveries {
            let result = self.take(delivery).await;
            let must_wait = matches!(result, Err(Unreadable::Later(_)));
            results.push(result);
            if must_wait {
                break;
            }
        }
        let behind = || Err(Unreadable::Later("a message before it must wait".to_owned()));
        results.resize_with(deliveries.len(), behind);
        results
    }
}

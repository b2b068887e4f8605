//! Starts one task for each message of a queue.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use windlass_brokers::{Broker, Delivery};
use windlass_engine::services::Unreadable;

use super::{
    consume::{Consumption, Handle},
    settings::IntakeSettings,
};
use crate::http::App;

/// The most messages read at once.
const ROUND_MAX: usize = 500;

/// Consumer group: all servers share the messages under this name.
const GROUP: &str = "windlass-intake";

/// Starts a task for each message of a queue.
struct Intake {
    app: Arc<App>,
    /// Name of the broker, for the task's origin and its idempotency key.
    broker: String,
    settings: IntakeSettings,
}

/// Starts tasks from the messages of a queue, for ever.
pub(super) async fn run(app: Arc<App>, broker: Arc<dyn Broker>, settings: IntakeSettings) {
    let consumption = Consumption {
        engine: app.engine.clone(),
        clock: app.clock.clone(),
        broker: broker.clone(),
        queue: settings.queue.clone(),
        group: GROUP,
        round_max: ROUND_MAX,
        what: "messages that start tasks",
        useless: "started no task",
        handler: Intake { app, broker: broker.name().to_owned(), settings },
    };
    consumption.run().await;
}

#[async_trait]
impl Handle for Intake {
    async fn handle(&self, deliveries: &[Delivery]) -> Vec<Result<(), Unreadable>> {
        join_all(deliveries.iter().map(|delivery| self.take(delivery))).await
    }
}

impl Intake {
    async fn take(&self, delivery: &Delivery) -> Result<(), Unreadable> {
        let document = self.settings.document(&delivery.message).map_err(Unreadable::Refused)?;
        let (broker, queue) = (&self.broker, &self.settings.queue);
        let by = format!("a message of {queue} at {broker}");
        let key = document.key.map(|key| format!("{broker}/{queue}/{key}"));
        self.app.take_in(&document.text, key.as_deref(), &by).await
    }
}

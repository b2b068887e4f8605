//! Tasks in by message: each message of a queue starts a task, once.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::time;
use windlass_brokers::{Broker, BrokerError, ConsumerSettings, Delivery, Queue, Receipt, bury};
use windlass_core::{AlarmCommand, AlarmId, AlarmKind, TaskId};
use windlass_engine::services::Unreadable;

use super::settings::IntakeSettings;
use crate::http::App;

/// Messages read at once.
const ROUND_MAX: usize = 500;

/// How long one look for messages waits.
const WAIT: Duration = Duration::from_secs(5);

/// Another server reads what this one has in hands after so long.
const SILENT_AFTER: Duration = Duration::from_secs(30);

/// After something failed.
const FAILED_PAUSE: Duration = Duration::from_millis(500);

/// All servers share the messages under this name.
const GROUP: &str = "windlass-intake";

/// Starts a task for each message of a queue.
pub(super) struct Intake {
    app: Arc<App>,
    broker: Arc<dyn Broker>,
    settings: IntakeSettings,
}

impl Intake {
    pub(super) fn new(app: Arc<App>, broker: Arc<dyn Broker>, settings: IntakeSettings) -> Self {
        Self { app, broker, settings }
    }

    fn queue(&self) -> &Queue {
        &self.settings.queue
    }

    /// Takes in, for ever. A broker that is away is tried again and again; what it has stays there.
    pub(super) async fn run(self) {
        let mut is_away = false;
        loop {
            if let Err(error) = self.consume(&mut is_away).await {
                if !std::mem::replace(&mut is_away, true) {
                    let (broker, queue) = (self.broker.name(), self.queue());
                    tracing::warn!(broker, %queue, %error, "messages that start tasks cannot be read; it is tried again");
                }
                time::sleep(FAILED_PAUSE).await;
            }
        }
    }

    async fn consume(&self, is_away: &mut bool) -> Result<(), BrokerError> {
        let settings = ConsumerSettings {
            group: GROUP.to_owned(),
            name: self.app.engine.server_id().map_or_else(String::new, |id| id.to_string()),
            in_hands_max: ROUND_MAX,
            silent_after: SILENT_AFTER,
        };
        let mut consumer = self.broker.consume(self.queue(), &settings).await?;
        loop {
            let deliveries = consumer.receive(ROUND_MAX, WAIT).await?;
            *is_away = false;
            let taken = join_all(deliveries.iter().map(|delivery| self.take(delivery))).await;
            let (mut done, mut later): (Vec<Receipt>, Vec<Receipt>) = (Vec::new(), Vec::new());
            let mut useless = Vec::new();
            for (delivery, taken) in deliveries.into_iter().zip(taken) {
                let receipt = delivery.receipt.clone();
                match taken {
                    Ok(()) => done.push(receipt),
                    Err(Unreadable::Refused(why)) => useless.push((delivery, why)),
                    Err(Unreadable::Later(why)) => {
                        tracing::debug!(queue = %self.queue(), why, "a message is taken in later");
                        later.push(receipt);
                    }
                }
            }
            if !done.is_empty() {
                consumer.acknowledge(&done).await?;
            }
            for (delivery, why) in useless {
                let receipt = [delivery.receipt.clone()];
                if self.put_aside(delivery, &why).await? {
                    consumer.acknowledge(&receipt).await?;
                } else {
                    later.extend(receipt);
                }
            }
            if !later.is_empty() {
                time::sleep(FAILED_PAUSE).await;
                consumer.give_back(&later).await?;
            }
        }
    }

    async fn take(&self, delivery: &Delivery) -> Result<(), Unreadable> {
        let document = self.settings.document(&delivery.message).map_err(Unreadable::Refused)?;
        let (broker, queue) = (self.broker.name(), self.queue());
        let by = format!("a message of {queue} at {broker}");
        let key = format!("{broker}/{queue}/{}", document.key);
        self.app.take_in(&document.text, &key, &by).await
    }

    /// Puts a message that nobody can use into the dead queue, with an alarm that says why. Tells whether both is done.
    async fn put_aside(&self, delivery: Delivery, why: &str) -> Result<bool, BrokerError> {
        let (broker, queue) = (self.broker.name(), self.queue());
        let dead = queue.dead();
        let message =
            format!("a message of {queue} at {broker} started no task, and is in {dead} now: {why}");
        let raise = AlarmCommand::Raise {
            kind: AlarmKind::MessageRefused,
            task: TaskId::NONE,
            step: None,
            message: message.into(),
        };
        let id = AlarmId(format!("{}.{queue}", AlarmKind::MessageRefused.as_str()).into());
        if let Err(error) = self.app.engine.tell_alarm(id, raise).await {
            tracing::warn!(%error, "an alarm could not be raised; it is tried again");
            return Ok(false);
        }
        bury(self.broker.as_ref(), queue, delivery.message, why).await?;
        Ok(true)
    }
}

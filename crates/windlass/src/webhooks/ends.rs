//! Ends of tasks become messages. The outbox relay confirms an end once its deliveries are on disk.

use std::sync::Arc;

use async_trait::async_trait;
use windlass_brokers::BrokerError;
use windlass_core::EventKind;
use windlass_engine::services::{Subscriber, TaskEvent, Unreadable};

use super::{
    delivery,
    message::{Kind, Message},
    settings::WebhookSettings,
};
use crate::http::App;

/// Hears of the ends of tasks.
pub(super) struct TaskEnds {
    pub(super) app: Arc<App>,
    pub(super) webhooks: Arc<[WebhookSettings]>,
}

#[async_trait]
impl Subscriber for TaskEnds {
    fn place(&self) -> String {
        "to webhooks".to_owned()
    }

    async fn announce(&self, events: &[TaskEvent<'_>]) -> Vec<Result<(), BrokerError>> {
        let mut outcomes = vec![Ok(()); events.len()];
        let (mut places, mut messages) = (Vec::new(), Vec::new());
        for (place, TaskEvent { task, n, event }) in events.iter().enumerate() {
            let EventKind::TaskEnded(ending) = event.kind else { continue };
            let kind = Kind::of(ending);
            let wants = |webhook: &&WebhookSettings| {
                let of_flow = webhook.flows.is_empty() || webhook.flows.contains(&task.flow.name);
                of_flow && webhook.kinds.contains(&kind)
            };
            if delivery::is_delivery(task) {
                continue;
            }
            for webhook in self.webhooks.iter().filter(wants) {
                places.push(place);
                let traceparent = self.app.engine.traceparent_of(task);
                messages.push((webhook, Message::of_end(kind, task, *n, event, traceparent)));
            }
        }
        if messages.is_empty() {
            return outcomes;
        }
        for (place, started) in places.into_iter().zip(delivery::start(&self.app, messages).await) {
            match started {
                Ok(()) => {}
                Err(Unreadable::Later(why)) => outcomes[place] = Err(BrokerError::Failed(why)),
                // It would be refused each time, and hold up all others.
                Err(Unreadable::Refused(why)) => tracing::error!(why, "a webhook is not sent"),
            }
        }
        outcomes
    }
}

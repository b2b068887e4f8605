//! A message to a webhook as a task.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use windlass_api::Span;
use windlass_core::{Json, Task};
use windlass_engine::services::Unreadable;

use super::{message::Message, settings::WebhookSettings};
use crate::http::{App, TaskMessage};

/// The label with the name of the webhook. Tasks with it are not reported to webhooks.
pub(super) const LABEL: &str = "webhook";

/// The label with the kind of the message.
const KIND_LABEL: &str = "webhook-event";

/// Who starts deliveries, for their history.
const BY: &str = "webhooks of this server";

/// How long an attempt may take; the request itself may take less.
const TIMEOUT: Span = Span::from_ms(60_000);

/// Retries of a delivery: about a day.
const RETRY: Retry = Retry { max: 15, base: Span::from_ms(5_000), cap: Span::from_ms(6 * 3_600_000) };

/// The document of `POST /v1/tasks`.
#[derive(Serialize)]
struct Document<'a> {
    steps: [Step<'a>; 1],
    params: Params<&'a Value>,
    labels: BTreeMap<&'static str, &'a str>,
}

#[derive(Serialize)]
struct Step<'a> {
    name: &'static str,
    run: &'a str,
    timeout: Span,
    retry: Retry,
}

#[derive(Serialize)]
struct Retry {
    max: u32,
    base: Span,
    cap: Span,
}

/// The parameters of a delivery.
#[derive(Serialize, Deserialize)]
struct Params<T> {
    /// Id of the message.
    id: String,
    body: T,
}

/// What a delivery sends: the id of the message, and its body as it is stored.
pub(super) fn read(params: &Json) -> Result<(String, String), String> {
    let read: Result<Params<Box<RawValue>>, _> = serde_json::from_str(params.as_str());
    read.map(|params| (params.id, params.body.get().to_owned())).map_err(|error| error.to_string())
}

/// Whether a task is a delivery.
pub(super) fn is_delivery(task: &Task) -> bool {
    task.input.labels.contains_key(LABEL)
}

/// Starts the deliveries of these messages to the webhooks that want them, each once. Returns one outcome per message.
pub(super) async fn start(
    app: &App,
    messages: Vec<(&WebhookSettings, Message)>,
) -> Vec<Result<(), Unreadable>> {
    let documents = messages.iter().map(|(webhook, message)| {
        let run = format!("{}.deliver", webhook.module);
        let document = Document {
            steps: [Step { name: "deliver", run: &run, timeout: TIMEOUT, retry: RETRY }],
            params: Params { id: message.id.clone(), body: &message.body },
            labels: [(LABEL, webhook.name.as_str()), (KIND_LABEL, message.kind.as_str())].into(),
        };
        let key = format!("webhook/{}/{}", webhook.name, message.id);
        let traceparent = message.traceparent.as_deref().map(str::to_owned);
        let written = serde_json::to_string(&document).map_err(|error| error.to_string())?;
        Ok(TaskMessage { text: written, key: Some(key), traceparent })
    });
    let started = app.take_in_all(documents.collect(), BY).await;
    started.into_iter().map(|started| started.map(drop)).collect()
}

//! Tasks send the messages to webhooks. The parameters of such a task contain a seal. Only a server with the webhook's secret can
//! create the seal. Without the seal, every caller who may submit tasks could make the server sign and send any message.

use std::collections::BTreeMap;

use hmac::{Hmac, Mac as _};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::Sha256;
use windlass_api::Span;
use windlass_core::{Json, Name, Secret, Task, hex};
use windlass_engine::services::Unreadable;

use super::{message::Message, settings::WebhookSettings};
use crate::http::{App, TaskMessage, from_hex, hmac_with};

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

/// The error of a task in the queue of a webhook that has no valid seal.
const UNSEALED: &str = "no server with a secret of this webhook has started it. Only servers start deliveries; while a secret is \
                        replaced, configure both";

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
    /// Hexadecimal HMACs of `id` and `body`, one per secret of the webhook, see [`seal`]. While a secret is changed, servers have
    /// different ones.
    #[serde(default)]
    seals: Vec<String>,
}

/// HMAC-SHA256 of a message with a key that is derived from a secret of its webhook: receivers have the secret for signatures.
fn seal(secret: &Secret, module: &Name, id: &str, body: &Value) -> Hmac<Sha256> {
    let mut key = hmac_with(secret);
    key.update(b"seal of deliveries to ");
    key.update(module.as_str().as_bytes());
    let mut mac = hmac_with(&Secret(key.finalize().into_bytes().to_vec()));
    for part in [id, " ", &body.to_string()] {
        mac.update(part.as_bytes());
    }
    mac
}

/// What a delivery sends: the id of the message, and its body.
///
/// # Errors
/// When the parameters are not those of a delivery that a server with one of these secrets has started.
pub(super) fn read(params: &Json, module: &Name, secrets: &[Secret]) -> Result<(String, String), String> {
    let read: Result<Params<Value>, _> = serde_json::from_str(params.as_str());
    let Params { id, body, seals } = read.map_err(|error| error.to_string())?;
    let seals: Vec<Vec<u8>> = seals.iter().filter_map(|seal| from_hex(seal)).collect();
    let is_by = |secret: &Secret| {
        let mac = seal(secret, module, &id, &body);
        seals.iter().any(|given| mac.clone().verify_slice(given).is_ok())
    };
    if !secrets.iter().any(is_by) {
        return Err(UNSEALED.to_owned());
    }
    Ok((id, body.to_string()))
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
        let seal =
            |secret| hex(&seal(secret, &webhook.module, &message.id, &message.body).finalize().into_bytes());
        let document = Document {
            steps: [Step { name: "deliver", run: &run, timeout: TIMEOUT, retry: RETRY }],
            params: Params {
                id: message.id.clone(),
                body: &message.body,
                seals: webhook.secrets.iter().map(seal).collect(),
            },
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

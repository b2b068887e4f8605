//! `/v1/device-messages`: messages of devices, by device and topic.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use utoipa_axum::{router::OpenApiRouter, routes};
use windlass_api as api;
use windlass_core::{Timestamp, TopicFilter};
use windlass_engine::{KeptMessage, MessageFilter};

use crate::http::{
    App,
    answer::{ok, problem::Refused},
    devices::{PAGE_ITEMS, one_of},
    request::{FromQuery, Pairs, Query},
    tasks::view,
};

/// Its route.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(messages))
}

/// Which messages are asked for.
pub(crate) struct PageOfMessages {
    filter: MessageFilter,
    before: Option<u64>,
    limit: usize,
}

impl FromQuery for PageOfMessages {
    const NAMES: &'static [&'static str] = &["device", "topic", "since", "before", "cursor", "limit"];

    fn from_query(pairs: &Pairs, now: Timestamp) -> Result<Self, Refused> {
        let topic = pairs.one("topic")?.map(TopicFilter::new).transpose();
        let topic = topic.map_err(|message| Refused::malformed(format!("\"topic\": {message}")))?;
        let (device, since) = (pairs.name("device")?, pairs.time("since", now)?);
        let before = one_of(pairs.number("before")?, pairs.number("cursor")?, "before")?;
        Ok(Self { filter: MessageFilter { device, topic, since }, before, limit: pairs.limit(PAGE_ITEMS)? })
    }
}

/// Messages of devices, the newest first. They are kept for a day, and as long as there is room. A page can have fewer messages than
/// asked for, even none, while `next` is there: for one page the server looks at no more than 10,000.
#[utoipa::path(
    get,
    path = "/v1/device-messages", operation_id = "list_device_messages",
    tag = "devices",
    params(
        ("device" = Option<String>, Query, description = "Only those that are kept for this device"),
        ("topic" = Option<String>, Query, description = "Only those on topics that this filter matches, such as `site/+/done`"),
        ("since" = Option<String>, Query, description = "Only those since this time, or since so long ago: `15m`"),
        ("before" = Option<u64>, Query, description = "Only those with numbers below this one"),
        ("cursor" = Option<String>, Query, description = "`next` of the page before"),
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 1000, description = "1 to 1000"),
    ),
    responses(
        (status = 200, description = "The page", body = api::List<api::DeviceMessage>),
        (status = 400, description = "Malformed", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn messages(
    State(app): State<Arc<App>>,
    Query(page): Query<PageOfMessages>,
) -> Result<Response, Refused> {
    let PageOfMessages { filter, before, limit } = page;
    let page = app.engine.device_messages(&filter, before, limit).await?;
    // What cannot be read was written by a newer version, or is damaged.
    let items = page.items.iter().filter_map(message).collect();
    Ok(ok(&api::List { items, next: page.next.map(|number| number.to_string()) }))
}

fn message(kept: &KeptMessage) -> Option<api::DeviceMessage> {
    #[derive(serde::Deserialize)]
    struct Body {
        topic: String,
        payload: String,
        bytes: u64,
        retained: bool,
    }
    let KeptMessage { device, entry } = kept;
    let Body { topic, payload, bytes, retained } = serde_json::from_slice(&entry.body).ok()?;
    let (number, at, device) = (entry.number, view::time(entry.at), device.to_string());
    Some(api::DeviceMessage { number, at, device, topic, payload, bytes, retained })
}

//! `/v1/devices`: declaring devices, whether they are online, and who has them.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use serde_json::value::RawValue;
use utoipa_axum::{router::OpenApiRouter, routes};
use windlass_api as api;
use windlass_core::{Device, LockOwner, Name, PresenceRule, TaskId, Timestamp, device_lock};
use windlass_engine::{DeviceApplication, DeviceFilter, DeviceLogEntry, DeviceReport, EngineError};
use windlass_store::JournalKind;

use crate::{
    flowfile,
    http::{
        App,
        answer::{ok, problem::Refused},
        locks,
        request::{BATCH_BYTES_MAX, By, FromQuery, JsonBody, Pairs, Path, Query, SUBMIT_BYTES_MAX, cut},
        tasks::view,
    },
};

/// The largest document of a device, in bytes.
const DEVICE_BYTES_MAX: usize = 64 * 1024;

/// Devices or entries in one answer where nothing is said.
pub(super) const PAGE_ITEMS: usize = 100;

/// Waiting tasks that are shown of one device.
const WAITERS_MAX: usize = 100;

/// Its routes.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list, apply))
        .routes(routes!(show, set, remove))
        .routes(routes!(log))
        .routes(routes!(unlock))
}

/// Which devices are listed.
pub(crate) struct PageOfDevices {
    filter: DeviceFilter,
    after: Option<Name>,
    limit: usize,
}

impl FromQuery for PageOfDevices {
    const NAMES: &'static [&'static str] = &["label", "online", "after", "cursor", "limit"];

    fn from_query(pairs: &Pairs, _: Timestamp) -> Result<Self, Refused> {
        let labels = pairs.all("label").map(label).collect::<Result<BTreeMap<_, _>, _>>()?;
        let online = pairs.one("online")?.map(|_| pairs.flag("online")).transpose()?;
        let after = one_of(pairs.name("after")?, pairs.name("cursor")?, "after")?;
        Ok(Self { filter: DeviceFilter { labels, online }, after, limit: pairs.limit(PAGE_ITEMS)? })
    }
}

/// The place where a page begins, which has two names in a query: `name` and `cursor`.
pub(super) fn one_of<T>(named: Option<T>, cursor: Option<T>, name: &str) -> Result<Option<T>, Refused> {
    if named.is_some() && cursor.is_some() {
        return Err(Refused::malformed(format!(
            "the query has {name:?} and \"cursor\", which are the same: take one away"
        )));
    }
    Ok(named.or(cursor))
}

fn label(text: &str) -> Result<(String, String), Refused> {
    let label = text.split_once('=').or_else(|| text.split_once(':')).filter(|(key, _)| !key.is_empty());
    label
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .ok_or_else(|| Refused::malformed(format!("\"label\" is {text:?}, and must be key=value")))
}

/// Devices, by name. A page can have fewer devices than asked for, even none, while `next` is there: for one page the server
/// looks at no more than 10,000.
#[utoipa::path(
    get,
    path = "/v1/devices", operation_id = "list_devices",
    tag = "devices",
    params(
        ("label" = Option<String>, Query, description = "Only with this label, as `key=value`; may be given several times, and all must match"),
        ("online" = Option<bool>, Query, description = "Only those that count as online, or only those that do not"),
        ("after" = Option<String>, Query, description = "Only with names after this one"),
        ("cursor" = Option<String>, Query, description = "`next` of the page before"),
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 1000, description = "1 to 1000"),
    ),
    responses((status = 200, description = "The page", body = api::List<api::Device>))
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Query(page): Query<PageOfDevices>,
) -> Result<Response, Refused> {
    let PageOfDevices { filter, after, limit } = page;
    let page = app.engine.devices(&filter, after.as_ref(), limit).await?;
    let items = page.items.iter().map(|report| document(report, 0)).collect();
    Ok(ok(&api::List { items, next: page.next.map(|name| name.to_string()) }))
}

/// Declares many devices: creates them, or replaces those with the same names. None is stored if one cannot be used.
#[utoipa::path(
    post,
    path = "/v1/devices", operation_id = "apply_devices",
    tag = "devices",
    request_body = api::ApplyDevices,
    responses(
        (status = 200, description = "How many were created, updated and unchanged", body = api::DevicesApplied),
        (status = 400, description = "Malformed", body = api::Problem, content_type = "application/problem+json"),
        (status = 422, description = "One of them cannot be used", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn apply(
    State(app): State<Arc<App>>,
    JsonBody(text): JsonBody<BATCH_BYTES_MAX>,
) -> Result<Response, Refused> {
    let documents = text.parse::<api::ApplyDevices>()?.devices;
    let read = |(index, document): (usize, &api::DeviceDocument)| {
        flowfile::device(document)
            .map_err(|message| unusable(Some(index), document.name.as_deref(), &message))
    };
    let devices = documents.iter().enumerate().map(read).collect::<Result<Vec<Device>, _>>()?;
    let applied = app.engine.apply_devices(&devices, app.now()).await.map_err(|error| match error {
        EngineError::UnusableDevice { index, message } => {
            unusable(Some(index), documents[index].name.as_deref(), &message)
        }
        error => error.into(),
    })?;
    app.metrics.command("apply_devices");
    let count = |what| applied.iter().filter(|applied| **applied == what).count() as u64;
    Ok(ok(&api::DevicesApplied {
        created: count(DeviceApplication::Created),
        updated: count(DeviceApplication::Updated),
        unchanged: count(DeviceApplication::Unchanged),
    }))
}

/// A device that cannot be used, at its place in a list.
fn unusable(index: Option<usize>, name: Option<&str>, message: &str) -> Refused {
    let place = index.map(|index| format!("`devices[{index}]`")).unwrap_or_default();
    let named = match name {
        Some(name) if index.is_some() => format!(" ({}): ", cut(&format!("{name:?}"))),
        None if index.is_some() => ": ".to_owned(),
        _ => String::new(),
    };
    Refused::unusable_device(format!("{place}{named}{message}"))
}

/// How a device is shown.
pub(crate) struct DeviceView {
    is_classic: bool,
}

impl FromQuery for DeviceView {
    const NAMES: &'static [&'static str] = &["view"];

    fn from_query(pairs: &Pairs, _: Timestamp) -> Result<Self, Refused> {
        match pairs.one("view")? {
            None => Ok(Self { is_classic: false }),
            Some("classic") => Ok(Self { is_classic: true }),
            Some(other) => Err(Refused::malformed(format!("\"view\" is {other:?}, and must be classic"))),
        }
    }
}

/// One device with the tasks that wait for it.
#[utoipa::path(
    get,
    path = "/v1/devices/{name}", operation_id = "get_device",
    tag = "devices",
    params(
        ("name" = String, Path, description = "Name of the device"),
        ("view" = Option<String>, Query, description = "`classic`: as `ClassicDevice`"),
    ),
    responses(
        (status = 200, description = "The device", body = api::Device),
        (status = 404, description = "Unknown device", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    Path(name): Path<Name>,
    Query(view): Query<DeviceView>,
) -> Result<Response, Refused> {
    let report = app.engine.device(&name).await?;
    let device = document(&report, WAITERS_MAX);
    if view.is_classic {
        let api::Device { online, locked, queue, .. } = device;
        return Ok(ok(&api::ClassicDevice { online, locked, pending_queue: queue }));
    }
    Ok(ok(&device))
}

/// Declares a device: creates it, or replaces the one of this name. Tasks that have it or wait for it are not affected.
#[utoipa::path(
    put,
    path = "/v1/devices/{name}", operation_id = "apply_device",
    tag = "devices",
    params(("name" = String, Path, description = "Name of the device")),
    request_body = api::DeviceDocument,
    responses(
        (status = 200, description = "The device", body = api::Device),
        (status = 400, description = "Malformed", body = api::Problem, content_type = "application/problem+json"),
        (status = 422, description = "It cannot be used", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn set(
    State(app): State<Arc<App>>,
    Path(name): Path<Name>,
    JsonBody(text): JsonBody<DEVICE_BYTES_MAX>,
) -> Result<Response, Refused> {
    let written: api::DeviceDocument = text.parse()?;
    if let Some(other) = written.name.as_deref().filter(|other| *other != name.as_str()) {
        return Err(Refused::malformed(format!(
            "`name` is {}, and the path says {name}: write the same name, or leave `name` out",
            cut(&format!("{other:?}"))
        )));
    }
    let written = api::DeviceDocument { name: Some(name.to_string()), ..written };
    let device = flowfile::device(&written).map_err(|message| unusable(None, None, &message))?;
    app.engine.apply_devices(&[device], app.now()).await?;
    app.metrics.command("apply_device");
    Ok(ok(&document(&app.engine.device(&name).await?, WAITERS_MAX)))
}

/// Whether a device is removed although it is in use.
pub(crate) struct Force(bool);

impl FromQuery for Force {
    const NAMES: &'static [&'static str] = &["force"];

    fn from_query(pairs: &Pairs, _: Timestamp) -> Result<Self, Refused> {
        pairs.flag("force").map(Self)
    }
}

/// Removes a device. Its log is kept until its entries are deleted.
#[utoipa::path(
    delete,
    path = "/v1/devices/{name}", operation_id = "remove_device",
    tag = "devices",
    params(
        ("name" = String, Path, description = "Name of the device"),
        ("force" = Option<bool>, Query, description = "Also while a task has it or waits for it"),
    ),
    responses(
        (status = 200, description = "The device as it was", body = api::Device),
        (status = 404, description = "Unknown device", body = api::Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is in use", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn remove(
    State(app): State<Arc<App>>,
    Path(name): Path<Name>,
    Query(Force(force)): Query<Force>,
) -> Result<Response, Refused> {
    let report = app.engine.remove_device(&name, force).await?;
    app.metrics.command("remove_device");
    Ok(ok(&document(&report, WAITERS_MAX)))
}

/// Which entries of a log are asked for.
pub(crate) struct PageOfLog {
    before: Option<u64>,
    limit: usize,
}

impl FromQuery for PageOfLog {
    const NAMES: &'static [&'static str] = &["before", "cursor", "limit"];

    fn from_query(pairs: &Pairs, _: Timestamp) -> Result<Self, Refused> {
        let before = one_of(pairs.number("before")?, pairs.number("cursor")?, "before")?;
        Ok(Self { before, limit: pairs.limit(PAGE_ITEMS)? })
    }
}

/// What happened to a device, the newest first: its jobs, and for a day its messages.
#[utoipa::path(
    get,
    path = "/v1/devices/{name}/log", operation_id = "get_device_log",
    tag = "devices",
    params(
        ("name" = String, Path, description = "Name of the device"),
        ("before" = Option<u64>, Query, description = "Only entries with numbers below this one"),
        ("cursor" = Option<String>, Query, description = "`next` of the page before"),
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 1000, description = "1 to 1000"),
    ),
    responses(
        (status = 200, description = "The page", body = api::List<api::DeviceLogEntry>),
        (status = 404, description = "Unknown device", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn log(
    State(app): State<Arc<App>>,
    Path(name): Path<Name>,
    Query(page): Query<PageOfLog>,
) -> Result<Response, Refused> {
    let PageOfLog { before, limit } = page;
    let entries = app.engine.device_log(&name, before, limit).await?;
    let next = entries.last().filter(|_| entries.len() == limit).map(|entry| entry.number.to_string());
    Ok(ok(&api::List { items: entries.iter().map(entry).collect(), next }))
}

fn entry(entry: &DeviceLogEntry) -> api::DeviceLogEntry {
    api::DeviceLogEntry {
        number: entry.number,
        at: view::time(entry.at),
        kind: match entry.kind {
            JournalKind::DeviceMessage => api::DeviceLogKind::Message,
            _ => api::DeviceLogKind::Job,
        },
        // What cannot be read was written by a newer version, or is damaged: the other entries are still shown.
        data: serde_json::from_slice::<Box<RawValue>>(&entry.body)
            .unwrap_or_else(|_| RawValue::NULL.to_owned()),
    }
}

/// Takes a device from its task; the next task that waits gets it. The device is not stopped, and a late answer to the
/// former task is not taken for one to the next.
#[utoipa::path(
    post,
    path = "/v1/devices/{name}/unlock", operation_id = "unlock_device",
    tag = "devices",
    params(("name" = String, Path, description = "Name of the device")),
    request_body = api::ReleaseLock,
    responses(
        (status = 200, description = "The lock of the device, and who had it", body = api::ReleasedLock),
        (status = 400, description = "No reason", body = api::Problem, content_type = "application/problem+json"),
        (status = 404, description = "Unknown device, or nobody has it", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn unlock(
    State(app): State<Arc<App>>,
    Path(name): Path<Name>,
    by: By,
    body: JsonBody<SUBMIT_BYTES_MAX>,
) -> Result<Response, Refused> {
    app.engine.device(&name).await?;
    let lock = device_lock(&name).ok_or(EngineError::UnknownDevice(name))?;
    locks::release(State(app), Path(lock), by, body).await.map(|response| response.into_response())
}

fn document(report: &DeviceReport, waiters_max: usize) -> api::Device {
    let DeviceReport { device, presence, lock } = report;
    let holder = lock.as_ref().and_then(|lock| lock.holder);
    api::Device {
        name: device.name.to_string(),
        labels: device.labels.clone(),
        presence: flowfile::presence_document(&device.presence),
        echoes_attempt: device.echoes_attempt,
        learned: matches!(device.presence, PresenceRule::Learned { .. }),
        online: report.is_online(),
        online_changed_at: presence.map(|presence| view::time(presence.since)),
        online_changes: presence.map_or(0, |presence| presence.changes),
        lock: device_lock(&device.name).map(|lock| lock.to_string()).unwrap_or_default(),
        locked: holder.is_some(),
        locked_since: holder.map(|holder| view::time(holder.since)),
        task: holder.and_then(|holder| task(&holder.owner)),
        waiting: lock.as_ref().map_or(0, |lock| lock.waiting() as u64),
        queue: lock
            .iter()
            .flat_map(|lock| lock.waiters().take(waiters_max))
            .filter_map(|waiter| task(&waiter.owner))
            .collect(),
    }
}

/// The task of an owner. A lock whose row was damaged is closed by no task.
fn task(owner: &LockOwner) -> Option<String> {
    (!owner.is_leader() && owner.task != TaskId::NONE).then(|| owner.task.to_string())
}

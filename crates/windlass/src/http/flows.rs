//! `/v1/flows`: the catalogue.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    response::Response,
};
use serde_json::value::RawValue;
use utoipa_axum::{router::OpenApiRouter, routes};
use windlass_api as api;
use windlass_core::{Flow, Name, Timestamp, is_adhoc};
use windlass_engine::EngineError;
use windlass_store::StoredFlow;

use crate::http::{
    App,
    access::Grant,
    answer::{json_response, ok, page::Page, problem::Refused},
    request::{FromQuery, Pairs, Path, Query},
    serving::receive,
    tasks::view,
};
use crate::{
    chain,
    flowfile::{self, FILE_BYTES_MAX, Format, Source},
};

/// Flows of a page where the request does not say.
const PAGE_ITEMS: usize = 100;

/// Its routes.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(check)).routes(routes!(show, apply))
}

/// Which flows are listed.
pub(crate) struct PageOfFlows {
    /// Those that tasks brought along as well.
    all: bool,
    /// The name of the last flow of the page before: flows that come or go meanwhile move no other.
    after: Option<Name>,
    limit: usize,
}

impl FromQuery for PageOfFlows {
    const NAMES: &'static [&'static str] = &["all", "cursor", "limit"];

    fn from_query(pairs: &Pairs, _: Timestamp) -> Result<Self, Refused> {
        Ok(Self { all: pairs.flag("all")?, after: pairs.name("cursor")?, limit: pairs.limit(PAGE_ITEMS)? })
    }
}

/// A version of a flow; the newest where it is not said.
pub(crate) struct Version(Option<u32>);

impl FromQuery for Version {
    const NAMES: &'static [&'static str] = &["version"];

    fn from_query(pairs: &Pairs, _: Timestamp) -> Result<Self, Refused> {
        pairs.number("version").map(Self)
    }
}

/// The newest version of every flow, by name. A page ends early, with `next`, once its flows have 8 MiB of definitions. A
/// token that is limited to queues or flows gets its flows.
#[utoipa::path(
    get,
    path = "/v1/flows", operation_id = "list_flows",
    tag = "flows",
    params(
        ("all" = Option<bool>, Query, description = "`true`: also the flows that tasks brought along as `steps`"),
        ("cursor" = Option<String>, Query, description = "`next` of the page before"),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 1000, description = "1 to 1000; 100 when left out"),
    ),
    responses(
        (status = 200, description = "The page", body = api::List<api::Flow>),
        (status = 400, description = "Malformed", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    grant: Grant,
    Query(page): Query<PageOfFlows>,
) -> Result<Response, Refused> {
    let PageOfFlows { all, after, limit } = page;
    let flows = app.engine.flows().await?;
    let is_wanted = |name: &Name| {
        let is_shown = (all || !is_adhoc(name.as_str())) && grant.has_flow(name);
        is_shown && after.as_ref().is_none_or(|after| name > after)
    };
    let mut wanted = flows.iter().filter(|stored| is_wanted(&stored.flow.name)).peekable();
    let (mut page, mut last) = (Page::new(limit), None);
    while page.room() > 0
        && let Some(stored) = wanted.next()
    {
        let flow = document(stored);
        last = Some(flow.name.clone());
        let bytes = flow.definition.get().len();
        page.push(flow, bytes);
    }
    let next = last.filter(|_| wanted.peek().is_some());
    Ok(ok(&page.into_list(next)))
}

/// One flow in one version.
#[utoipa::path(
    get,
    path = "/v1/flows/{name}", operation_id = "get_flow",
    tag = "flows",
    params(
        ("name" = String, Path, description = "Name of the flow"),
        ("version" = Option<u32>, Query, description = "The newest when left out"),
    ),
    responses(
        (status = 200, description = "The flow", body = api::Flow),
        (status = 404, description = "Unknown flow or version", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    Query(Version(version)): Query<Version>,
) -> Result<Response, Refused> {
    match app.engine.flow(&name, version).await {
        Ok(stored) => Ok(ok(&document(&stored))),
        Err(error) => Err(with_versions(&app, error).await),
    }
}

/// The refusal of an error. Where a flow is there and the version is not, it names them; where there is one
/// of a name much like it, that one.
pub(crate) async fn with_versions(app: &App, error: EngineError) -> Refused {
    if let EngineError::UnknownFlow(named) = &error
        && let Some((name, version)) = named.split_once('@')
        && let Ok(newest) = app.engine.flow(name, None).await
    {
        // Versions are counted from 1, and none is ever deleted.
        let there = match newest.flow.version {
            1 => "1 only".to_owned(),
            newest => format!("1 to {newest}"),
        };
        return Refused::unknown_flow(format!("flow {name} has no version {version}: it has {there}"));
    }
    if let EngineError::UnknownFlow(name) = &error
        && let Ok(flows) = app.engine.flows().await
        && let names = flows.iter().map(|stored| stored.flow.name.as_str()).filter(|name| !is_adhoc(name))
        && let Some(near) = flowfile::nearest(name, names)
    {
        return Refused::unknown_flow(format!("there is no flow {name}: did you mean {near}?"));
    }
    error.into()
}

fn document(stored: &StoredFlow) -> api::Flow {
    let definition = flowfile::document(&stored.flow);
    api::Flow {
        name: stored.flow.name.to_string(),
        version: stored.flow.version,
        created_at: view::time(stored.created_at),
        // A document has only string keys, so it can always be written.
        definition: serde_json::value::to_raw_value(&definition)
            .unwrap_or_else(|_| RawValue::NULL.to_owned()),
    }
}

/// Stores a flow. One that has changed gets the next version; running tasks keep theirs.
#[utoipa::path(
    put,
    path = "/v1/flows/{name}", operation_id = "apply_flow",
    tag = "flows",
    params(("name" = String, Path, description = "Name of the flow; in the document it may be left out")),
    request_body(content(
        (api::FlowDocument = "application/json"),
        (api::FlowDocument = "application/yaml"),
        (api::FlowDocument = "application/toml"),
    )),
    responses(
        (status = 201, description = "The first version", body = api::FlowApplied),
        (status = 200, description = "A new version, or nothing changed", body = api::FlowApplied),
        (status = 400, description = "Not valid; `line` and `column` say where", body = api::Problem, content_type = "application/problem+json"),
        (status = 413, description = "Too large", body = api::Problem, content_type = "application/problem+json"),
        (status = 415, description = "Neither JSON nor YAML nor TOML", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn apply(
    State(app): State<Arc<App>>,
    Path(name): Path<Name>,
    request: Request,
) -> Result<Response, Refused> {
    let (parts, body) = request.into_parts();
    if is_adhoc(&name) {
        return Err(Refused::malformed(format!(
            "{name:?} is a name that flows get which tasks bring along as `steps`: choose another one"
        )));
    }
    let body = receive::read_body(&app.bodies, &parts, body, FILE_BYTES_MAX).await?;
    let flow = read(&app, &parts.headers, &body, Some(name.to_string())).await?;
    let application = app.engine.apply_flow(flow, app.now()).await?;
    app.metrics.command("apply_flow");
    let applied =
        applied(&application.stored.flow, change(application.changed, application.stored.flow.version));
    let status =
        if applied.change == api::FlowChange::Created { StatusCode::CREATED } else { StatusCode::OK };
    Ok(json_response(status, &applied))
}

/// Checks a flow and says what applying it would do; nothing is stored.
#[utoipa::path(
    post,
    path = "/v1/flows/check", operation_id = "check_flow",
    tag = "flows",
    request_body(content(
        (api::FlowDocument = "application/json"),
        (api::FlowDocument = "application/yaml"),
        (api::FlowDocument = "application/toml"),
    )),
    responses(
        (status = 200, description = "It is valid; `version` is the one it would have", body = api::FlowApplied),
        (status = 400, description = "Not valid; `line` and `column` say where", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn check(
    State(app): State<Arc<App>>,
    grant: Grant,
    request: Request,
) -> Result<Response, Refused> {
    let (parts, body) = request.into_parts();
    let body = receive::read_body(&app.bodies, &parts, body, FILE_BYTES_MAX).await?;
    let flow = read(&app, &parts.headers, &body, None).await?;
    grant.flow(&flow.name)?;
    let newest = match app.engine.flow(&flow.name, None).await {
        Ok(stored) => Some(stored.flow),
        Err(EngineError::UnknownFlow(_)) => None,
        Err(error) => return Err(error.into()),
    };
    let version = newest.as_ref().map_or(0, |newest| newest.version);
    let changed = newest.is_none_or(|newest| *newest != (Flow { version, ..flow.clone() }));
    let flow = Flow { version: version + u32::from(changed), ..flow };
    let change = change(changed, flow.version);
    Ok(ok(&applied(&flow, change)))
}

fn change(changed: bool, version: u32) -> api::FlowChange {
    match (changed, version) {
        (false, _) => api::FlowChange::Unchanged,
        (true, 1) => api::FlowChange::Created,
        (true, _) => api::FlowChange::Updated,
    }
}

fn applied(flow: &Flow, change: api::FlowChange) -> api::FlowApplied {
    api::FlowApplied { name: flow.name.to_string(), version: flow.version, change }
}

/// Reads the one flow of a body. With `name`, it has or gets that name.
async fn read(app: &App, headers: &HeaderMap, body: &[u8], name: Option<String>) -> Result<Flow, Refused> {
    let format = format(headers)?;
    let text = std::str::from_utf8(body).map_err(|error| {
        Refused::malformed(format!("the body is not UTF-8 from byte {} on", error.valid_up_to()))
    })?;
    let mut sources = flowfile::read(text, format)?;
    if sources.len() > 1 {
        return Err(Refused::malformed(format!(
            "the body holds {} flows: send them one by one, or use `windlass flow apply`",
            sources.len()
        )));
    }
    let Some(mut source) = sources.pop() else { return Err(Refused::malformed("the body holds no flow")) };
    if let Some(name) = name {
        give_name(&mut source, name)?;
    }
    let flow = flowfile::compile(&source)?;
    match chain::check(&app.engine, &flow).await? {
        None => Ok(flow),
        Some(bad) => Err(source.error(&bad.path(), bad.message).into()),
    }
}

fn give_name(source: &mut Source, name: String) -> Result<(), Refused> {
    match &source.document.flow {
        Some(found) if *found != name => Err(Refused::malformed(format!(
            "the path says that the flow is {name}, and the document says that it is {found:?}: make them agree"
        ))),
        _ => {
            source.document.flow = Some(name);
            Ok(())
        }
    }
}

/// The format of a body; JSON where nothing is said.
fn format(headers: &HeaderMap) -> Result<Format, Refused> {
    let Some(content_type) = headers.get(header::CONTENT_TYPE) else { return Ok(Format::Json) };
    let text = content_type.to_str().unwrap_or_default();
    Format::of_content_type(text).ok_or_else(|| {
        Refused::unsupported_media_type(format!(
            "the body is said to be {text:?}: send a flow as application/yaml, application/json or application/toml, \
             with the header `Content-Type`"
        ))
    })
}

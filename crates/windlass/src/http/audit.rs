//! `/v1/audit`: who changed what.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use utoipa_axum::{router::OpenApiRouter, routes};
use windlass_api as api;
use windlass_core::Timestamp;
use windlass_engine::{AuditFilter, AuditRecord, AuditedOperation};

use crate::http::{
    App,
    access::is_audited,
    answer::{ok, problem::Refused},
    devices::{PAGE_ITEMS, one_of},
    request::{FromQuery, Pairs, Query},
    tasks::view,
};

/// Its route.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list))
}

/// Which entries are asked for.
pub(crate) struct PageOfAudit {
    filter: AuditFilter,
    before: Option<u64>,
    limit: usize,
}

impl FromQuery for PageOfAudit {
    const NAMES: &'static [&'static str] = &["name", "by", "operation", "since", "before", "cursor", "limit"];

    fn from_query(pairs: &Pairs, now: Timestamp) -> Result<Self, Refused> {
        let text = |name| Ok::<_, Refused>(pairs.one(name)?.map(Box::from));
        let (name, by, operation) = (text("name")?, text("by")?, text("operation")?);
        let before = one_of(pairs.number("before")?, pairs.number("cursor")?, "before")?;
        let filter = AuditFilter { name, by, operation, since: pairs.time("since", now)? };
        Ok(Self { filter, before, limit: pairs.limit(PAGE_ITEMS)? })
    }
}

/// The audit log, the newest entries first: each change that an operator or an admin made, and who made it. An entry is stored
/// together with its change. Submits of tasks, the work of workers and campaigns of leaders have no entries. A page can have
/// fewer entries than asked for, even none, while `next` is there: for one page the server looks at no more than 10,000.
#[utoipa::path(
    get,
    path = "/v1/audit", operation_id = "list_audit_log",
    tag = "audit",
    params(
        ("name" = Option<String>, Query, description = "Only changes of what has this name, or of the task or alarm with this id"),
        ("by" = Option<String>, Query, description = "Only changes by this access token, or by this `Windlass-Actor`"),
        ("operation" = Option<String>, Query, description = "Only changes by this operation, such as `cancel_task`; one that the log never records is refused"),
        ("since" = Option<String>, Query, description = "Only those since this time, or since so long ago: `15m`"),
        ("before" = Option<u64>, Query, description = "Only those with numbers below this one"),
        ("cursor" = Option<String>, Query, description = "`next` of the page before"),
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 1000, description = "1 to 1000"),
    ),
    responses(
        (status = 200, description = "The page", body = api::List<api::AuditEntry>),
        (status = 400, description = "Malformed", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Query(page): Query<PageOfAudit>,
) -> Result<Response, Refused> {
    let PageOfAudit { filter, before, limit } = page;
    if let Some(operation) = &filter.operation
        && !is_audited(operation)
    {
        return Err(Refused::malformed(format!(
            "`operation`: unknown operation {operation:?}: write the `operationId` of one that the audit log records, such as \
             `cancel_task`"
        )));
    }
    let page = app.engine.audit_log(&filter, before, limit).await?;
    let items = page.items.into_iter().map(document).collect();
    Ok(ok(&api::List { items, next: page.next.map(|number| number.to_string()) }))
}

fn document(record: AuditRecord) -> api::AuditEntry {
    let AuditRecord { number, at, operation, kind, name } = record;
    let AuditedOperation { operation, by, address } = operation;
    api::AuditEntry {
        number,
        at: view::time(at),
        operation: operation.into(),
        by: by.map(|by| by.to_string()),
        address: address.map(|address| address.to_string()),
        kind: kind.into(),
        name: name.into(),
    }
}

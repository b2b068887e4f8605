//! `GET /v1/tasks`: a page of tasks that meet filters.

use std::{collections::BTreeMap, sync::Arc};

use axum::{extract::State, response::Response};
use windlass_api as api;
use windlass_core::{TaskId, TaskStatus, Timestamp};
use windlass_store::{ParamFilter, TaskQuery};

use super::current;
use crate::http::{
    App,
    answer::{ok, page::Page, problem::Refused},
    request::{FromQuery, Pairs, Query},
    submit::idempotency,
    tasks::view,
};

/// Tasks of a page where the request does not say.
const PAGE_ITEMS: usize = 100;

/// Tasks read at once: each may have a megabyte of parameters.
const READ_AT_ONCE: usize = 32;

/// The same where parameters are left out.
const BRIEF_READ_AT_ONCE: usize = 200;

/// Parameters that a list is filtered by: each is looked for in every task.
const PARAMS_MAX: usize = 16;

/// What the cursor of a list begins with, so that it is not taken for anything else.
const CURSOR_PREFIX: &str = "t";

/// Tasks, newest first, without steps and results; `current` has the steps that a task is at.
///
/// A page ends early, with `next`, once its tasks have 8 MiB of parameters, or once the server has looked at 10,000 tasks
/// for it: for `unique_key`, `param` and `label` the server scans the tasks that meet the other filters. So a page can have
/// fewer tasks than `limit`, even none, while there are more.
#[utoipa::path(
    get,
    path = "/v1/tasks", operation_id = "list_tasks",
    tag = "tasks",
    params(
        ("status" = Option<Vec<api::TaskStatus>>, Query, style = Form, explode = false, description = "Only with one of these statuses; may also be given several times"),
        ("flow" = Option<String>, Query, description = "Only of this flow"),
        ("label" = Option<String>, Query, description = "Only with this label, as `name:value`; may be given several times"),
        ("idempotency_key" = Option<String>, Query, description = "Only the task that was submitted under this idempotency key; one for each flow without `flow`. Reruns are not found by their keys"),
        ("unique_key" = Option<String>, Query, description = "Only with this value of the flow's unique key"),
        ("param" = Option<String>, Query, description = "Only with this parameter, as `path:value`; may be given several times. The path is `name`, `outer.inner` or a JSON pointer such as `/outer/inner`; the value is JSON, else a string"),
        ("since" = Option<String>, Query, description = "Only accepted at or after this time: RFC 3339, or how long ago (`15m`)"),
        ("until" = Option<String>, Query, description = "Only accepted before this time"),
        ("cursor" = Option<String>, Query, description = "`next` of the page before"),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 1000, description = "1 to 1000; 100 when left out"),
        ("brief" = Option<bool>, Query, description = "`true`: without parameters; `params` is `{}` in each task"),
    ),
    responses(
        (status = 200, description = "The page", body = api::List<api::Task>),
        (status = 400, description = "Malformed", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Query(ListQuery { filters, limit, brief }): Query<ListQuery>,
) -> Result<Response, Refused> {
    let query = filters.into_query(&app).await?;
    Ok(ok(&page(&app, TaskQuery { limit, brief, ..query }).await?))
}

/// A page of tasks. They are read a few at a time, so that not many more are in memory than there is room for.
async fn page(app: &App, mut query: TaskQuery) -> Result<api::List<api::Task>, Refused> {
    let mut page = Page::new(query.limit);
    loop {
        query.limit = page.room().min(if query.brief { BRIEF_READ_AT_ONCE } else { READ_AT_ONCE });
        let read = app.engine.tasks(&query).await?;
        let (found, mut taken) = (read.items.len(), 0);
        for loaded in &read.items {
            if page.room() == 0 {
                break;
            }
            let mut task = if query.brief { view::brief(loaded) } else { view::summary(loaded) };
            task.current = current::steps(loaded);
            let messages = task.current.iter().filter_map(|step| step.message.as_ref()).map(String::len);
            let bytes = task.params.get().len() + messages.sum::<usize>();
            page.push(task, bytes);
            query.before = Some(loaded.task.id);
            taken += 1;
        }
        // Where all were taken the store knows whether there are more.
        if taken == found {
            query.before = read.next;
        }
        // What found less than it might have looked at enough.
        if page.room() == 0 || found < query.limit || query.before.is_none() {
            return Ok(page.into_list(query.before.map(cursor)));
        }
    }
}

/// What a list is asked for.
pub(crate) struct ListQuery {
    filters: Filters,
    pub(in crate::http) limit: usize,
    brief: bool,
}

impl FromQuery for ListQuery {
    const NAMES: &'static [&'static str] = &[
        "status",
        "flow",
        "label",
        "idempotency_key",
        "unique_key",
        "param",
        "since",
        "until",
        "cursor",
        "limit",
        "brief",
    ];

    fn from_query(pairs: &Pairs, now: Timestamp) -> Result<Self, Refused> {
        let (limit, brief) = (pairs.limit(PAGE_ITEMS)?, pairs.flag("brief")?);
        Ok(Self { filters: Filters::from_query(pairs, now)?, limit, brief })
    }
}

impl ListQuery {
    /// Before which task the page begins.
    pub(in crate::http) fn before(&self) -> Option<TaskId> {
        self.filters.query.before
    }
}

/// The filters of a list or of counts, and where to go on.
pub(crate) struct Filters {
    query: TaskQuery,
    idempotency_key: Option<String>,
}

impl FromQuery for Filters {
    const NAMES: &'static [&'static str] =
        &["status", "flow", "label", "idempotency_key", "unique_key", "param", "since", "until", "cursor"];

    fn from_query(pairs: &Pairs, now: Timestamp) -> Result<Self, Refused> {
        let params = pairs.all("param").map(param).collect::<Result<Vec<_>, _>>()?;
        if params.len() > PARAMS_MAX {
            let count = params.len();
            return Err(Refused::malformed(format!(
                "\"param\" is there {count} times: the limit is {PARAMS_MAX}"
            )));
        }
        let query = TaskQuery {
            statuses: pairs
                .all("status")
                .flat_map(|list| list.split(','))
                .map(status)
                .collect::<Result<_, _>>()?,
            flow: pairs.name("flow")?,
            labels: pairs.all("label").map(label).collect::<Result<BTreeMap<_, _>, _>>()?,
            unique: pairs.one("unique_key")?.map(Box::from),
            params,
            since: pairs.time("since", now)?,
            until: pairs.time("until", now)?,
            before: pairs.one("cursor")?.map(read_cursor).transpose()?,
            ..TaskQuery::default()
        };
        Ok(Self { query, idempotency_key: pairs.one("idempotency_key")?.map(str::to_owned) })
    }
}

impl Filters {
    /// The query. An idempotency key may have been used with each flow, and with tasks that bring their steps along.
    pub(in crate::http) async fn into_query(self, app: &App) -> Result<TaskQuery, Refused> {
        let Self { query, idempotency_key } = self;
        let Some(key) = idempotency_key else { return Ok(query) };
        let mut scopes = vec![idempotency::scope(&key, idempotency::ADHOC)];
        match &query.flow {
            Some(flow) => scopes.push(idempotency::scope(&key, flow)),
            None => {
                let flows = app.engine.flows().await?;
                scopes.extend(flows.iter().map(|stored| idempotency::scope(&key, &stored.flow.name)));
            }
        }
        Ok(TaskQuery { scopes: Some(scopes), ..query })
    }
}

fn param(text: &str) -> Result<ParamFilter, Refused> {
    let (path, value) = text.split_once(':').ok_or_else(|| {
        Refused::malformed(format!("\"param\" is {text:?}, and must be path:value, such as size:3"))
    })?;
    ParamFilter::new(path, value).map_err(|error| Refused::malformed(format!("\"param\": {error}")))
}

fn status(word: &str) -> Result<TaskStatus, Refused> {
    word.parse().map(view::core_status).map_err(Refused::malformed)
}

fn label(text: &str) -> Result<(String, String), Refused> {
    let label = text.split_once(':').filter(|(name, _)| !name.is_empty());
    label
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .ok_or_else(|| Refused::malformed(format!("\"label\" is {text:?}, and must be name:value")))
}

pub(in crate::http) fn cursor(before: TaskId) -> String {
    format!("{CURSOR_PREFIX}{:032x}", before.0)
}

fn read_cursor(text: &str) -> Result<TaskId, Refused> {
    let hex = text.strip_prefix(CURSOR_PREFIX).filter(|hex| hex.len() == 32);
    let id = hex.and_then(|hex| u128::from_str_radix(hex, 16).ok()).map(TaskId);
    // The comparison refuses other spellings of a number, `+1` for example.
    id.filter(|id| cursor(*id) == text)
        .ok_or_else(|| Refused::malformed("invalid \"cursor\": send `next` of the page before, unchanged"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_ours() {
        let id = TaskId(0x0190_0000_0000_7000_8000_0000_0000_0001);
        assert_eq!(read_cursor(&cursor(id)).unwrap(), id);
        for bad in [
            "",
            "t",
            "01900000000070008000000000000001",
            "t+1900000000070008000000000000001",
            "t0190000000007000800000000000000A",
            "t0190000000007000800000000000000g",
            &format!("{}0", cursor(id)),
        ] {
            assert!(read_cursor(bad).is_err(), "{bad}");
        }
    }
}

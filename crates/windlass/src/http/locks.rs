//! `/v1/locks`: who has which lock, and who waits for it.

use std::{collections::BTreeMap, sync::Arc};

use axum::{extract::State, response::Response};
use utoipa_axum::{router::OpenApiRouter, routes};
use windlass_api as api;
use windlass_core::{Leader, Lock, LockHolder, LockOwner, LockWaiter, Name, TaskId, Timestamp};

use crate::http::{
    App,
    answer::{ok, problem::Refused},
    request::{By, FromQuery, JsonBody, Pairs, Path, Query, SUBMIT_BYTES_MAX},
    tasks::view,
};

/// Locks in one answer where nothing is said.
const PAGE_ITEMS: usize = 100;

/// Waiters that are shown of one lock.
const WAITERS_MAX: usize = 100;

/// The longest reason, in characters.
const REASON_CHARS_MAX: usize = 1000;

/// Its routes.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(show)).routes(routes!(release))
}

/// Which locks are listed.
pub(crate) struct PageOfLocks {
    after: Option<Name>,
    limit: usize,
}

impl FromQuery for PageOfLocks {
    const NAMES: &'static [&'static str] = &["cursor", "limit"];

    fn from_query(pairs: &Pairs, _: Timestamp) -> Result<Self, Refused> {
        Ok(Self { after: pairs.name("cursor")?, limit: pairs.limit(PAGE_ITEMS)? })
    }
}

/// The locks that somebody has, by name.
#[utoipa::path(
    get,
    path = "/v1/locks", operation_id = "list_locks",
    tag = "locks",
    params(
        ("cursor" = Option<String>, Query, description = "`next` of the page before"),
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 1000, description = "1 to 1000"),
    ),
    responses((status = 200, description = "The page", body = api::List<api::Lock>))
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Query(page): Query<PageOfLocks>,
) -> Result<Response, Refused> {
    let PageOfLocks { after, limit } = page;
    let locks = app.engine.locks(after.as_ref(), limit + 1).await?;
    let next = (locks.len() > limit).then(|| locks[limit - 1].name.to_string());
    let locks = &locks[..locks.len().min(limit)];
    let holders = locks.iter().filter_map(|lock| lock.holder);
    let steps = Steps::of(&app, holders.map(|holder| holder.owner)).await?;
    let items = locks.iter().map(|lock| document(lock, &steps, 0)).collect();
    Ok(ok(&api::List { items, next }))
}

/// One lock with those who wait for it.
#[utoipa::path(
    get,
    path = "/v1/locks/{name}", operation_id = "get_lock",
    tag = "locks",
    params(("name" = String, Path, description = "Name of the lock")),
    responses(
        (status = 200, description = "The lock", body = api::Lock),
        (status = 404, description = "Nobody has it", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn show(State(app): State<Arc<App>>, Path(name): Path<Name>) -> Result<Response, Refused> {
    let lock = app.engine.lock(&name).await?;
    let steps = Steps::of(&app, owners(&lock)).await?;
    Ok(ok(&document(&lock, &steps, WAITERS_MAX)))
}

/// Takes a lock from its holder; the next one that waits gets it. The former holder is not stopped, but its fencing
/// token is old from now on.
#[utoipa::path(
    post,
    path = "/v1/locks/{name}/release", operation_id = "release_lock",
    tag = "locks",
    params(("name" = String, Path, description = "Name of the lock")),
    request_body = api::ReleaseLock,
    responses(
        (status = 200, description = "The lock, and who had it", body = api::ReleasedLock),
        (status = 400, description = "No reason", body = api::Problem, content_type = "application/problem+json"),
        (status = 404, description = "Nobody has it", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn release(
    State(app): State<Arc<App>>,
    Path(name): Path<Name>,
    By(by): By,
    JsonBody(body): JsonBody<SUBMIT_BYTES_MAX>,
) -> Result<Response, Refused> {
    let body = body.parse::<api::ReleaseLock>()?;
    let reason = reason(&body.reason, "the lock is taken from its holder")?;
    let seized = app.engine.seize_lock(name.clone(), reason, by.clone()).await?;
    let task = Some(seized.from.owner).filter(|owner| !owner.is_leader()).map(|owner| owner.task.to_string());
    let leader = seized.leader.as_ref().map(|leader| format!("{} of {}", leader.id, leader.name));
    tracing::info!(lock = %name, task, leader, reason, by = by.map(|by| by.to_string()), "a lock was taken from its holder");
    app.metrics.command("release_lock");
    let steps = Steps::of(&app, owners(&seized.lock).chain([seized.from.owner])).await?;
    let lock = document(&seized.lock, &steps, WAITERS_MAX);
    Ok(ok(&api::ReleasedLock { lock, former: holder(&seized.from, seized.leader.as_deref(), &steps) }))
}

/// Those of a lock that are shown.
fn owners(lock: &Lock) -> impl Iterator<Item = LockOwner> {
    let holder = lock.holder.iter().map(|holder| holder.owner);
    holder.chain(lock.waiters().take(WAITERS_MAX).map(|waiter| waiter.owner))
}

/// What steps are called.
struct Steps(BTreeMap<(TaskId, usize), String>);

impl Steps {
    async fn of(app: &App, owners: impl Iterator<Item = LockOwner>) -> Result<Self, Refused> {
        let owners: Vec<LockOwner> = owners.collect();
        let of_tasks = owners.iter().filter(|owner| !owner.is_leader());
        let mut ids: Vec<TaskId> = of_tasks.map(|owner| owner.task).collect();
        ids.sort_unstable();
        ids.dedup();
        let found = app.engine.tasks_by_id(&ids).await?;
        let tasks: BTreeMap<TaskId, _> = ids.into_iter().zip(found).collect();
        let name = |owner: &LockOwner| {
            let loaded = tasks.get(&owner.task)?.as_ref()?;
            let step = loaded.task.flow.steps.get(owner.key.step)?;
            Some(((owner.task, owner.key.step), step.name.to_string()))
        };
        Ok(Self(owners.iter().filter_map(name).collect()))
    }

    fn step(&self, owner: &LockOwner, since: Timestamp) -> api::LockStep {
        api::LockStep {
            // The number of a leader's campaign is a secret.
            task: match owner.task {
                task if task == TaskId::NONE || owner.is_leader() => String::new(),
                task => task.to_string(),
            },
            exclusive: owner.is_task(),
            step: self.0.get(&(owner.task, owner.key.step)).cloned().unwrap_or_default(),
            index: owner.key.index(),
            direction: view::direction(owner.key.direction),
            since: view::time(since),
        }
    }
}

/// The document of an exclusive queue, with its waiters.
pub(super) async fn queue_document(app: &App, queue: &Lock) -> Result<api::Lock, Refused> {
    let steps = Steps::of(app, owners(queue)).await?;
    Ok(document(queue, &steps, WAITERS_MAX))
}

/// The reason that an operator gives for `what`.
pub(super) fn reason<'a>(reason: &'a str, what: &str) -> Result<&'a str, Refused> {
    let reason = reason.trim();
    if reason.is_empty() || reason.chars().count() > REASON_CHARS_MAX {
        return Err(Refused::malformed(format!(
            "\"reason\" must say in 1 to {REASON_CHARS_MAX} characters why {what}"
        )));
    }
    Ok(reason)
}

fn document(lock: &Lock, steps: &Steps, waiters_max: usize) -> api::Lock {
    let waiter = |waiter: &LockWaiter| api::LockWaiter { step: steps.step(&waiter.owner, waiter.since) };
    api::Lock {
        name: lock.name.to_string(),
        holder: lock.holder.as_ref().map(|found| holder(found, lock.leader.as_deref(), steps)),
        waiting: lock.waiting() as u64,
        waiters: lock.waiters().take(waiters_max).map(waiter).collect(),
    }
}

fn holder(holder: &LockHolder, leader: Option<&Leader>, steps: &Steps) -> api::LockHolder {
    let leader =
        leader.map(|leader| api::LockLeader { name: leader.name.to_string(), id: leader.id.to_string() });
    api::LockHolder { step: steps.step(&holder.owner, holder.since), fence: holder.fence, leader }
}

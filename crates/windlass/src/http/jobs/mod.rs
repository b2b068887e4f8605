//! `/api/asyncwork`: the job API. A job is a task of a flow that the server's configuration names, with the job's name and
//! value as its parameters.
//!
//! ```text
//! POST ─▶ task on disk ─▶ event on the broker, confirmed ─▶ 202
//!              └─ no confirmation within 5 s ─▶ task cancelled ─▶ 503
//! ```

mod document;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{
    extract::{FromRequestParts, State},
    http::{StatusCode, request::Parts},
    response::Response,
};
use tokio::time::{Instant, timeout_at};
use utoipa_axum::{router::OpenApiRouter, routes};
use windlass_api as api;
use windlass_core::{Actor, Command, Input, Json, Name, TaskId, Timestamp};
use windlass_engine::{EngineError, Submission};
use windlass_store::Loaded;

use crate::{
    http::{
        App,
        answer::{json_response, ok, problem::Refused},
        flows,
        request::{
            By, Caller, FromQuery, JsonBody, PARAMS_BYTES_MAX, Pairs, Query, SUBMIT_BYTES_MAX, bytes_in_words,
        },
        submit::idempotency::{self, IdempotencyKey, Keyed},
    },
    job_api::{Confirm, JobApiSettings},
};

pub(crate) use document::JobParams;

use document::{JOB_LABEL, NAME_BYTES_MAX};

/// How long the broker has to confirm the event of a job.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(5);

/// After how many milliseconds a client should ask for the state of a new job.
const RETRY_AFTER_MS: u32 = 1_000;

/// Its routes.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(show, create))
        .routes(routes!(state))
        .routes(routes!(result))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(cancel))
}

/// The job API, where the server has it.
pub(crate) struct JobApi(Jobs);

impl FromRequestParts<Arc<App>> for JobApi {
    type Rejection = Refused;

    async fn from_request_parts(_: &mut Parts, app: &Arc<App>) -> Result<Self, Refused> {
        app.jobs.clone().map(Self).ok_or_else(Refused::no_job_api)
    }
}

/// The job API, as a server applies it.
#[derive(Debug, Clone)]
pub struct Jobs {
    settings: Arc<JobApiSettings>,
    /// What an accepted job has waited for.
    confirm: Confirm,
}

impl Jobs {
    /// The job API of these settings, on a store that several servers may share or not.
    ///
    /// # Errors
    /// When the server cannot wait for what it is to wait for.
    pub(crate) fn new(settings: JobApiSettings, is_shared: bool) -> anyhow::Result<Self> {
        let confirm = settings.confirm(is_shared)?;
        Ok(Self { settings: Arc::new(settings), confirm })
    }

    /// A job API in which each job runs the flow of its name, or else `flow`. A job is accepted once it is on disk.
    #[must_use]
    pub fn of_flows(flow: Name, flows: BTreeMap<String, Name>) -> Self {
        Self { settings: Arc::new(JobApiSettings::of_flows(flow, flows)), confirm: Confirm::Store }
    }
}

/// The id of a job in a query.
pub(crate) struct JobId(pub(crate) TaskId);

impl FromQuery for JobId {
    const NAMES: &'static [&'static str] = &["jobId"];

    fn from_query(pairs: &Pairs, _: Timestamp) -> Result<Self, Refused> {
        let Some(text) = pairs.one("jobId")? else {
            return Err(Refused::malformed(
                "the query has no \"jobId\": give the id of a job, such as ?jobId=UUID",
            ));
        };
        match text.parse() {
            Ok(id) => Ok(Self(id)),
            Err(_) => {
                let short: String = text.chars().take(64).collect();
                Err(Refused::malformed(format!(
                    "\"jobId\" is {short:?}, and must be a UUID: the `jobId` of the accepted job"
                )))
            }
        }
    }
}

/// Accepts a job. When this is answered with 202, the job is on disk. If its flow begins on a queue of a broker, the broker
/// has confirmed the event too (`confirm` in the server's configuration). If it does not within 5 s, the job is
/// cancelled, and the answer is 503.
///
/// A request repeated under the same idempotency key returns the job of the first one. With such a key, a job without
/// a confirmed event is not cancelled: its event follows.
#[utoipa::path(
    post,
    path = "/api/asyncwork", operation_id = "create_job",
    tag = "jobs",
    request_body = api::CreateJob,
    params(
        ("Idempotency-Key" = Option<String>, Header, description = "At most 255 bytes"),
        ("Windlass-Actor" = Option<String>, Header, description = "Who submits, for the history"),
        ("traceparent" = Option<String>, Header, description = "W3C trace context, handed on to workers"),
    ),
    responses(
        (status = 202, description = "Accepted", body = api::JobAccepted),
        (status = 400, description = "Malformed", body = api::Problem, content_type = "application/problem+json"),
        (status = 404, description = "The server has no job API, or the flow of the job does not exist", body = api::Problem, content_type = "application/problem+json"),
        (status = 413, description = "Too large", body = api::Problem, content_type = "application/problem+json"),
        (status = 415, description = "Not JSON", body = api::Problem, content_type = "application/problem+json"),
        (status = 422, description = "The key was used with another body", body = api::Problem, content_type = "application/problem+json"),
        (status = 429, description = "Too much is waiting", body = api::Problem, content_type = "application/problem+json"),
        (status = 503, description = "The broker did not confirm the event within 5 s, or the store is not available", body = api::Problem, content_type = "application/problem+json"),
        (status = 507, description = "The store is full", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn create(
    State(app): State<Arc<App>>,
    JobApi(Jobs { settings, confirm }): JobApi,
    caller: Caller,
    IdempotencyKey(key): IdempotencyKey,
    JsonBody(text): JsonBody<SUBMIT_BYTES_MAX>,
) -> Result<Response, Refused> {
    let until = Instant::now() + CONFIRM_TIMEOUT;
    let job = text.parse::<api::CreateJob>()?;
    let key = idempotency::key(key.as_deref(), None)?;
    let submission = submission(&settings, &job, key, &caller)?;
    let id = app.engine.next_task_id(caller.now);
    let watch = (confirm == Confirm::Event).then(|| app.engine.watch_sent(id));
    let accepted = match app.engine.submit_under(id, submission).await {
        Ok(accepted) => accepted,
        Err(error) => return Err(flows::with_versions(&app, error).await),
    };
    app.metrics.submitted(accepted.existing.is_some());
    let task = &accepted.loaded.task;
    if let Some(watch) = watch
        && accepted.existing.is_none()
        && app.engine.offers_attempts_of(task)
        && timeout_at(until, watch.sent()).await.is_err()
    {
        give_up(&app, task.id, key.is_some(), caller.by).await?;
    }
    let job_id = task.id.to_string();
    let state_endpoint = format!("/api/asyncwork/state?jobId={job_id}");
    Ok(json_response(
        StatusCode::ACCEPTED,
        &api::JobAccepted { job_id, state_endpoint, retry_after: RETRY_AFTER_MS },
    ))
}

/// Checks a job, and makes the submission of its task.
fn submission(
    settings: &JobApiSettings,
    job: &api::CreateJob,
    key: Option<&str>,
    caller: &Caller,
) -> Result<Submission, Refused> {
    if job.name.is_empty() || job.name.len() > NAME_BYTES_MAX {
        return Err(Refused::malformed(format!(
            "`name` has {} bytes: use 1 to {NAME_BYTES_MAX}",
            job.name.len()
        )));
    }
    let flow = settings.flow_of(&job.name);
    caller.grant.flow(flow)?;
    let params = document::params(job);
    if params.len() > PARAMS_BYTES_MAX {
        let most = bytes_in_words(PARAMS_BYTES_MAX);
        return Err(Refused::too_large(format!("the job has {} bytes, and may have {most}", params.len())));
    }
    let params = Json::parse(&params).map_err(|error| Refused::malformed(format!("`value`: {error}")))?;
    let labels = BTreeMap::from([(JOB_LABEL.to_owned(), document::label(&job.name))]);
    let input = Input {
        labels,
        by: caller.by.clone(),
        traceparent: caller.traceparent.clone(),
        ..Input::new(params, caller.now.wall)
    };
    let key = key.map(|key| idempotency::submit_key(key, flow, flow, None, &input));
    let (key, fingerprint_before) = key.map(Keyed::into_parts).unzip();
    Ok(Submission { flow: flow.clone(), version: None, input, key, fingerprint_before })
}

/// The event of a job was not confirmed in time. Without an idempotency key the job is cancelled: the client has no id
/// of it. Succeeds if it ran meanwhile.
async fn give_up(app: &App, id: TaskId, has_key: bool, by: Option<Actor>) -> Result<(), Refused> {
    if has_key {
        return Err(Refused::event_not_confirmed(
            "the broker did not confirm the event of the job within 5 s. The job is stored, and its event follows: repeat the \
             request with the same idempotency key to get its id",
        ));
    }
    match app.engine.tell(id, Command::Cancel { by }).await {
        Ok(_) => Err(Refused::event_not_confirmed(
            "the broker did not confirm the event of the job within 5 s, so the job was cancelled: send it again later",
        )),
        Err(EngineError::Rejected(_)) => Ok(()),
        Err(error) => Err(Refused::event_not_confirmed(format!(
            "the broker did not confirm the event of the job within 5 s, and the job {id} could not be cancelled ({error}): it may \
             still run"
        ))),
    }
}

/// One job.
#[utoipa::path(
    get,
    path = "/api/asyncwork", operation_id = "get_job",
    tag = "jobs",
    params(("jobId" = String, Query, description = "Id of the job")),
    responses(
        (status = 200, description = "The job", body = api::Job),
        (status = 400, description = "No id, or not a UUID", body = api::Problem, content_type = "application/problem+json"),
        (status = 404, description = "Unknown job, or the server has no job API", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    _: JobApi,
    Query(JobId(id)): Query<JobId>,
) -> Result<Response, Refused> {
    let loaded = load(&app, id).await?;
    Ok(ok(&document::job(&loaded, app.now().wall)))
}

/// The state of a job.
#[utoipa::path(
    get,
    path = "/api/asyncwork/state", operation_id = "get_job_state",
    tag = "jobs",
    params(("jobId" = String, Query, description = "Id of the job")),
    responses(
        (status = 200, description = "The state, and where the result is", body = api::JobStateAnswer),
        (status = 400, description = "No id, or not a UUID", body = api::Problem, content_type = "application/problem+json"),
        (status = 404, description = "Unknown job, or the server has no job API", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn state(
    State(app): State<Arc<App>>,
    _: JobApi,
    Query(JobId(id)): Query<JobId>,
) -> Result<Response, Refused> {
    Ok(ok(&document::state_answer(&load(&app, id).await?)))
}

/// The result of a job that has succeeded.
#[utoipa::path(
    get,
    path = "/api/asyncwork/result", operation_id = "get_job_result",
    tag = "jobs",
    params(("jobId" = String, Query, description = "Id of the job")),
    responses(
        (status = 200, description = "The result", body = api::JobResult),
        (status = 400, description = "No id, or not a UUID", body = api::Problem, content_type = "application/problem+json"),
        (status = 404, description = "Unknown job, or it has no result; or the server has no job API", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn result(
    State(app): State<Arc<App>>,
    _: JobApi,
    Query(JobId(id)): Query<JobId>,
) -> Result<Response, Refused> {
    let loaded = load(&app, id).await?;
    let result = document::result(&loaded).ok_or_else(|| {
        let state = document::state_name(&loaded);
        Refused::no_job_result(format!(
            "the job {id} has no result: its state is {state}, and only FINISH has one"
        ))
    })?;
    Ok(ok(&result))
}

/// Pauses a job: no worker starts it. A worker that has started it goes on.
#[utoipa::path(
    post,
    path = "/api/asyncwork/pause", operation_id = "pause_job",
    tag = "jobs",
    params(("jobId" = String, Query, description = "Id of the job")),
    responses(
        (status = 200, description = "Its state", body = api::JobStateAnswer),
        (status = 400, description = "No id, or not a UUID", body = api::Problem, content_type = "application/problem+json"),
        (status = 404, description = "Unknown job, or the server has no job API", body = api::Problem, content_type = "application/problem+json"),
        (status = 409, description = "It has ended", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn pause(
    State(app): State<Arc<App>>,
    _: JobApi,
    By(by): By,
    Query(JobId(id)): Query<JobId>,
) -> Result<Response, Refused> {
    told(&app, id, "pause", Command::Pause { by }).await
}

/// Lets a paused job go on.
#[utoipa::path(
    post,
    path = "/api/asyncwork/resume", operation_id = "resume_job",
    tag = "jobs",
    params(("jobId" = String, Query, description = "Id of the job")),
    responses(
        (status = 200, description = "Its state", body = api::JobStateAnswer),
        (status = 400, description = "No id, or not a UUID", body = api::Problem, content_type = "application/problem+json"),
        (status = 404, description = "Unknown job, or the server has no job API", body = api::Problem, content_type = "application/problem+json"),
        (status = 409, description = "It has ended", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn resume(
    State(app): State<Arc<App>>,
    _: JobApi,
    By(by): By,
    Query(JobId(id)): Query<JobId>,
) -> Result<Response, Refused> {
    told(&app, id, "resume", Command::Resume { by }).await
}

/// Cancels a job: nothing new starts, and steps that have begun are rolled back.
#[utoipa::path(
    post,
    path = "/api/asyncwork/cancel", operation_id = "cancel_job",
    tag = "jobs",
    params(("jobId" = String, Query, description = "Id of the job")),
    responses(
        (status = 200, description = "Its state", body = api::JobStateAnswer),
        (status = 400, description = "No id, or not a UUID", body = api::Problem, content_type = "application/problem+json"),
        (status = 404, description = "Unknown job, or the server has no job API", body = api::Problem, content_type = "application/problem+json"),
        (status = 409, description = "It has ended", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn cancel(
    State(app): State<Arc<App>>,
    _: JobApi,
    By(by): By,
    Query(JobId(id)): Query<JobId>,
) -> Result<Response, Refused> {
    told(&app, id, "cancel", Command::Cancel { by }).await
}

async fn told(app: &App, id: TaskId, kind: &'static str, command: Command) -> Result<Response, Refused> {
    load(app, id).await?;
    let loaded = app.engine.tell(id, command).await?;
    app.metrics.command(kind);
    Ok(ok(&document::state_answer(&loaded)))
}

/// A job. A task that did not start as one is none.
async fn load(app: &App, id: TaskId) -> Result<Loaded, Refused> {
    match app.engine.task(id).await {
        Ok(loaded) if loaded.task.input.labels.contains_key(JOB_LABEL) => Ok(loaded),
        Ok(_) | Err(EngineError::UnknownTask(_)) => Err(Refused::unknown_job(id)),
        Err(error) => Err(error.into()),
    }
}

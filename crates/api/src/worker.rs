//! The exchange: the one call with which a worker claims attempts, reports them and keeps its session.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{AttemptLock, Payload, Progress};

/// The version of the exchange protocol.
pub const PROTOCOL: u32 = 1;

/// What a worker says: the body of `POST /v1/worker/exchange`, at most 8 MiB.
///
/// A call with reports answers as soon as they are on disk and takes nothing. A call without reports is the
/// poll: it takes attempts, waits for them up to `wait_ms`, and is the only one that hears of cancels.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExchangeRequest {
    /// Always 1.
    pub protocol: u32,
    /// A random UUID that the worker made when it started. It is a secret: a client that knows it can take the worker's attempts.
    pub session: String,
    /// Counts the calls of the session up from 1. A call whose number leaps is refused.
    pub seq: u64,
    /// The worker keeps a poll open at all times: none open for 1 s means that it is gone.
    #[serde(default)]
    pub attached: bool,
    /// For how long the session may be silent, 1 s to 1 h; 10 s attached and 30 s else when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    /// Who the worker is, for people. Needed in the first call of a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerInfo>,
    /// Tokens of all attempts the worker has; an attempt stays listed until its report was answered.
    /// Left out = nothing said. An attempt given to the session and absent here is given again. At most 50,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holding: Option<Vec<String>>,
    /// With `holding`: tokens of attempts that the worker returns as `declined`, until those reports were answered. They are
    /// not in `holding`, so that no server takes them for the worker's. At most 50,000.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub declining: Vec<String>,
    /// What it serves and how many more attempts it can take now. Left out = as said before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modules: Option<Vec<ModuleOffer>>,
    /// How many more attempts it can take over all modules together, where they share slots. Left out = what
    /// the modules allow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<u32>,
    /// The worker takes nothing more, and ends once what it has is done. Left out = as said before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draining: Option<bool>,
    /// How long a poll may wait for work, at most 30,000.
    #[serde(default)]
    pub wait_ms: u64,
    /// What became of attempts. At most 10,000.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Report>)]
    pub reports: Vec<Payload>,
}

/// Who a worker is, for people.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkerInfo {
    /// A name of its own.
    pub name: String,
    /// The machine it runs on.
    #[serde(default)]
    pub host: String,
    /// The version of its program or library.
    #[serde(default)]
    pub version: String,
}

/// What a worker can take of one module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ModuleOffer {
    /// The module.
    pub name: String,
    /// The commands it has; left out = all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commands: Option<Vec<String>>,
    /// How many more attempts it can take now; an absolute number that replaces the one said before.
    pub free: u32,
}

/// What became of one attempt.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// The attempt's token.
    pub token: String,
    /// How it went.
    pub outcome: ReportOutcome,
    /// With `succeeded`: a JSON object of at most 256 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub result: Option<Payload>,
    /// With `failed` and `retry_later`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ReportError>,
    /// With `retry_later`: how long to wait; 10 s when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// With `running`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// Lines to keep with the attempt, with any outcome.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logs: Vec<String>,
}

/// How an attempt went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReportOutcome {
    /// Done.
    Succeeded,
    /// Failed; retried while retries are left, if the error is retryable.
    Failed,
    /// Retried after a delay, which does not count as a retry.
    RetryLater,
    /// Still running: a report of progress and log lines only.
    Running,
    /// Not started: another worker gets it, and it does not count as an attempt.
    Declined,
}

/// Why an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportError {
    /// A line for people; cut at 4 KiB.
    pub message: String,
    /// Exit code; 1 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// Whether another attempt can help.
    #[serde(default = "yes")]
    pub retryable: bool,
}

fn yes() -> bool {
    true
}

/// The answer of an exchange.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct ExchangeAnswer {
    /// What the worker is to do now.
    #[serde(default)]
    pub attempts: Vec<Attempt>,
    /// One per report, in their order.
    #[serde(default)]
    pub reports: Vec<ReportAnswer>,
    /// Attempts to stop; report them `failed` once they have ended.
    #[serde(default)]
    pub cancels: Vec<String>,
    /// For how long the session may be silent.
    pub lease_ms: u64,
    /// With reports, where servers share a store: the highest `seq` of a poll that this server received, 0 for none. If the
    /// worker has no open poll with this `seq`, its polls are at other servers, which did not receive the `free` of this
    /// call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll: Option<u64>,
}

/// One try of one action, handed out.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Attempt {
    /// Fence and authorisation of this attempt: every report carries it.
    pub token: String,
    /// Id of the task.
    pub task: String,
    /// Name of its flow.
    pub flow: String,
    /// Name of the step.
    pub step: String,
    /// Index of the step.
    pub cursor: usize,
    /// Forward or rollback.
    pub direction: Direction,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Whose work it is.
    pub module: String,
    /// What to do.
    pub command: String,
    /// The parameters, with the results of the steps before. A rollback gets those that its step was given.
    #[schema(value_type = Object)]
    pub params: Payload,
    /// What the steps before returned, by their names, where no later result can hide it; left out where none
    /// returned anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub results: Option<Payload>,
    /// Whether `results` is left out because it is larger than 2 MiB, or than a broker's message may be.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub results_omitted: bool,
    /// How long the attempt may take.
    pub timeout_ms: u64,
    /// The same for all attempts of this action: hand it to what has effects.
    pub idempotency_key: String,
    /// With `rollback`: the `idempotency_key` that the attempts had which are rolled back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward_idempotency_key: Option<String>,
    /// With `rollback`: why the task is rolled back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// With `rollback`: what the step, or its item, returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub result: Option<Payload>,
    /// W3C trace context for what the worker does: the span of the attempt if the server records traces, otherwise that
    /// of the submit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// The locks that the step has while it runs, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locks: Vec<AttemptLock>,
    /// The exclusive queue that the task has while the step runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclusive: Option<AttemptLock>,
}

/// Forward or rollback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Runs the step.
    Forward,
    /// Rolls the step back.
    Rollback,
}

/// What became of one report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReportAnswer {
    /// The token reported.
    pub token: String,
    /// What became of it.
    pub status: ReportStatus,
    /// With `invalid`: what is wrong with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// What became of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReportStatus {
    /// It is durable.
    Accepted,
    /// It was accepted before.
    Duplicate,
    /// Too late: the attempt was abandoned, or another worker has claimed it. Drop the report.
    Stale,
    /// The attempt does not exist: drop the report.
    Unknown,
    /// Malformed. The attempt continues: report it as failed.
    Invalid,
}

/// A connected worker.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Worker {
    /// A public id of its session. The session's own UUID is the worker's secret.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its machine.
    pub host: String,
    /// Version of its program or library.
    pub version: String,
    /// Whether it keeps a poll open.
    pub attached: bool,
    /// Whether it takes nothing more and ends once what it has is done, as it said to this server.
    #[serde(default)]
    pub draining: bool,
    /// The modules it serves.
    pub modules: Vec<String>,
    /// How many attempts it has.
    pub running: u32,
    /// When it was last heard of.
    #[schema(value_type = String, format = DateTime)]
    pub last_seen_at: Timestamp,
}

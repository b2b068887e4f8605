//! The exchange: how a worker claims attempts, reports them and keeps its session.
//!
//! Every call renews the session's lease ([`hearing`]). A call with reports is answered once they are on disk
//! ([`reports`]). A call without reports is a poll ([`polls`]): it is answered when there are attempts or cancels for
//! the worker. Attempts are handed out to it ([`handing_out`]), with commits where servers share a store
//! ([`with_commits`]).

mod answer_size;
mod broker_results;
mod dispatching;
mod handing_out;
mod hearing;
mod holdings;
mod logs;
mod polls;
mod reading;
mod reports;
pub(crate) mod sessions;
mod tokens;
mod with_commits;

use std::sync::Arc;

use windlass_core::{ActKey, Json, Millis, Name, Outcome, Task};
use windlass_store::{AttemptId, ClaimRequest, Now, SessionId, WorkerState};

use self::hearing::Heard;
pub use self::tokens::{Tokens, is_token};
pub(crate) use self::{dispatching::Dispatching, with_commits::TakenAlong};
use crate::{Engine, EngineError, Progress};

/// The number of a call in its session.
pub(crate) type Seq = u64;

/// The default lease of an attached session.
pub const LEASE_ATTACHED: Millis = Millis::from_secs(10);

/// The default lease of a session that is not attached.
pub const LEASE_DETACHED: Millis = Millis::from_secs(30);

/// The shortest and the longest lease.
pub const LEASE_RANGE: std::ops::RangeInclusive<Millis> = Millis(1000)..=Millis(3_600_000);

/// How long an attached session may have no open poll.
pub const SILENCE_ATTACHED: Millis = Millis(1000);

/// The longest wait of a poll.
pub const WAIT_MAX: Millis = Millis(30_000);

/// The largest parameters handed out, in bytes; an attempt with more fails for good.
pub const PARAMS_BYTES_MAX: usize = 4 << 20;

/// The largest map of results handed out besides the parameters, in bytes; an attempt with more gets no results.
pub const RESULTS_BYTES_MAX: usize = 2 << 20;

/// The largest answer, in bytes; other attempts stay in their queue, or are handed out with the next answer.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// The maximum number of attempts in one answer.
pub const ATTEMPTS_MAX: usize = 1000;

/// The maximum bytes of log lines that one server keeps per attempt.
pub const LOG_BYTES_MAX: usize = 64 << 10;

/// The maximum gap between the number of a call and the highest earlier one, for each second since this server last
/// received a call of the session. No worker makes that many calls, even if some of them go to other servers. A number
/// that leaps would make all later calls of the session's owner look like late copies.
const SEQ_PER_SECOND_MAX: u64 = 100_000;

/// One call of a worker.
#[derive(Debug, Clone)]
pub struct Exchange {
    /// The session.
    pub session: SessionId,
    /// Number of the call.
    pub seq: u64,
    /// The worker keeps a poll open at all times.
    pub attached: bool,
    /// The requested lease.
    pub lease: Option<Millis>,
    /// The worker's name, machine and version, if given.
    pub worker: Option<WorkerState>,
    /// The tokens of all attempts it runs; `None` = not given.
    pub holding: Option<Vec<String>>,
    /// With `holding`: the tokens of attempts that it returns, as long as its reports of that are not answered.
    pub declining: Vec<String>,
    /// The free slots for each module; `None` = unchanged.
    pub claim_requests: Option<Vec<ClaimRequest>>,
    /// The free slots over all modules together.
    pub free: Option<u32>,
    /// Whether the worker claims nothing more and exits once its attempts are done; `None` = unchanged.
    pub draining: Option<bool>,
    /// How long the poll may wait.
    pub wait: Millis,
    /// Reports of attempts. A call with reports is not a poll.
    pub reports: Vec<WorkerReport>,
}

/// A report of one attempt.
#[derive(Debug, Clone)]
pub struct WorkerReport {
    /// The token of the attempt.
    pub token: String,
    /// The reported state, or why it is invalid.
    pub said: Result<Said, String>,
    /// Log lines to keep with the attempt.
    pub logs: Vec<String>,
}

/// The reported state of an attempt.
#[derive(Debug, Clone)]
pub enum Said {
    /// It has ended.
    Ended(Outcome),
    /// It is running.
    Running(Option<Progress>),
    /// The worker did not start it.
    Declined,
}

/// The answer to a call.
#[derive(Debug, Clone, Default)]
pub struct ExchangeAnswer {
    /// Attempts to run now.
    pub attempts: Vec<HandedOut>,
    /// The answers to the reports, in their order.
    pub reports: Vec<ReportAnswer>,
    /// Tokens of attempts to stop.
    pub cancels: Vec<String>,
    /// How long the session may go without a call.
    pub lease: Millis,
    /// In the answer to reports, where servers share a store: the highest number of a poll that this server received, 0 for
    /// none. The polls of a worker behind a load balancer may be open at other servers, which did not receive this call's
    /// `free`: the worker then opens another poll.
    pub poll: Option<u64>,
}

/// A claimed attempt that is handed out.
#[derive(Debug, Clone)]
pub struct HandedOut {
    /// Its token.
    pub token: String,
    /// The attempt.
    pub id: AttemptId,
    /// Its task.
    pub task: Arc<Task>,
    /// Its parameters.
    pub params: Json,
    /// The results of the steps before its own, by their names.
    pub results: Results,
    /// The W3C trace context for what its worker does.
    pub traceparent: Option<Box<str>>,
}

impl HandedOut {
    /// The module that its command is of.
    #[must_use]
    pub fn module(&self) -> Option<&Name> {
        self.task.action(self.id.key)?.worker().map(|(module, _)| module)
    }
}

/// The results of the steps before a step, as its attempt gets them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Results {
    /// None of them returned a result.
    None,
    /// A map of step names to results.
    These(Json),
    /// More than [`RESULTS_BYTES_MAX`]: the attempt gets none, and the answer says so.
    TooLarge,
}

impl Results {
    pub(crate) fn of(task: &Task, key: ActKey) -> Self {
        match task.results_for(key) {
            None => Self::None,
            Some(results) if results.as_str().len() > RESULTS_BYTES_MAX => Self::TooLarge,
            Some(results) => Self::These(results),
        }
    }
}

/// The answer to a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportAnswer {
    /// The token of the attempt.
    pub token: String,
    /// The outcome of the report.
    pub status: ReportStatus,
}

/// The outcome of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReportStatus {
    /// It is on disk.
    Accepted,
    /// It was accepted before.
    Duplicate,
    /// Too late: the attempt was given up, or another attempt or claim has replaced it.
    Stale,
    /// No such attempt.
    Unknown,
    /// The report is invalid: the reason.
    Invalid(String),
}

impl Engine {
    /// Processes a worker's call: settles its reports, or answers its poll once there is something for it.
    ///
    /// If the future is dropped (the connection went away), the poll counts as closed.
    ///
    /// # Errors
    /// When the store fails; the worker keeps its reports and calls again. When the call's number leaps.
    pub async fn exchange(&self, call: Exchange, now: Now) -> Result<ExchangeAnswer, EngineError> {
        let Heard { lease, renewal, poll } = self.hear(&call, now)?;
        self.renew(renewal.into_iter().collect(), now).await?;
        if call.reports.is_empty() {
            return match poll {
                Some(poll) => self.answer_poll(call, poll, lease, now).await,
                None => Ok(ExchangeAnswer { lease, ..ExchangeAnswer::default() }),
            };
        }
        self.adopt_running(call.session, &call.reports, now).await?;
        let reports = self.settle_reports(call.session, call.reports, now).await?;
        self.dispatch(now).await?;
        let poll = self.store.cluster().map(|_| self.sessions.lock().get(call.session).last_poll);
        Ok(ExchangeAnswer { reports, lease, poll, ..ExchangeAnswer::default() })
    }
}

/// The idempotency key of an effect: the same for all attempts of an execution.
#[must_use]
pub fn effect_key(task: &Task, key: ActKey) -> String {
    let direction = match key.direction {
        windlass_core::Direction::Forward => "forward",
        windlass_core::Direction::Rollback => "rollback",
    };
    format!("{}/{}/{}/{direction}", task.id, task.flow.steps[key.step].name, key.member)
}

/// The idempotency key of the effect that a rollback rolls back. The `on_error` step has no effect to roll back.
#[must_use]
pub fn rolled_back_key(task: &Task, key: ActKey) -> Option<String> {
    let has_one = key.direction == windlass_core::Direction::Rollback
        && task.flow.steps[key.step].role == windlass_core::Role::Plain;
    has_one.then(|| effect_key(task, ActKey { direction: windlass_core::Direction::Forward, ..key }))
}

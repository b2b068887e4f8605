//! The exchange: how a worker takes attempts, reports them and keeps its session.
//!
//! Every call renews the session's lease ([`hearing`]). One with reports is answered once they are on disk
//! ([`reports`]). One without is a poll ([`polls`]): it is answered when there is something for the worker, which
//! is handed out to it ([`handing_out`]), where servers share a store with commits ([`with_commits`]).

mod answer_size;
mod broker_results;
mod dispatching;
mod handing_out;
mod hearing;
mod holdings;
mod logs;
mod polls;
mod reports;
pub(crate) mod sessions;
mod tokens;
mod with_commits;

use std::sync::Arc;

use windlass_core::{ActKey, Json, Millis, Outcome, Task};
use windlass_store::{AttemptId, ClaimRequest, Now, SessionId, WorkerState};

use self::hearing::Heard;
pub use self::tokens::{Tokens, is_token};
pub(crate) use self::{dispatching::Dispatching, with_commits::TakenAlong};
use crate::{Engine, EngineError, Progress};

/// Number of a call in its session.
pub(crate) type Seq = u64;

/// The lease of an attached session that asks for none.
pub const LEASE_ATTACHED: Millis = Millis::from_secs(10);

/// The lease of another session that asks for none.
pub const LEASE_DETACHED: Millis = Millis::from_secs(30);

/// The shortest and the longest lease.
pub const LEASE_RANGE: std::ops::RangeInclusive<Millis> = Millis(1000)..=Millis(3_600_000);

/// For how long an attached session may have no poll open.
pub const SILENCE_ATTACHED: Millis = Millis(1000);

/// The longest a poll may wait.
pub const WAIT_MAX: Millis = Millis(30_000);

/// The largest parameters handed out, in bytes; an attempt with more fails for good.
pub const PARAMS_BYTES_MAX: usize = 4 << 20;

/// The largest map of results handed out beside the parameters, in bytes; an attempt with more goes without it.
pub const RESULTS_BYTES_MAX: usize = 2 << 20;

/// The largest answer, in bytes; what does not fit stays in its queue, or is handed out with the next answer.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// Attempts handed out in one answer.
pub const ATTEMPTS_MAX: usize = 1000;

/// Bytes of log lines that one server keeps of one attempt.
pub const LOG_BYTES_MAX: usize = 64 << 10;

/// By how much the number of a call may be above those before it, for each second since this server heard of the session: more
/// calls than any worker makes, some of which go to other servers. A number that leaps would make all later calls of the
/// session's owner look like late copies.
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
    /// The lease it asks for.
    pub lease: Option<Millis>,
    /// Name, machine and version of the worker, where it says.
    pub worker: Option<WorkerState>,
    /// Tokens of all it has; nothing = it does not say.
    pub holding: Option<Vec<String>>,
    /// What it can take of each module; nothing = as before.
    pub claim_requests: Option<Vec<ClaimRequest>>,
    /// What it can take over all modules together.
    pub free: Option<u32>,
    /// Whether the worker takes nothing more and ends once what it has is done; nothing = as before.
    pub draining: Option<bool>,
    /// How long the poll may wait.
    pub wait: Millis,
    /// What became of attempts. A call with reports is no poll.
    pub reports: Vec<WorkerReport>,
}

/// What became of one attempt.
#[derive(Debug, Clone)]
pub struct WorkerReport {
    /// Its token.
    pub token: String,
    /// How it went, or why that cannot be understood.
    pub said: Result<Said, String>,
    /// Lines to keep with the attempt.
    pub logs: Vec<String>,
}

/// How an attempt went.
#[derive(Debug, Clone)]
pub enum Said {
    /// It has ended.
    Ended(Outcome),
    /// It goes on.
    Running(Option<Progress>),
    /// It was not begun.
    Declined,
}

/// The answer to a call.
#[derive(Debug, Clone, Default)]
pub struct ExchangeAnswer {
    /// What the worker is to do now.
    pub attempts: Vec<HandedOut>,
    /// One per report, in their order.
    pub reports: Vec<ReportAnswer>,
    /// Tokens of attempts to stop.
    pub cancels: Vec<String>,
    /// For how long the session may be silent.
    pub lease: Millis,
    /// In the answer to reports, where no poll of the session is open at this server: the highest number of a poll that it
    /// received, 0 for none. The newest poll of a worker behind a load balancer may be open at another server, which did not
    /// receive this call's `free`: the worker then opens another poll.
    pub poll: Option<u64>,
}

/// An attempt handed out.
#[derive(Debug, Clone)]
pub struct HandedOut {
    /// Its token.
    pub token: String,
    /// Which it is.
    pub id: AttemptId,
    /// Its task.
    pub task: Arc<Task>,
    /// Its parameters.
    pub params: Json,
    /// What the steps before its own returned, by their names, where there is something.
    pub results: Results,
}

/// The results of the steps before one, as an attempt is handed them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Results {
    /// None of them returned anything.
    None,
    /// These.
    These(Json),
    /// More than [`RESULTS_BYTES_MAX`]: the attempt goes without them, and is told so.
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

/// What became of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportAnswer {
    /// Its token.
    pub token: String,
    /// What became of it.
    pub status: ReportStatus,
}

/// What became of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReportStatus {
    /// It is on disk.
    Accepted,
    /// It was accepted before.
    Duplicate,
    /// Too late: the attempt was given up, or another has taken over.
    Stale,
    /// No such attempt.
    Unknown,
    /// It cannot be understood.
    Invalid(String),
}

impl Engine {
    /// Hears a worker's call: settles its reports, or answers its poll once there is something for it.
    ///
    /// When the future is dropped (the connection went away) the poll counts as closed.
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
        let poll = {
            let mut sessions = self.sessions.lock();
            let local = sessions.get(call.session);
            local.poll.is_none().then_some(local.last_poll)
        };
        Ok(ExchangeAnswer { reports, lease, poll, ..ExchangeAnswer::default() })
    }
}

/// The idempotency key of an effect: the same over all attempts of an act.
#[must_use]
pub fn effect_key(task: &Task, key: ActKey) -> String {
    let direction = match key.direction {
        windlass_core::Direction::Forward => "forward",
        windlass_core::Direction::Rollback => "rollback",
    };
    format!("{}/{}/{}/{direction}", task.id, task.flow.steps[key.step].name, key.member)
}

/// The idempotency key of the effect that a rollback rolls back. The step for errors rolls back nothing of its own.
#[must_use]
pub fn rolled_back_key(task: &Task, key: ActKey) -> Option<String> {
    let has_one = key.direction == windlass_core::Direction::Rollback
        && task.flow.steps[key.step].role == windlass_core::Role::Plain;
    has_one.then(|| effect_key(task, ActKey { direction: windlass_core::Direction::Forward, ..key }))
}

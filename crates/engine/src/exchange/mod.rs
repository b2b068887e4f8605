//! The exchange: how a worker takes attempts, reports them and keeps its session.
//!
//! A call with reports is answered once they are on disk ([`reports`]). A call without is a poll ([`polls`]): it
//! is answered when there is something for the worker, which is handed out to it ([`handing_out`]).

mod handing_out;
mod holdings;
mod polls;
mod reports;

use std::sync::Arc;

use windlass_core::{ActKey, Json, Millis, Outcome, Task};

use crate::{
    Engine, EngineError, Progress,
    ports::{AttemptId, Now, SessionId, SessionRenewal, Wish, WorkerState},
    sessions::{LocalSession, Offers},
};

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

/// The largest answer, in bytes of parameters; what does not fit is handed out again.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// Bytes of log lines kept of one attempt.
pub const LOG_BYTES_MAX: usize = 64 << 10;

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
    pub wishes: Option<Vec<Wish>>,
    /// What it can take over all modules together.
    pub free: Option<u32>,
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
    /// Another attempt has taken over.
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
    /// When the store fails; the worker keeps its reports and calls again.
    pub async fn exchange(&self, call: Exchange, now: Now) -> Result<ExchangeAnswer, EngineError> {
        let is_poll = call.reports.is_empty();
        let lease = self.hear(&call, is_poll, now).await?;
        if !is_poll {
            let reports = self.settle_reports(call.session, call.reports, now).await?;
            self.dispatch(now).await?;
            return Ok(ExchangeAnswer { reports, lease, ..ExchangeAnswer::default() });
        }
        self.poll(call, lease, now).await
    }

    /// Takes note of a session and what it offers, and renews its lease.
    async fn hear(&self, call: &Exchange, is_poll: bool, now: Now) -> Result<Millis, EngineError> {
        let default = if call.attached { LEASE_ATTACHED } else { LEASE_DETACHED };
        let (lease, polls, worker) = {
            let mut sessions = self.sessions.lock();
            let session = sessions.get(call.session);
            let lease = match call.lease {
                Some(lease) => lease.clamp(*LEASE_RANGE.start(), *LEASE_RANGE.end()),
                None if session.lease == Millis(0) => default,
                None => session.lease,
            };
            session.lease = lease;
            session.attached = call.attached;
            session.seen_at = now.mono;
            let worker = session.hear_offers(call);
            (lease, is_poll || session.poll.is_some(), worker)
        };
        let silence = if call.attached && !polls { SILENCE_ATTACHED.min(lease) } else { lease };
        let renewal = SessionRenewal { session: call.session, lease: silence, lease_full: lease, worker };
        self.store.renew(renewal, now).await?;
        Ok(lease)
    }
}

impl LocalSession {
    /// Takes note of what the call offers. Gives what the store must know anew.
    fn hear_offers(&mut self, call: &Exchange) -> Option<WorkerState> {
        let mut said = None;
        if let Some(wishes) = &call.wishes
            && call.seq > self.offers.seq
        {
            let modules = || wishes.iter().map(|wish| &wish.module);
            if !modules().eq(self.worker.modules.iter()) {
                self.worker.modules = modules().cloned().collect();
                said = Some(());
            }
            self.offers = Offers { seq: call.seq, wishes: wishes.clone(), free: call.free };
        }
        if let Some(worker) = &call.worker
            && (worker.name != self.worker.name
                || worker.host != self.worker.host
                || worker.version != self.worker.version)
        {
            let modules = std::mem::take(&mut self.worker.modules);
            self.worker = WorkerState { modules, ..worker.clone() };
            said = Some(());
        }
        if self.worker.attached != call.attached {
            self.worker.attached = call.attached;
            said = Some(());
        }
        said.map(|()| self.worker.clone())
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

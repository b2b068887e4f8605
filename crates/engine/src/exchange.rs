//! The exchange: how a worker takes attempts, reports them and keeps its session.

use std::{collections::BTreeMap, sync::Arc};

use futures_channel::oneshot;
use windlass_core::{
    Act, ActKey, Attempt, Command, Failure, Json, Millis, Outcome, Rejection, Report, Task, is_to_stop,
};

use crate::{
    Engine, EngineError, Notice, Progress,
    inbox::{Item, Reply},
    ports::{Adoption, AttemptId, Change, LogLine, Now, SessionId, SessionRenewal, Wish, WorkerState},
    sessions::{Given, LocalSession, Offers, Poll},
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

    /// Settles reports, each for itself, in one commit.
    async fn settle_reports(
        &self,
        session: SessionId,
        reports: Vec<WorkerReport>,
        now: Now,
    ) -> Result<Vec<ReportAnswer>, EngineError> {
        let mut answers = Vec::with_capacity(reports.len());
        let mut items = Vec::with_capacity(reports.len());
        let mut places = Vec::with_capacity(reports.len());
        for report in reports {
            let id = self.tokens.read(&report.token);
            let status = match (id, report.said) {
                (None, _) => Some(ReportStatus::Unknown),
                (Some(_), Err(fault)) => Some(ReportStatus::Invalid(fault)),
                (Some(id), Ok(Said::Ended(outcome))) => {
                    let logs = self.cut_logs(session, &report.token, id, report.logs, now);
                    let attempt = Attempt { key: id.key, number: id.attempt, started_at: None };
                    let command = Command::Report(Report { attempt, outcome });
                    places.push((answers.len(), id));
                    items.push(Item::Task { id: id.task, command, claim: Some(id.claim), logs });
                    None
                }
                (Some(id), Ok(Said::Running(progress))) => {
                    let logs = self.cut_logs(session, &report.token, id, report.logs, now);
                    let status = self.note_progress(id, progress, now).await?;
                    if status == ReportStatus::Accepted && !logs.is_empty() {
                        places.push((answers.len(), id));
                        items.push(Item::Change(Change::Logs(logs)));
                        None
                    } else {
                        Some(status)
                    }
                }
                (Some(id), Ok(Said::Declined)) => {
                    self.store.release(session, id, now).await?;
                    self.sessions.lock().get(session).given.remove(&report.token);
                    Some(ReportStatus::Accepted)
                }
            };
            answers
                .push(ReportAnswer { token: report.token, status: status.unwrap_or(ReportStatus::Unknown) });
        }
        if items.is_empty() {
            return Ok(answers);
        }
        let replies = self.inbox.decide(items).await?;
        let mut sessions = self.sessions.lock();
        let session = sessions.get(session);
        for ((place, id), reply) in places.into_iter().zip(replies) {
            let answer = &mut answers[place];
            let ended = !matches!(reply, Reply::Done);
            answer.status = report_status(&reply);
            if ended {
                session.given.remove(&answer.token);
                session.cancels.remove(&answer.token);
                self.forget_progress(id);
            }
        }
        Ok(answers)
    }

    /// The lines of an attempt that are still within its limit.
    fn cut_logs(
        &self,
        session: SessionId,
        token: &str,
        id: AttemptId,
        lines: Vec<String>,
        now: Now,
    ) -> Vec<LogLine> {
        if lines.is_empty() {
            return Vec::new();
        }
        let mut sessions = self.sessions.lock();
        let Some(given) = sessions.get(session).given.get_mut(token) else { return Vec::new() };
        let line = |line: &str| LogLine {
            task: id.task,
            key: id.key,
            attempt: id.attempt,
            at: now.wall,
            line: line.into(),
        };
        let mut kept = Vec::new();
        for text in lines {
            if given.log_bytes > LOG_BYTES_MAX {
                break;
            }
            given.log_bytes += text.len() + 1;
            if given.log_bytes > LOG_BYTES_MAX {
                kept.push(line("(more lines were dropped: an attempt keeps 64 KiB)"));
            } else {
                kept.push(line(&text));
            }
        }
        kept
    }

    /// Keeps the progress of a running attempt, if it is current.
    async fn note_progress(
        &self,
        id: AttemptId,
        progress: Option<Progress>,
        now: Now,
    ) -> Result<ReportStatus, EngineError> {
        let Some(loaded) = self.store.load(&[id.task]).await?.pop().flatten() else {
            return Ok(ReportStatus::Unknown);
        };
        let Some(act) = loaded.task.act(id.key) else { return Ok(ReportStatus::Unknown) };
        let newer = loaded.claims.iter().any(|claim| claim.key == id.key && claim.number > id.claim);
        if act.attempt != id.attempt || newer || !Act::is_open(act) {
            return Ok(ReportStatus::Stale);
        }
        if let Some(progress) = progress {
            let notice = Notice::Progressed {
                key: id.key,
                attempt: id.attempt,
                at: now.wall,
                progress: progress.clone(),
            };
            self.progress
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .insert((id.task, id.key), (id.attempt, progress));
            self.feed.tell(id.task, &notice);
        }
        Ok(ReportStatus::Accepted)
    }

    fn forget_progress(&self, id: AttemptId) {
        let mut progress = self.progress.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if !progress.is_empty() {
            progress.remove(&(id.task, id.key));
        }
    }

    /// Answers a poll once there is something for it, or its time is over.
    async fn poll(&self, call: Exchange, lease: Millis, now: Now) -> Result<ExchangeAnswer, EngineError> {
        let empty = ExchangeAnswer { lease, ..ExchangeAnswer::default() };
        let again = {
            let mut sessions = self.sessions.lock();
            let session = sessions.get(call.session);
            if call.seq <= session.last_poll {
                // A late copy of a poll that was answered or replaced.
                return Ok(empty);
            }
            session.last_poll = call.seq;
            if let Some(poll) = session.poll.take() {
                // Nobody reads it any more when its connection is gone.
                let _ = poll.answer.send(empty.clone());
            }
            call.holding.as_ref().map(|holding| session.compare(holding))
        };
        let mut answer = empty;
        if let Some(compared) = again {
            self.adopt(call.session, call.seq, compared.unknown, now).await?;
            answer.attempts = self.hand_again(call.session, call.seq, compared.missing).await?;
        }
        let (sender, receiver) = oneshot::channel();
        {
            let mut sessions = self.sessions.lock();
            answer.cancels = sessions.get(call.session).due_cancels(now);
            let wait = call.wait.min(WAIT_MAX).min(lease);
            let until = Millis(now.mono.0 + wait.0);
            sessions.wait(call.session, Poll { seq: call.seq, until, answer: sender });
        }
        let guard = PollGuard { engine: self, session: call.session, seq: call.seq };
        if answer.attempts.is_empty() && answer.cancels.is_empty() {
            self.dispatch(now).await?;
            if call.wait == Millis(0) {
                self.answer(call.session, ExchangeAnswer { lease, ..ExchangeAnswer::default() });
            }
        } else {
            self.answer(call.session, answer);
        }
        let answer = receiver.await.unwrap_or(ExchangeAnswer { lease, ..ExchangeAnswer::default() });
        drop(guard);
        if call.attached {
            self.sessions.lock().close(call.session);
        }
        Ok(answer)
    }

    /// Answers the open poll of a session. Tells whether there was one.
    pub(crate) fn answer(&self, session: SessionId, answer: ExchangeAnswer) -> bool {
        let poll = self.sessions.lock().find(session).and_then(|session| session.poll.take());
        poll.is_some_and(|poll| poll.answer.send(answer).is_ok())
    }

    /// A session holds attempts that this server did not give it: after a restart, or by another server.
    async fn adopt(
        &self,
        session: SessionId,
        seq: Seq,
        tokens: Vec<String>,
        now: Now,
    ) -> Result<(), EngineError> {
        let read = |token: String| self.tokens.read(&token).map(|id| (token, id));
        let named: Vec<(String, AttemptId)> = tokens.into_iter().filter_map(read).collect();
        if named.is_empty() {
            return Ok(());
        }
        let ids: Vec<AttemptId> = named.iter().map(|(_, id)| *id).collect();
        let adoptions = self.store.adopt(session, &ids, now).await?;
        let tasks = self.store.load(&ids.iter().map(|id| id.task).collect::<Vec<_>>()).await?;
        let mut sessions = self.sessions.lock();
        let session = sessions.get(session);
        for (((token, id), adoption), loaded) in named.into_iter().zip(adoptions).zip(tasks) {
            let stop = loaded.is_none_or(|loaded| is_to_stop(&loaded.task, id.key));
            if adoption == Adoption::Gone || stop {
                session.cancels.entry(token.clone()).or_default();
            }
            if adoption == Adoption::Held {
                session.given.insert(token, Given { id, seq, log_bytes: 0 });
            }
        }
        Ok(())
    }

    /// Attempts that were given to a session and did not reach it are given again, under the same token.
    async fn hand_again(
        &self,
        session: SessionId,
        seq: Seq,
        missing: Vec<(String, AttemptId)>,
    ) -> Result<Vec<HandedOut>, EngineError> {
        if missing.is_empty() {
            return Ok(Vec::new());
        }
        let tasks = self.store.load(&missing.iter().map(|(_, id)| id.task).collect::<Vec<_>>()).await?;
        let mut again = Vec::new();
        let mut sessions = self.sessions.lock();
        let local = sessions.get(session);
        for ((token, id), loaded) in missing.into_iter().zip(tasks) {
            let theirs = loaded.filter(|loaded| {
                loaded.claims.iter().any(|claim| {
                    claim.key == id.key
                        && claim.attempt == id.attempt
                        && claim.number == id.claim
                        && claim.session == session
                }) && !is_to_stop(&loaded.task, id.key)
            });
            match theirs {
                Some(loaded) => {
                    if let Some(given) = local.given.get_mut(&token) {
                        given.seq = seq;
                    }
                    let params = loaded.task.params_for(id.key);
                    again.push(HandedOut { token, id, task: loaded.task, params });
                }
                None => {
                    local.given.remove(&token);
                }
            }
        }
        Ok(again)
    }

    /// Hands ready attempts to polls that wait, the one that waits longest first.
    pub(crate) async fn dispatch(&self, now: Now) -> Result<(), EngineError> {
        let waiting = self.sessions.lock().waiting();
        for session in waiting {
            let wishes = self.sessions.lock().find(session).map(|local| {
                let (wishes, free) = local.room();
                (wishes.to_vec(), free, local.lease, local.last_poll)
            });
            let Some((wishes, free, lease, seq)) = wishes else { continue };
            let attempts = self.take(session, seq, &wishes, free, now).await?;
            if !attempts.is_empty() {
                let tokens: Vec<AttemptId> = attempts.iter().map(|attempt| attempt.id).collect();
                let answer = ExchangeAnswer { attempts, lease, ..ExchangeAnswer::default() };
                if !self.answer(session, answer) {
                    // The connection went away meanwhile: what nobody has seen goes back to its queue.
                    for id in tokens {
                        self.sessions.lock().get(session).given.remove(&self.tokens.seal(&id));
                        self.store.release(session, id, now).await?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Claims for a session what it can take.
    async fn take(
        &self,
        session: SessionId,
        seq: Seq,
        wishes: &[Wish],
        mut free: u32,
        now: Now,
    ) -> Result<Vec<HandedOut>, EngineError> {
        let mut claimed = Vec::new();
        // Begin with another module each time, so that none of a worker's modules starves.
        let first = usize::try_from(seq).unwrap_or(0) % wishes.len().max(1);
        for wish in wishes[first..].iter().chain(&wishes[..first]) {
            let wish = Wish { free: wish.free.min(free), ..wish.clone() };
            if wish.free > 0 {
                let got = self.store.claim(session, std::slice::from_ref(&wish), now).await?;
                free = free.saturating_sub(u32::try_from(got.len()).unwrap_or(u32::MAX));
                claimed.extend(got);
            }
        }
        if claimed.is_empty() {
            return Ok(Vec::new());
        }
        let tasks =
            self.store.load(&claimed.iter().map(|claimed| claimed.id.task).collect::<Vec<_>>()).await?;
        let (mut attempts, mut bytes) = (Vec::with_capacity(claimed.len()), 0);
        let (mut back, mut too_large) = (Vec::new(), Vec::new());
        {
            let mut sessions = self.sessions.lock();
            let local = sessions.get(session);
            for (claimed, loaded) in claimed.into_iter().zip(tasks) {
                let id = claimed.id;
                let Some(loaded) = loaded else { continue };
                let params = loaded.task.params_for(id.key);
                if params.as_str().len() > PARAMS_BYTES_MAX {
                    too_large.push(id);
                    continue;
                }
                bytes += params.as_str().len();
                if bytes > ANSWER_BYTES_MAX && !attempts.is_empty() {
                    back.push(id);
                    continue;
                }
                let token = self.tokens.seal(&id);
                local.given.insert(token.clone(), Given { id, seq, log_bytes: 0 });
                if !self.feed.is_idle() {
                    let worker = local.worker.name.clone();
                    let notice = Notice::Started { key: id.key, attempt: id.attempt, at: now.wall, worker };
                    self.feed.tell(id.task, &notice);
                }
                attempts.push(HandedOut { token, id, task: loaded.task, params });
            }
        }
        for id in back {
            self.store.release(session, id, now).await?;
        }
        self.refuse_too_large(too_large).await?;
        Ok(attempts)
    }

    /// Attempts whose parameters have grown beyond what may be handed out fail for good.
    async fn refuse_too_large(&self, ids: Vec<AttemptId>) -> Result<(), EngineError> {
        for id in ids {
            let failure = Failure::new(
                "its parameters have grown beyond 4 MiB: return less from the steps before",
                1,
                false,
            );
            let attempt = Attempt { key: id.key, number: id.attempt, started_at: None };
            let command = Command::Report(Report { attempt, outcome: Outcome::Failed(failure) });
            let item = Item::Task { id: id.task, command, claim: Some(id.claim), logs: Vec::new() };
            self.inbox.post(vec![item]);
        }
        Ok(())
    }

    /// Tells the session that has this attempt to stop it.
    pub(crate) fn cancel(&self, session: SessionId, id: &AttemptId, now: Now) {
        let token = self.tokens.seal(id);
        let cancels = {
            let mut sessions = self.sessions.lock();
            let Some(local) = sessions.find(session) else { return };
            local.cancels.entry(token).or_default();
            if local.poll.is_none() {
                return;
            }
            (local.due_cancels(now), local.lease)
        };
        let (cancels, lease) = cancels;
        self.answer(session, ExchangeAnswer { cancels, lease, ..ExchangeAnswer::default() });
    }
}

/// Closes a poll when its connection goes away.
struct PollGuard<'a> {
    engine: &'a Engine,
    session: SessionId,
    seq: Seq,
}

impl Drop for PollGuard<'_> {
    fn drop(&mut self) {
        if self.engine.sessions.lock().drop_poll(self.session, self.seq) {
            self.engine.timers.set();
        }
    }
}

/// What a session says it holds, against what it was given.
struct Compared {
    /// Not given by this server.
    unknown: Vec<String>,
    /// Given in an earlier poll and not held.
    missing: Vec<(String, AttemptId)>,
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

    fn compare(&mut self, holding: &[String]) -> Compared {
        let held: std::collections::HashSet<&str> = holding.iter().map(String::as_str).collect();
        let unknown = holding.iter().filter(|token| !self.given.contains_key(*token)).cloned().collect();
        let absent = self.given.iter().filter(|(token, _)| !held.contains(token.as_str()));
        let missing: BTreeMap<String, AttemptId> =
            absent.map(|(token, given)| (token.clone(), given.id)).collect();
        self.cancels.retain(|token, _| held.contains(token.as_str()));
        Compared { unknown, missing: missing.into_iter().collect() }
    }
}

fn report_status(reply: &Reply) -> ReportStatus {
    match reply {
        Reply::Task(_) | Reply::Done | Reply::Alarm(_) => ReportStatus::Accepted,
        Reply::Rejected(Rejection::Duplicate) => ReportStatus::Duplicate,
        Reply::Rejected(Rejection::UnknownAct) | Reply::Missing => ReportStatus::Unknown,
        _ => ReportStatus::Stale,
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

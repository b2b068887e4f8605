//! Reports: the states and ends of attempts.

use windlass_core::{ActState, Attempt, Command, Outcome, Rejection, Report};
use windlass_store::{AttemptId, Change, Loaded, Now, SessionId};

use super::{ReportAnswer, ReportStatus, Said, Tokens, WorkerReport, holdings::has_claim, logs::KeptLines};
use crate::{
    Engine, EngineError, Notice, Progress,
    deciding::inbox::{Item, Reply},
    exchange::sessions::LocalSession,
};

/// A report that must be decided.
struct Open {
    /// Its index among the reports.
    place: usize,
    id: AttemptId,
    /// The outcome of the attempt; `None` = it is running.
    outcome: Option<Outcome>,
    logs: Vec<String>,
}

/// A report that waits for the decision.
struct Waiting {
    place: usize,
    id: AttemptId,
    /// The attempt is running, and this number of bytes was counted for its log.
    counted: Option<usize>,
}

impl Engine {
    /// Settles reports, each separately, in one commit.
    pub(super) async fn settle_reports(
        &self,
        session: SessionId,
        reports: Vec<WorkerReport>,
        now: Now,
    ) -> Result<Vec<ReportAnswer>, EngineError> {
        let (mut answers, mut open) = (Vec::with_capacity(reports.len()), Vec::with_capacity(reports.len()));
        let mut declined = Vec::new();
        for (place, WorkerReport { token, said, logs }) in reports.into_iter().enumerate() {
            let status = match (self.tokens.read(&token), said) {
                (None, _) => ReportStatus::Unknown,
                (Some(id), Err(fault)) => {
                    if let Some(given) = self.sessions.lock().get(session).given.get_mut(&id) {
                        given.note_invalid(now);
                    }
                    ReportStatus::Invalid(fault)
                }
                (Some(id), Ok(Said::Ended(outcome))) => {
                    open.push(Open { place, id, outcome: Some(outcome), logs });
                    ReportStatus::Unknown
                }
                (Some(id), Ok(Said::Running(progress))) => {
                    let status = self.note_progress(session, id, progress, now).await?;
                    if status == ReportStatus::Accepted && !logs.is_empty() {
                        open.push(Open { place, id, outcome: None, logs });
                    }
                    status
                }
                (Some(id), Ok(Said::Declined)) => {
                    declined.push((place, id));
                    ReportStatus::Unknown
                }
            };
            answers.push(ReportAnswer { token, status });
        }
        for (place, status) in self.take_back(session, &declined, now).await? {
            answers[place].status = status;
        }
        if open.is_empty() {
            return Ok(answers);
        }
        let (items, waiting) = self.items(session, open, now);
        let replies = self.inbox.decide(items).await;
        let mut sessions = self.sessions.lock();
        let local = sessions.get(session);
        let replies = match replies {
            Ok(replies) => replies,
            Err(error) => {
                waiting.iter().for_each(|report| local.doubt(report.id, report.counted));
                return Err(error.into());
            }
        };
        let mut is_settled = true;
        for (report, reply) in waiting.into_iter().zip(replies) {
            let answer = &mut answers[report.place];
            if matches!(reply, Reply::Conflict) {
                is_settled = false;
                continue;
            }
            answer.status = report_status(&reply);
            if report.counted.is_none() {
                local.given.remove(&report.id);
                local.cancels.remove(&report.id);
            }
        }
        // No status expresses a conflict, so the worker must repeat all reports.
        if is_settled { Ok(answers) } else { Err(EngineError::Conflict) }
    }

    /// Releases attempts that a worker returns, each with its index among the reports. What the session has no claim of
    /// is stale: it has ended, was given up, or another worker has it.
    async fn take_back(
        &self,
        session: SessionId,
        declined: &[(usize, AttemptId)],
        now: Now,
    ) -> Result<Vec<(usize, ReportStatus)>, EngineError> {
        if declined.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<AttemptId> = declined.iter().map(|(_, id)| *id).collect();
        self.sessions.lock().get(session).declined.extend(&ids);
        let tasks = self.heads_of(&ids).await?;
        let mut statuses = Vec::with_capacity(declined.len());
        for (place, id) in declined {
            let status = match tasks.get(&id.task) {
                None => ReportStatus::Unknown,
                Some(loaded) if has_claim(loaded, session, id) => {
                    self.store.release(session, *id, None, now).await?;
                    ReportStatus::Accepted
                }
                Some(_) => ReportStatus::Stale,
            };
            self.sessions.lock().get(session).given.remove(id);
            statuses.push((*place, status));
        }
        Ok(statuses)
    }

    /// A worker that was given an attempt before this server started may report on it before it polls. An end needs no
    /// adoption; a report that an attempt is running means that its session has it.
    pub(super) async fn adopt_running(
        &self,
        session: SessionId,
        reports: &[WorkerReport],
        now: Now,
    ) -> Result<(), EngineError> {
        let goes_on = |report: &&WorkerReport| matches!(report.said, Ok(Said::Running(_)));
        let running: Vec<&WorkerReport> = reports.iter().filter(goes_on).collect();
        if running.is_empty() {
            return Ok(());
        }
        let unknown: Vec<&str> = {
            let mut sessions = self.sessions.lock();
            let given = &sessions.get(session).given;
            let is_given = |token: &str| Tokens::name(token).is_some_and(|id| given.contains_key(&id));
            running.iter().map(|report| report.token.as_str()).filter(|token| !is_given(token)).collect()
        };
        // Anybody can write a name; only the seal shows that the attempt was given to the session.
        let unknown = unknown.into_iter().filter_map(|token| self.tokens.read(token)).collect();
        self.adopt(session, unknown, false, now).await
    }

    /// The items to decide. Log lines are counted at once, so that concurrent reports do not use the same part of the
    /// limit.
    fn items(&self, session: SessionId, open: Vec<Open>, now: Now) -> (Vec<Item>, Vec<Waiting>) {
        let (mut items, mut waiting) = (Vec::with_capacity(open.len()), Vec::with_capacity(open.len()));
        let mut sessions = self.sessions.lock();
        let local = sessions.get(session);
        for Open { place, id, outcome, logs } in open {
            let given = local.given.get_mut(&id);
            let used = given.as_ref().map_or(0, |given| given.log_bytes);
            let kept = KeptLines::of(id, logs, used, now);
            match outcome {
                Some(outcome) => {
                    let attempt = Attempt { key: id.key, number: id.attempt, started_at: None };
                    let command = Command::Report(Report { attempt, outcome });
                    let logs = kept.lines;
                    items.push(Item::Task { id: id.task, command, claim: Some(id.claim), logs });
                    waiting.push(Waiting { place, id, counted: None });
                }
                None => {
                    // The log of an attempt that this session does not have is not extended.
                    let Some(given) = given else { continue };
                    given.log_bytes += kept.bytes;
                    items.push(Item::Change(Change::Logs(kept.lines)));
                    waiting.push(Waiting { place, id, counted: Some(kept.bytes) });
                }
            }
        }
        (items, waiting)
    }

    /// Records the progress of a running attempt, if the attempt is current.
    async fn note_progress(
        &self,
        session: SessionId,
        id: AttemptId,
        progress: Option<Progress>,
        now: Now,
    ) -> Result<ReportStatus, EngineError> {
        // Recorded before the task is read: a later end of the attempt then finds the progress and removes it.
        if let Some(progress) = &progress {
            self.progress.note(&id, progress.clone());
        }
        let loaded = self.store.load_heads(&[id.task]).await?.pop().flatten();
        let names_parked = self.sessions.lock().find(session).is_some_and(|local| local.parked.contains(&id));
        let status = match &loaded {
            None => ReportStatus::Unknown,
            Some(loaded) => running_status(loaded, session, id, names_parked),
        };
        match progress {
            Some(_) if status != ReportStatus::Accepted => self.progress.forget(&id),
            Some(progress) => {
                let notice = Notice::Progressed { key: id.key, attempt: id.attempt, at: now.wall, progress };
                self.feed.tell(id.task, &notice);
            }
            None => {}
        }
        Ok(status)
    }
}

impl LocalSession {
    /// A report could not be written, and its worker repeats it. The store may have gone back to the state on disk,
    /// which may lack the claim: when the worker names the attempt again, the store adopts it again.
    fn doubt(&mut self, id: AttemptId, counted: Option<usize>) {
        match counted {
            Some(bytes) => {
                if let Some(given) = self.given.get_mut(&id) {
                    given.log_bytes = given.log_bytes.saturating_sub(bytes);
                }
            }
            None => {
                self.given.remove(&id);
            }
        }
    }
}

/// The reply to a report that an attempt is running in this session. An attempt kept by a pause is running only if the
/// worker had started it before; no worker may start it now.
fn running_status(loaded: &Loaded, session: SessionId, id: AttemptId, names_parked: bool) -> ReportStatus {
    let Some(act) = loaded.task.act(id.key) else { return ReportStatus::Unknown };
    // A queue message that reached two workers counts for the first one. A message that was sent again counts for none.
    let is_under_another = loaded
        .claims
        .iter()
        .any(|claim| claim.key == id.key && (claim.number != id.claim || claim.session != session));
    let is_open = act.state == ActState::Ready || (act.state == ActState::Parked && names_parked);
    let is_current = act.attempt == id.attempt && is_open;
    if is_current && !is_under_another { ReportStatus::Accepted } else { ReportStatus::Stale }
}

fn report_status(reply: &Reply) -> ReportStatus {
    match reply {
        Reply::Task(_) | Reply::Done | Reply::Alarm(_) => ReportStatus::Accepted,
        Reply::Rejected(Rejection::Duplicate) => ReportStatus::Duplicate,
        Reply::Rejected(Rejection::UnknownAct) | Reply::Missing | Reply::Damaged(_) => ReportStatus::Unknown,
        _ => ReportStatus::Stale,
    }
}

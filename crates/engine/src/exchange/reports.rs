//! Reports: what became of attempts.

use windlass_core::{Act, Attempt, Command, Rejection, Report};

use super::{LOG_BYTES_MAX, ReportAnswer, ReportStatus, Said, WorkerReport};
use crate::{
    Engine, EngineError, Notice, Progress,
    inbox::{Item, Reply},
    ports::{AttemptId, Change, LogLine, Now, SessionId},
};

impl Engine {
    /// Settles reports, each for itself, in one commit.
    pub(super) async fn settle_reports(
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
}

fn report_status(reply: &Reply) -> ReportStatus {
    match reply {
        Reply::Task(_) | Reply::Done | Reply::Alarm(_) => ReportStatus::Accepted,
        Reply::Rejected(Rejection::Duplicate) => ReportStatus::Duplicate,
        Reply::Rejected(Rejection::UnknownAct) | Reply::Missing => ReportStatus::Unknown,
        _ => ReportStatus::Stale,
    }
}

//! Results that come over a broker, from modules that cannot call the server.

use std::{collections::BTreeSet, sync::Arc};

use windlass_store::{AttemptId, FOREVER, Loaded, Now, PollState, SessionId, SessionRenewal, WorkerState};

use crate::{
    Engine, EngineError,
    exchange::{HandedOut, ReportAnswer, Said, WorkerReport},
};

impl Engine {
    /// The attempt of a token, as it was handed out; `None` if the attempt is over or the token is not from this store.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn attempt(&self, token: &str) -> Result<Option<HandedOut>, EngineError> {
        let Some(id) = self.tokens.read(token) else { return Ok(None) };
        let loaded = self.store.load(&[id.task]).await?.pop().flatten();
        let is_current = |loaded: &Loaded| loaded.task.has_ready(id.key, id.attempt);
        Ok(loaded.filter(is_current).map(|loaded| self.handed_out(id, &loaded)))
    }

    /// Registers the session under which such attempts run. It never ends.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn begin_hearing_from_afar(&self, now: Now) -> Result<(), EngineError> {
        let worker =
            WorkerState { name: "modules that answer over a broker".into(), ..WorkerState::default() };
        let renewal = SessionRenewal {
            session: SessionId::AFAR,
            poll: PollState::Unknown,
            lease: FOREVER,
            lease_unpolled: FOREVER,
            worker: Some(Arc::new(worker)),
        };
        Ok(self.store.renew(vec![renewal], now).await?)
    }

    /// Processes reports of modules over a broker. The first report that an attempt is running takes the claim over
    /// from the queue publisher. A later one, or one under the token of an ended attempt, changes nothing. A repeated
    /// report is settled once.
    ///
    /// # Errors
    /// When the store fails; send the same reports again.
    pub async fn hear_from_afar(
        &self,
        reports: Vec<WorkerReport>,
        now: Now,
    ) -> Result<Vec<ReportAnswer>, EngineError> {
        let named = |running: bool| {
            let is_wanted = move |report: &&WorkerReport| match &report.said {
                Ok(Said::Running(_)) => running,
                Ok(Said::Ended(_)) => !running,
                _ => false,
            };
            reports.iter().filter(is_wanted).filter_map(|report| self.tokens.read(&report.token))
        };
        // An attempt with an end among these reports need not be adopted first.
        let ended: BTreeSet<AttemptId> = named(false).collect();
        let begun: Vec<AttemptId> = named(true).filter(|id| !ended.contains(id)).collect();
        if !begun.is_empty() {
            self.store.adopt(SessionId::AFAR, &begun, now).await?;
        }
        let answers = self.settle_reports(SessionId::AFAR, reports, now).await?;
        self.dispatch(now).await?;
        Ok(answers)
    }
}

//! The worker's loop: the only part of it that does input and output.

use std::{
    future::Future,
    pin::{Pin, pin},
    time::{Duration, Instant},
};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::{Sleep, sleep_until},
};
use tracing::{debug, error, info, warn};
use windlass_api::{ExchangeAnswer, Report, ReportAnswer, ReportStatus};

use super::{
    Failure, Outcome, Settings, Token,
    calls::{Call, Returned, Session, State},
    control::Word,
    drain::{Drain, LAST_CALLS_TIMEOUT},
    jobs::{Jobs, STOP_GRACE},
    lease::Lease,
    ledger::Ledger,
    line::Line,
    outbox::{Item, Kind, Outbox},
    registry::Registry,
    report::{self, Stop},
};
use crate::{Client, Error, pacing::Pacing};

/// How many words of jobs are heard in one turn.
const WORDS_MAX: usize = 1024;

/// A poll that comes back sooner than this and with nothing was not waited on.
const EMPTY_POLL_MIN: Duration = Duration::from_millis(20);

/// How many such polls in a row are taken for chance. After that the next one is held back, so that a server that
/// does not wait is not flooded.
const EMPTY_POLLS_MAX: u32 = 8;

/// The longest pause between two polls that find no server. A server that starts waits 300 ms for the workers to
/// say what they hold before it gives away what may be running: a worker must be back by then.
const RECONNECT_MAX: Duration = Duration::from_millis(250);

/// The alarm's time when nothing is due.
const FAR: Duration = Duration::from_secs(24 * 3600);

/// One session of a worker, from its first call to the end of its drain.
pub(super) struct Driver {
    settings: Settings,
    registry: Registry,
    session: Session,
    lease: Lease,
    ledger: Ledger,
    outbox: Outbox,
    jobs: Jobs,
    inbox: UnboundedReceiver<Word>,
    calls: FuturesUnordered<BoxFuture<'static, Returned>>,
    polls: Line,
    reports: Line,
    polls_open: usize,
    /// The last call was lost, and a person was told.
    server_away: bool,
    empty_polls: u32,
    drain: Option<Drain>,
}

impl Driver {
    pub(super) fn new(client: Client, settings: Settings, registry: Registry) -> Self {
        let (words, inbox) = unbounded_channel();
        Self {
            session: Session::new(client),
            lease: Lease::default(),
            ledger: Ledger::new(settings.concurrency),
            outbox: Outbox::default(),
            jobs: Jobs::new(words),
            inbox,
            calls: FuturesUnordered::new(),
            polls: Line::paced(Pacing::up_to(RECONNECT_MAX)),
            reports: Line::default(),
            polls_open: 0,
            server_away: false,
            empty_polls: 0,
            drain: None,
            settings,
            registry,
        }
    }

    /// Works until it was shut down and is drained, or is stopped.
    pub(super) async fn run(
        mut self,
        mut shutdown: Pin<&mut impl Future<Output = ()>>,
        mut stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), Error> {
        info!(session = self.session.id(), server = self.session.server(), "worker started");
        let mut alarm = pin!(sleep_until(Instant::now().into()));
        let mut words = Vec::new();
        loop {
            let now = Instant::now();
            self.do_what_is_due(now);
            self.start_jobs(now);
            self.make_calls(now);
            if self.is_drained(now) {
                info!("worker stopped");
                return Ok(());
            }
            arm(alarm.as_mut(), now, self.next_due());
            tokio::select! {
                _ = self.inbox.recv_many(&mut words, WORDS_MAX) => self.hear(&mut words),
                Some(returned) = self.calls.next(), if !self.calls.is_empty() => self.take_answer(returned)?,
                () = alarm.as_mut() => {}
                () = shutdown.as_mut(), if self.drain.is_none() => self.begin_drain(),
                () = stop.as_mut() => {
                    warn!(attempts = self.ledger.len(), "stopped at once: the attempts are left to other workers");
                    return Ok(());
                }
            }
        }
    }

    fn start_jobs(&mut self, now: Instant) {
        while let Some((token, attempt)) = self.ledger.start_next() {
            if let Some(handler) = self.registry.find(&attempt.module, &attempt.command) {
                self.jobs.start(token, attempt, handler.clone(), now);
            } else {
                let message = format!("this worker has no command {}.{}", attempt.module, attempt.command);
                self.finish(&token, Outcome::Failed(Failure::new(message)), vec![]);
            }
        }
    }

    fn hear(&mut self, words: &mut Vec<Word>) {
        for word in words.drain(..) {
            match word {
                Word::Ended(token, outcome) => {
                    if let Some(ended) = self.jobs.ended(token, outcome) {
                        self.finish(&ended.token, ended.outcome, ended.logs);
                    }
                }
                Word::News(token) => self.jobs.has_news(token, Instant::now()),
            }
        }
    }

    fn finish(&mut self, token: &Token, outcome: Outcome, logs: Vec<String>) {
        self.ledger.finish(token);
        self.push_report(token, outcome, logs);
    }

    /// Gives back what was not started.
    fn decline_waiting(&mut self) {
        for token in self.ledger.withdraw_all() {
            self.push_report(&token, Outcome::Declined, vec![]);
        }
    }

    fn do_what_is_due(&mut self, now: Instant) {
        for ended in self.jobs.do_what_is_due(now) {
            self.finish(&ended.token, ended.outcome, ended.logs);
        }
        for news in self.jobs.collect_news(now) {
            let report = report::of_news(&news.token, news.progress, news.logs);
            self.push(&news.token, Kind::Running, &report);
        }
        if self.lease.stop_at().is_some_and(|stop_at| stop_at <= now) && !self.ledger.is_empty() {
            self.lease_lapsed(now);
        }
        if self.drain.as_mut().is_some_and(|drain| drain.stops(now)) {
            warn!(attempts = self.jobs.len(), "the drain takes too long: stopping what runs");
            self.jobs.stop_all(Stop::Drained, now + STOP_GRACE);
        }
    }

    fn lease_lapsed(&mut self, now: Instant) {
        self.lease.lapse();
        warn!(
            attempts = self.jobs.len(),
            "no word from the server for two thirds of the lease: stopping what runs"
        );
        self.decline_waiting();
        let drop_at = self.lease.ends_at().map_or(now, |ends_at| ends_at.min(now + STOP_GRACE));
        self.jobs.stop_all(Stop::LeaseLapsed, drop_at);
    }

    /// When something is to be done that nobody will wake the loop for.
    fn next_due(&self) -> Option<Instant> {
        let lease = if self.ledger.is_empty() { None } else { self.lease.stop_at() };
        let poll = if self.wants_poll() { self.polls.not_before } else { None };
        let report = if self.outbox.wants_call() { self.reports.not_before } else { None };
        let drain = self.drain.as_ref().map(Drain::next_due);
        let quiet = self.drain.as_ref().filter(|_| self.is_settled()).and_then(Drain::quiet_at);
        [self.jobs.next_due(), lease, poll, report, drain, quiet].into_iter().flatten().min()
    }

    fn begin_drain(&mut self) {
        info!(running = self.jobs.len(), "draining: nothing more is taken");
        self.drain = Some(Drain::begin(Instant::now(), self.settings.drain_timeout));
        self.decline_waiting();
    }

    fn is_drained(&self, now: Instant) -> bool {
        let Some(drain) = &self.drain else { return false };
        if drain.is_over(now) {
            warn!(
                attempts = self.ledger.len(),
                reports = self.outbox.len(),
                "leaving with reports that no server took: the attempts are left to other workers"
            );
            return true;
        }
        drain.is_quiet(self.polls_open, now) && self.is_settled()
    }

    /// Whether nothing is held and nothing is left to say.
    fn is_settled(&self) -> bool {
        self.ledger.is_empty() && self.outbox.is_done()
    }

    fn make_calls(&mut self, now: Instant) {
        let free = if self.drain.is_some() { 0 } else { self.ledger.free() };
        let wants_poll = self.wants_poll();
        let Self { settings, registry, ledger, session, outbox, calls, .. } = self;
        let state = State { now, settings, registry, ledger, free };
        if self.reports.may_call(now) {
            while let Some(batch) = outbox.take_batch() {
                calls.push(session.report(&state, batch));
            }
        }
        if self.drain.as_mut().is_some_and(Drain::asks) {
            calls.push(session.poll(&state, Duration::ZERO, LAST_CALLS_TIMEOUT, Call::Farewell));
        }
        if wants_poll && self.polls.may_call(now) {
            self.polls_open += 1;
            let wait = self.lease.poll_wait();
            calls.push(session.poll(&state, wait, self.lease.poll_timeout(wait), Call::Poll));
        }
    }

    /// A poll is open at all times, for the lease; a drained worker needs none.
    fn wants_poll(&self) -> bool {
        self.polls_open == 0 && !(self.drain.is_some() && self.ledger.is_empty())
    }

    /// # Errors
    /// If the server refuses the first call of the session.
    fn take_answer(&mut self, returned: Returned) -> Result<(), Error> {
        let Returned { sent_at, answer, call } = returned;
        match &answer {
            Ok(answer) => self.renew_lease(sent_at, answer),
            Err(error) => self.session_in_doubt(error),
        }
        match (call, answer) {
            (Call::Reports(batch), Ok(answer)) => {
                self.reports.succeeded();
                self.polls.server_is_there();
                self.outbox.answered();
                for (item, answer) in batch.iter().zip(answer.reports) {
                    self.report_answered(item, answer);
                }
            }
            (Call::Reports(batch), Err(error)) => {
                self.outbox.put_back(batch);
                self.reports.failed(&error);
            }
            (Call::Farewell, answer) => {
                if let Some(drain) = &mut self.drain {
                    drain.heard(Instant::now());
                }
                if let Ok(answer) = answer {
                    self.take_work(answer);
                }
            }
            (Call::Poll, Ok(answer)) => {
                self.polls_open -= 1;
                self.polls.succeeded();
                self.reports.server_is_there();
                self.hold_back_empty_polls(sent_at, &answer);
                self.take_work(answer);
            }
            (Call::Poll, Err(error)) => {
                self.polls_open -= 1;
                if !self.lease.is_known() && !error.is_temporary() {
                    return Err(error);
                }
                self.polls.failed(&error);
            }
        }
        Ok(())
    }

    fn renew_lease(&mut self, sent_at: Instant, answer: &ExchangeAnswer) {
        if !self.lease.is_known() {
            info!(server = self.session.server(), lease_ms = answer.lease_ms, "connected");
        }
        self.server_away = false;
        self.lease.renew(sent_at, Duration::from_millis(answer.lease_ms));
    }

    fn session_in_doubt(&mut self, error: &Error) {
        let first = !std::mem::replace(&mut self.server_away, true);
        self.session.doubt();
        if error.is_temporary() && first {
            // Once per outage: it may last, and a person must see why nothing happens.
            warn!(%error, "a call was lost; calls are made again until the server answers");
        } else if error.is_temporary() {
            debug!(%error, "a call was lost and will be made again");
        } else {
            error!(%error, "the server refuses a call, which will be made again");
        }
    }

    fn take_work(&mut self, answer: ExchangeAnswer) {
        for attempt in answer.attempts {
            self.ledger.receive(attempt);
        }
        if self.drain.is_some() {
            self.decline_waiting();
        }
        for token in answer.cancels {
            let token: Token = token.into();
            if self.ledger.withdraw(&token) {
                self.push_report(
                    &token,
                    Outcome::Failed(Failure::new("cancelled before it was started")),
                    vec![],
                );
            } else {
                self.jobs.stop(&token, Stop::Cancelled, Instant::now() + STOP_GRACE);
            }
        }
    }

    fn hold_back_empty_polls(&mut self, sent_at: Instant, answer: &ExchangeAnswer) {
        let empty = answer.attempts.is_empty() && answer.cancels.is_empty();
        if !empty || sent_at.elapsed() >= EMPTY_POLL_MIN {
            self.empty_polls = 0;
            return;
        }
        self.empty_polls += 1;
        if self.empty_polls > EMPTY_POLLS_MAX {
            self.polls.not_before = Some(sent_at + EMPTY_POLL_MIN);
        }
    }

    fn push_report(&mut self, token: &Token, outcome: Outcome, logs: Vec<String>) {
        self.push(token, Kind::Final, &report::of_outcome(token, outcome, logs));
    }

    fn push(&mut self, token: &Token, kind: Kind, report: &Report) {
        match serde_json::value::to_raw_value(report) {
            Ok(report) => self.outbox.push(Item { token: token.clone(), kind, report }),
            // Strings, numbers and JSON always have a form as JSON: there is no way here.
            Err(error) => error!(%error, "a report cannot be written as JSON"),
        }
    }

    fn report_answered(&mut self, item: &Item, answer: ReportAnswer) {
        use ReportStatus::{Accepted, Duplicate, Invalid, Stale, Unknown};
        match (item.kind, answer.status) {
            (Kind::Running, Accepted | Duplicate) => {}
            (Kind::Running, Stale | Unknown) => {
                // Another has the attempt by now, or nobody wants it any more.
                self.jobs.stop(&item.token, Stop::Cancelled, Instant::now() + STOP_GRACE);
            }
            (Kind::Running, Invalid) => debug!(detail = answer.detail, "the server does not take a notice"),
            (Kind::Final, Invalid) => {
                let detail = answer.detail.unwrap_or_else(|| "no reason given".to_owned());
                let failure = Failure::permanent(format!("the server does not take the report: {detail}"));
                let report = report::of_outcome(&item.token, Outcome::Failed(failure), vec![]);
                self.push(&item.token, Kind::Replacement, &report);
            }
            (Kind::Replacement, Invalid) => {
                error!(
                    detail = answer.detail,
                    "the server takes no report of an attempt: it is left to its lease"
                );
                self.ledger.settle(&item.token);
            }
            (Kind::Final | Kind::Replacement, status) => {
                if matches!(status, Stale | Unknown) {
                    debug!(?status, "a report came too late");
                }
                self.ledger.settle(&item.token);
            }
        }
    }
}

/// Sets the alarm to the earlier of its time and `due`. An alarm that is too early costs one turn of the loop;
/// setting it anew for every attempt would cost more.
fn arm(mut alarm: Pin<&mut Sleep>, now: Instant, due: Option<Instant>) {
    let due = due.unwrap_or(now + FAR);
    if due < alarm.deadline().into_std() || alarm.is_elapsed() {
        alarm.as_mut().reset(due.into());
    }
}

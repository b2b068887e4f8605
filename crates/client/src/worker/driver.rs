//! The worker's loop: handles the input from the server, the feed, the jobs and the clock, one at a time.
//! Only the loop and [`Link`], which makes the calls, do input and output.

mod leadership;
mod taking;

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::{Sleep, sleep_until},
};
use tracing::{debug, error, info, warn};
use windlass_api::{ExchangeAnswer, Report, ReportAnswer, ReportStatus};

use super::{
    Failure, Outcome, Settings, Token,
    calls::{Call, Returned, State},
    control::Word,
    counterpart::Counterpart,
    drain::Drain,
    feed::Feed,
    jobs::{Jobs, STOP_GRACE},
    ledger::Ledger,
    link::Link,
    outbox::{Item, Kind, Outbox},
    registry::Registry,
    report::{self, Stop},
};
use crate::{Error, Term};

/// The most messages of jobs handled in one turn.
const WORDS_MAX: usize = 1024;

/// The alarm's delay when nothing is due.
const FAR: Duration = Duration::from_secs(24 * 3600);

/// One session of a worker, from its first call to the end of its drain. It combines the calls ([`Link`]),
/// the claimed attempts ([`Ledger`]), the running handlers ([`Jobs`]) and the unsent reports ([`Outbox`]).
pub(super) struct Driver {
    settings: Settings,
    registry: Arc<Registry>,
    link: Link,
    /// The source of attempts other than the server; with it, the server sends none itself.
    feed: Option<Box<dyn Feed>>,
    ledger: Ledger,
    outbox: Outbox,
    jobs: Jobs,
    inbox: UnboundedReceiver<Word>,
    drain: Option<Drain>,
    /// The leadership without which the worker must not work; none = it needs none.
    term: Option<Term>,
}

/// Where reports go, and where attempts come from.
pub(super) struct Ends {
    pub(super) counterpart: Box<dyn Counterpart>,
    /// None = the server itself sends them.
    pub(super) feed: Option<Box<dyn Feed>>,
}

impl Driver {
    pub(super) fn new(settings: Settings, registry: Arc<Registry>, ends: Ends, term: Option<Term>) -> Self {
        let (words, inbox) = unbounded_channel();
        let Ends { counterpart, feed } = ends;
        Self {
            link: Link::new(counterpart),
            feed,
            ledger: Ledger::new(settings.concurrency),
            outbox: Outbox::default(),
            jobs: Jobs::new(words, term.clone()),
            inbox,
            drain: None,
            term,
            settings,
            registry,
        }
    }

    /// Works until it is shut down and drained, or stopped.
    pub(super) async fn run(
        mut self,
        mut shutdown: Pin<&mut impl Future<Output = ()>>,
        mut stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), Error> {
        info!(session = self.link.session(), server = self.link.server(), "worker started");
        let mut alarm = pin!(sleep_until(Instant::now().into()));
        let mut words = Vec::new();
        loop {
            let now = Instant::now();
            // First: a process that was stopped for some time must not start anything.
            self.mind_leadership(now);
            self.do_what_is_due(now);
            self.start_jobs(now);
            self.make_calls(now);
            if self.is_drained(now) {
                if let Some(feed) = self.feed.take() {
                    feed.close().await;
                }
                info!("worker stopped");
                return Ok(());
            }
            arm(alarm.as_mut(), now, self.next_due());
            tokio::select! {
                _ = self.inbox.recv_many(&mut words, WORDS_MAX) => self.hear(&mut words),
                Some(returned) = self.link.returned() => self.take_answer(returned)?,
                attempts = taking::arrived(&mut self.feed) => self.take_up(attempts),
                () = alarm.as_mut() => {}
                () = leadership::at_risk(self.term.as_ref()) => {}
                () = shutdown.as_mut(), if self.drain.is_none() => self.begin_drain(),
                () = stop.as_mut() => {
                    warn!(attempts = self.ledger.len(), "stopped at once; other workers will claim the attempts");
                    return Ok(());
                }
            }
        }
    }

    fn start_jobs(&mut self, now: Instant) {
        while let Some((token, attempt)) = self.ledger.start_next() {
            if let Some(handler) = self.registry.find(&attempt.module, &attempt.command) {
                let handler = match &self.feed {
                    Some(feed) => feed.handler(&token, handler.clone()),
                    None => handler.clone(),
                };
                self.jobs.start(token, attempt, handler, now);
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

    /// Returns the attempts that were not started.
    fn decline_waiting(&mut self) {
        for token in self.ledger.decline_all() {
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
        self.link.read_token_if_due(now);
        if self.link.lease.stop_at().is_some_and(|stop_at| stop_at <= now) && !self.ledger.is_empty() {
            self.lease_lapsed(now);
        }
        if self.drain.as_mut().is_some_and(|drain| drain.stops(now)) {
            warn!(attempts = self.jobs.len(), "the drain takes too long; stopping the running attempts");
            self.jobs.stop_all(Stop::Drained, now + STOP_GRACE);
        }
    }

    fn lease_lapsed(&mut self, now: Instant) {
        self.link.lease.lapse();
        warn!(
            attempts = self.jobs.len(),
            "no answer from the server for two thirds of the lease; stopping the running attempts"
        );
        self.decline_waiting();
        let drop_at = self.link.lease.ends_at().map_or(now, |ends_at| ends_at.min(now + STOP_GRACE));
        self.jobs.stop_all(Stop::LeaseLapsed, drop_at);
    }

    /// The next time at which something is due without another event.
    fn next_due(&self) -> Option<Instant> {
        let lease = if self.ledger.is_empty() { None } else { self.link.lease.stop_at() };
        let poll = if self.wants_poll() { self.link.poll_due() } else { None };
        let report = if self.outbox.wants_call() { self.link.report_due() } else { None };
        let drain = self.drain.as_ref().map(Drain::next_due);
        let quiet = self.drain.as_ref().filter(|_| self.is_settled()).and_then(Drain::quiet_at);
        [self.jobs.next_due(), lease, poll, report, drain, quiet, self.link.token_due()]
            .into_iter()
            .flatten()
            .min()
    }

    fn begin_drain(&mut self) {
        info!(running = self.jobs.len(), "draining; the worker accepts no more attempts");
        self.drain = Some(Drain::begin(Instant::now(), self.settings.drain_timeout));
        self.decline_waiting();
    }

    fn is_drained(&self, now: Instant) -> bool {
        let Some(drain) = &self.drain else { return false };
        if drain.is_over(now) {
            warn!(
                attempts = self.ledger.len(),
                reports = self.outbox.len(),
                "exiting with reports that no server has accepted; other workers will claim the attempts"
            );
            return true;
        }
        drain.is_quiet(self.link.polls.count(), now) && self.is_settled()
    }

    /// Whether no attempt is claimed and no report is unsent.
    fn is_settled(&self) -> bool {
        self.ledger.is_empty() && self.outbox.is_done()
    }

    fn make_calls(&mut self, now: Instant) {
        let mut free = if self.drain.is_some() { 0 } else { self.ledger.free() };
        if let Some(feed) = &mut self.feed {
            feed.want(std::mem::take(&mut free));
        }
        let wants_poll = self.wants_poll();
        let Self { settings, registry, ledger, link, outbox, drain, .. } = self;
        let state = State { now, settings, registry, ledger, free };
        link.report(&state, outbox);
        if let Some(drain) = drain
            && drain.asks()
            && !link.say_farewell(&state)
        {
            drain.heard(now);
        }
        if wants_poll {
            link.poll(&state);
        }
    }

    /// A poll must always be open, for the lease. A drained worker needs none.
    fn wants_poll(&self) -> bool {
        !(self.drain.is_some() && self.ledger.is_empty())
    }

    /// # Errors
    /// If the server refuses the first call of the session.
    fn take_answer(&mut self, returned: Returned) -> Result<(), Error> {
        let returned = self.link.unless_refused(returned)?;
        self.link.note(&returned);
        let returned_poll = matches!(returned.call, Call::Poll(_));
        match (returned.call, returned.answer) {
            (Call::Reports(batch), Ok(answer)) => {
                self.outbox.answered();
                for (item, answer) in batch.iter().zip(answer.reports) {
                    self.report_answered(item, answer);
                }
            }
            (Call::Reports(batch), Err(_)) => self.outbox.put_back(batch),
            (Call::Farewell, answer) => {
                if let Some(drain) = &mut self.drain {
                    drain.heard(Instant::now());
                }
                if let Ok(answer) = answer {
                    self.take_work(answer);
                }
            }
            (Call::Poll(_), Ok(answer)) => self.take_work(answer),
            (Call::Poll(_), Err(_)) => {}
        }
        if returned_poll && self.link.polls.has_overlapped() {
            self.ledger.forget_settled(self.link.polls.oldest());
        }
        Ok(())
    }

    fn take_work(&mut self, answer: ExchangeAnswer) {
        for attempt in answer.attempts {
            self.ledger.receive(attempt);
        }
        if self.drain.is_some() {
            self.decline_waiting();
        } else if self.link.polls.has_overlapped() {
            // Polls at several servers offered the same slots. Other workers may have a free one.
            for token in self.ledger.decline_excess() {
                self.push_report(&token, Outcome::Declined, vec![]);
            }
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

    fn push_report(&mut self, token: &Token, outcome: Outcome, logs: Vec<String>) {
        self.push(token, Kind::Final, &report::of_outcome(token, outcome, logs));
    }

    fn push(&mut self, token: &Token, kind: Kind, report: &Report) {
        match self.link.write(report, kind) {
            Ok(Some(report)) => self.outbox.push(Item { token: token.clone(), kind, report }),
            Ok(None) if kind == Kind::Running => {}
            Ok(None) => {
                self.ledger.settle(token);
                self.give_back(token);
            }
            // Strings, numbers and JSON can always be serialized: this is unreachable.
            Err(error) => error!(%error, "a report cannot be written as JSON"),
        }
    }

    fn report_answered(&mut self, item: &Item, answer: ReportAnswer) {
        use ReportStatus::{Accepted, Duplicate, Invalid, Stale, Unknown};
        match (item.kind, answer.status) {
            (Kind::Taking, Accepted) => self.taken(&item.token),
            (Kind::Taking, status) => {
                debug!(
                    ?status,
                    detail = answer.detail,
                    "received a message for an attempt that is not this worker's"
                );
                self.ledger.not_taken(&item.token);
                self.settled(&item.token);
            }
            (Kind::Running, Accepted | Duplicate) => {}
            (Kind::Running, Stale | Unknown) => {
                // Another worker has claimed the attempt, or nothing needs it any more.
                self.jobs.stop(&item.token, Stop::Cancelled, Instant::now() + STOP_GRACE);
            }
            (Kind::Running, Invalid) => {
                debug!(detail = answer.detail, "the server refused a progress report")
            }
            (Kind::Final, Invalid) => {
                let detail = answer.detail.unwrap_or_else(|| "no reason given".to_owned());
                let failure = Failure::permanent(format!("the server refused the report: {detail}"));
                let report = report::of_outcome(&item.token, Outcome::Failed(failure), vec![]);
                self.push(&item.token, Kind::Replacement, &report);
            }
            (Kind::Replacement, Invalid) => {
                error!(
                    detail = answer.detail,
                    "the server refused all reports of an attempt; its lease will run out"
                );
                self.settle(&item.token);
            }
            (Kind::Final | Kind::Replacement, status) => {
                if matches!(status, Stale | Unknown) {
                    debug!(?status, "a report came too late");
                }
                self.settle(&item.token);
            }
        }
    }
}

/// Sets the alarm to the earlier of its time and `due`. An alarm that fires too early costs one turn of the
/// loop; resetting it for every attempt would cost more.
fn arm(mut alarm: Pin<&mut Sleep>, now: Instant, due: Option<Instant>) {
    let due = due.unwrap_or(now + FAR);
    if due < alarm.deadline().into_std() || alarm.is_elapsed() {
        alarm.as_mut().reset(due.into());
    }
}

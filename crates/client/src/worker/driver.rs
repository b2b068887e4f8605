//! The worker's loop: the only part of it that does input and output.

use std::{
    collections::{BTreeSet, HashMap},
    future::Future,
    panic::AssertUnwindSafe,
    pin::{Pin, pin},
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::AbortHandle,
    time::{Sleep, sleep_until},
};
use tracing::{debug, error, info, warn};
use windlass_api::{Attempt, ExchangeAnswer, ReportAnswer, ReportStatus};

use super::{
    Failure, Job, Outcome, Settings, Token,
    calls::{Call, Returned, Session, State},
    control::{JobControl, Word},
    lease::Lease,
    ledger::Ledger,
    outbox::{Item, Kind, Outbox},
    registry::Registry,
    report::{self, Stop},
};
use crate::{Client, Error, pacing::Pacing};

/// How long a handler may take to end after it was told to: a module's process gets 5 s between SIGTERM and
/// SIGKILL.
const STOP_GRACE: Duration = Duration::from_secs(6);

/// How long log lines and progress may wait for more of them. A job shorter than this sends its log with its
/// report, at no cost.
const NEWS_INTERVAL: Duration = Duration::from_millis(200);

/// How many words of jobs are heard in one turn.
const WORDS_MAX: usize = 1024;

/// A poll that comes back sooner than this and with nothing was not waited on.
const EMPTY_POLL_MIN: Duration = Duration::from_millis(20);

/// How many such polls in a row are taken for chance. After that the next one is held back, so that a server that
/// does not wait is not flooded.
const EMPTY_POLLS_MAX: u32 = 8;

/// How long the last reports may take after everything has ended.
const LAST_REPORTS_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a drained worker waits for a poll that was open when the drain began.
const OLD_POLL_TIMEOUT: Duration = Duration::from_millis(250);

/// Longer than any attempt.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// One session of a worker, from its first call to the end of its drain.
pub(super) struct Driver {
    settings: Settings,
    registry: Registry,
    session: Session,
    lease: Lease,
    ledger: Ledger,
    outbox: Outbox,
    jobs: HashMap<Token, RunningJob>,
    /// When to do something about a job: stop it, or drop it if it was stopped. One entry per job.
    dues: BTreeSet<(Instant, Token)>,
    /// The jobs that have something to say.
    news: Vec<Token>,
    /// When it is collected.
    news_due: Option<Instant>,
    inbox: UnboundedReceiver<Word>,
    words: UnboundedSender<Word>,
    calls: FuturesUnordered<BoxFuture<'static, Returned>>,
    polls: Line,
    reports: Line,
    polls_open: usize,
    empty_polls: u32,
    drain: Option<Drain>,
}

/// How one kind of call goes.
#[derive(Debug, Default)]
struct Line {
    pacing: Pacing,
    /// No call before this.
    not_before: Option<Instant>,
}

impl Line {
    fn may_call(&self, now: Instant) -> bool {
        self.not_before.is_none_or(|not_before| not_before <= now)
    }

    fn succeeded(&mut self) {
        self.pacing.succeeded();
        self.not_before = None;
    }
}

/// A drain that has begun.
#[derive(Debug)]
struct Drain {
    /// When what still runs is stopped; none once that is done.
    stop_at: Option<Instant>,
    /// When the worker leaves, whatever is not done.
    leave_at: Instant,
    /// Whether the server was asked to give nothing more.
    asked: bool,
    /// When the server answered that, or could not be reached.
    heard_at: Option<Instant>,
}

/// A handler at work.
struct RunningJob {
    control: Arc<JobControl>,
    task: AbortHandle,
    due: Instant,
    timeout: Duration,
    stop: Option<Stop>,
}

impl Drop for RunningJob {
    /// Nothing runs on that nobody waits for. After the handler has ended this does nothing.
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Whether the loop goes on.
#[derive(Debug, PartialEq, Eq)]
enum Turn {
    Again,
    Done,
}

impl Driver {
    pub(super) fn new(client: Client, settings: Settings, registry: Registry) -> Self {
        let (words, inbox) = unbounded_channel();
        Self {
            session: Session::new(client),
            lease: Lease::default(),
            ledger: Ledger::new(settings.concurrency),
            outbox: Outbox::default(),
            jobs: HashMap::new(),
            dues: BTreeSet::new(),
            news: Vec::new(),
            news_due: None,
            inbox,
            words,
            calls: FuturesUnordered::new(),
            polls: Line::default(),
            reports: Line::default(),
            polls_open: 0,
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
            if self.is_drained(now) == Turn::Done {
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

    // ---- attempts -------------------------------------------------------------------------------------------

    fn start_jobs(&mut self, now: Instant) {
        while let Some((token, attempt)) = self.ledger.start_next() {
            self.start_job(token, attempt, now);
        }
    }

    fn start_job(&mut self, token: Token, attempt: Attempt, now: Instant) {
        let Some(handler) = self.registry.find(&attempt.module, &attempt.command).cloned() else {
            let message = format!("this worker has no command {}.{}", attempt.module, attempt.command);
            self.ledger.finish(&token);
            self.push_report(&token, Outcome::Failed(Failure::new(message)), vec![]);
            return;
        };
        let timeout = Duration::from_millis(attempt.timeout_ms);
        let due = now + timeout.min(FAR);
        let control = Arc::new(JobControl::new(token.clone(), self.words.clone()));
        let job = Job::new(attempt, control.clone());
        let words = self.words.clone();
        let name = token.clone();
        let work = async move {
            // What a handler leaves behind when it panics is dropped with it: nobody looks at it afterwards.
            let ended = AssertUnwindSafe(async move { handler.run(job).await }).catch_unwind().await;
            let outcome = ended.unwrap_or_else(|panic| Outcome::Failed(Failure::of_panic(&*panic)));
            // Without a driver there is nobody to report to.
            let _ = words.send(Word::Ended(name, outcome));
        };
        let task = tokio::spawn(work).abort_handle();
        self.dues.insert((due, token.clone()));
        self.jobs.insert(token, RunningJob { control, task, due, timeout, stop: None });
    }

    fn hear(&mut self, words: &mut Vec<Word>) {
        for word in words.drain(..) {
            match word {
                Word::Ended(token, outcome) => self.job_ended(&token, outcome),
                Word::News(token) => {
                    self.news.push(token);
                    self.news_due.get_or_insert_with(|| Instant::now() + NEWS_INTERVAL);
                }
            }
        }
    }

    fn job_ended(&mut self, token: &Token, outcome: Outcome) {
        if let Some(job) = self.jobs.remove(token) {
            self.finish_job(token, &job, report::settle(job.stop, outcome));
        }
    }

    fn finish_job(&mut self, token: &Token, job: &RunningJob, outcome: Outcome) {
        self.dues.remove(&(job.due, token.clone()));
        self.ledger.finish(token);
        let (logs, _) = job.control.collect();
        self.push_report(token, outcome, logs);
    }

    /// Tells a job to end, and notes when it is dropped if it does not.
    fn stop_job(&mut self, token: &Token, stop: Stop, drop_at: Instant) {
        let Some(job) = self.jobs.get_mut(token) else { return };
        // A job that was told already keeps its reason and its time.
        if job.stop.is_none() {
            job.stop = Some(stop);
            job.control.cancel();
            self.dues.remove(&(job.due, token.clone()));
            job.due = drop_at;
            self.dues.insert((drop_at, token.clone()));
        }
    }

    fn stop_all(&mut self, stop: Stop, drop_at: Instant) {
        let tokens: Vec<Token> = self.jobs.keys().cloned().collect();
        for token in &tokens {
            self.stop_job(token, stop, drop_at);
        }
    }

    /// Gives back what was not started.
    fn decline_waiting(&mut self) {
        for token in self.ledger.withdraw_all() {
            self.push_report(&token, Outcome::Declined, vec![]);
        }
    }

    // ---- time -----------------------------------------------------------------------------------------------

    fn do_what_is_due(&mut self, now: Instant) {
        while self.dues.first().is_some_and(|(due, _)| *due <= now) {
            if let Some((_, token)) = self.dues.pop_first() {
                self.job_is_due(&token, now);
            }
        }
        if self.news_due.is_some_and(|due| due <= now) {
            self.collect_news();
        }
        if self.lease.stop_at().is_some_and(|stop_at| stop_at <= now) && !self.ledger.is_empty() {
            self.lease_lapsed(now);
        }
        if let Some(drain) = &mut self.drain
            && drain.stop_at.is_some_and(|stop_at| stop_at <= now)
        {
            drain.stop_at = None;
            warn!(attempts = self.jobs.len(), "the drain takes too long: stopping what runs");
            self.stop_all(Stop::Drained, now + STOP_GRACE);
        }
    }

    /// A job's time is over, or it was told to end and did not.
    fn job_is_due(&mut self, token: &Token, now: Instant) {
        let Some(job) = self.jobs.get(token) else { return };
        let Some(stop) = job.stop else {
            let stop = Stop::TimedOut(job.timeout);
            return self.stop_job(token, stop, now + STOP_GRACE);
        };
        warn!(token = &**token, ?stop, "the handler did not end after it was told to: dropping it");
        if let Some(job) = self.jobs.remove(token) {
            self.finish_job(token, &job, report::abandon(stop));
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
        self.stop_all(Stop::LeaseLapsed, drop_at);
    }

    fn collect_news(&mut self) {
        self.news_due = None;
        for token in std::mem::take(&mut self.news) {
            // A job that has ended meanwhile sent its lines with its report.
            let Some(job) = self.jobs.get(&token) else { continue };
            let (logs, progress) = job.control.collect();
            self.push(&token, Kind::Running, &report::of_news(&token, progress, logs));
        }
    }

    /// When something is to be done that nobody will wake the loop for.
    fn next_due(&self) -> Option<Instant> {
        let lease = if self.ledger.is_empty() { None } else { self.lease.stop_at() };
        let poll = if self.wants_poll() { self.polls.not_before } else { None };
        let report = if self.outbox.wants_call() { self.reports.not_before } else { None };
        let job = self.dues.first().map(|(due, _)| *due);
        let drain = self.drain.as_ref().map(|drain| {
            let quiet = self.ledger.is_empty() && self.outbox.is_done();
            let old_poll = drain.heard_at.filter(|_| quiet).map(|heard_at| heard_at + OLD_POLL_TIMEOUT);
            drain.stop_at.into_iter().chain(old_poll).fold(drain.leave_at, Instant::min)
        });
        [lease, poll, report, job, drain, self.news_due].into_iter().flatten().min()
    }

    // ---- drain ----------------------------------------------------------------------------------------------

    fn begin_drain(&mut self) {
        let stop_at = Instant::now() + self.settings.drain_timeout.min(FAR);
        self.drain = Some(Drain {
            stop_at: Some(stop_at),
            leave_at: stop_at + STOP_GRACE + LAST_REPORTS_TIMEOUT,
            asked: false,
            heard_at: None,
        });
        info!(running = self.jobs.len(), "draining: nothing more is taken");
        self.decline_waiting();
    }

    fn is_drained(&self, now: Instant) -> Turn {
        let Some(drain) = &self.drain else { return Turn::Again };
        if drain.leave_at <= now {
            warn!(
                attempts = self.ledger.len(),
                reports = self.outbox.len(),
                "leaving with reports that no server took: the attempts are left to other workers"
            );
            return Turn::Done;
        }
        // A poll that was open before may still bring attempts that the server gave before it heard of the drain.
        let heard =
            drain.heard_at.is_some_and(|heard_at| self.polls_open == 0 || heard_at + OLD_POLL_TIMEOUT <= now);
        if heard && self.ledger.is_empty() && self.outbox.is_done() {
            info!("drained");
            return Turn::Done;
        }
        Turn::Again
    }

    // ---- calls ----------------------------------------------------------------------------------------------

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
        if let Some(drain) = &mut self.drain
            && !drain.asked
        {
            // The poll that is open stays: cutting it off could lose attempts on their way. This one does not wait.
            drain.asked = true;
            calls.push(session.poll(&state, Duration::ZERO, LAST_REPORTS_TIMEOUT, Call::Farewell));
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
                self.outbox.answered();
                for (item, answer) in batch.iter().zip(answer.reports) {
                    self.report_answered(item, answer);
                }
            }
            (Call::Reports(batch), Err(_)) => {
                self.outbox.put_back(batch);
                self.reports.not_before = Some(Instant::now() + self.reports.pacing.failed());
            }
            (Call::Farewell, answer) => {
                if let Some(drain) = &mut self.drain {
                    drain.heard_at = Some(Instant::now());
                }
                if let Ok(answer) = answer {
                    self.take_work(answer);
                }
            }
            (Call::Poll, Ok(answer)) => {
                self.polls_open -= 1;
                self.polls.succeeded();
                // The server is there: reports that were held back may go.
                self.reports.succeeded();
                self.hold_back_empty_polls(sent_at, &answer);
                self.take_work(answer);
            }
            (Call::Poll, Err(error)) => {
                self.polls_open -= 1;
                if !self.lease.is_known() && !error.is_temporary() {
                    return Err(error);
                }
                self.polls.not_before = Some(Instant::now() + self.polls.pacing.failed());
            }
        }
        Ok(())
    }

    fn renew_lease(&mut self, sent_at: Instant, answer: &ExchangeAnswer) {
        if !self.lease.is_known() {
            info!(server = self.session.server(), lease_ms = answer.lease_ms, "connected");
        }
        self.lease.renew(sent_at, Duration::from_millis(answer.lease_ms));
    }

    fn session_in_doubt(&mut self, error: &Error) {
        self.session.doubt();
        if error.is_temporary() {
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
                self.stop_job(&token, Stop::Cancelled, Instant::now() + STOP_GRACE);
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

    // ---- reports --------------------------------------------------------------------------------------------

    fn push_report(&mut self, token: &Token, outcome: Outcome, logs: Vec<String>) {
        self.push(token, Kind::Final, &report::of_outcome(token, outcome, logs));
    }

    fn push(&mut self, token: &Token, kind: Kind, report: &windlass_api::Report) {
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
                self.stop_job(&item.token, Stop::Cancelled, Instant::now() + STOP_GRACE);
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

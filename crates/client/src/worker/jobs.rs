//! The running handlers: each has its own Tokio task and is cancelled when its time is over.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{sync::mpsc::UnboundedSender, task::AbortHandle};
use tracing::warn;
use windlass_api::{Attempt, Progress};

use super::{
    Handler, Job, Outcome, Token,
    control::{JobControl, Word},
    handler::run_caught,
    report::{self, Stop},
};
use crate::Term;

/// How long a cancelled handler may take to end: a module's process gets 5 s between SIGTERM and SIGKILL.
pub(super) const STOP_GRACE: Duration = Duration::from_secs(6);

/// How long log lines and progress wait to be sent together. A job shorter than this sends its log with its
/// report, at no extra cost.
const NEWS_INTERVAL: Duration = Duration::from_millis(200);

/// Longer than any attempt may take.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// The running handlers.
pub(super) struct Jobs {
    running: HashMap<Token, RunningJob>,
    /// When a job must be stopped, or dropped if it was stopped. One entry per job; the number distinguishes
    /// entries with the same time.
    dues: BTreeMap<(Instant, u64), Token>,
    /// The number of jobs started so far.
    started: u64,
    /// Jobs with unsent log lines or progress.
    news: Vec<Token>,
    /// When these are collected.
    news_due: Option<Instant>,
    words: UnboundedSender<Word>,
    /// The leadership under which all jobs run, if there is one.
    term: Option<Term>,
}

/// A running handler.
struct RunningJob {
    control: Arc<JobControl>,
    task: AbortHandle,
    number: u64,
    due: Instant,
    timeout: Duration,
    stop: Option<Stop>,
}

impl Drop for RunningJob {
    /// Nothing may run without an owner. After the handler has ended, this has no effect.
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A finished job with its report.
pub(super) struct Ended {
    pub(super) token: Token,
    pub(super) outcome: Outcome,
    pub(super) logs: Vec<String>,
}

/// The log lines and progress of a running job.
pub(super) struct News {
    pub(super) token: Token,
    pub(super) logs: Vec<String>,
    pub(super) progress: Option<Progress>,
}

impl Jobs {
    /// Makes an empty set; jobs send their ends and news to `words`.
    pub(super) fn new(words: UnboundedSender<Word>, term: Option<Term>) -> Self {
        Self {
            running: HashMap::new(),
            dues: BTreeMap::new(),
            started: 0,
            news: Vec::new(),
            news_due: None,
            words,
            term,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.running.len()
    }

    pub(super) fn start(&mut self, token: Token, attempt: Attempt, handler: Arc<dyn Handler>, now: Instant) {
        let timeout = Duration::from_millis(attempt.timeout_ms);
        let due = now + timeout.min(TIMEOUT_MAX);
        let control = Arc::new(JobControl::new(token.clone(), self.words.clone()));
        // Boxed, because futures are moved several times before they run, and an attempt is large.
        let job = Box::new(Job::new(attempt, control.clone(), self.term.clone()));
        let words = self.words.clone();
        let name = token.clone();
        let work = async move {
            let outcome = run_caught(&*handler, *job).await;
            // Without a driver there is no receiver.
            let _ = words.send(Word::Ended(name, outcome));
        };
        let task = tokio::spawn(work).abort_handle();
        let number = self.started;
        self.started += 1;
        self.dues.insert((due, number), token.clone());
        self.running.insert(token, RunningJob { control, task, number, due, timeout, stop: None });
    }

    /// A handler has ended. None if it was dropped before.
    pub(super) fn ended(&mut self, token: Token, said: Outcome) -> Option<Ended> {
        let job = self.running.remove(&token)?;
        self.dues.remove(&(job.due, job.number));
        let outcome = report::settle(job.stop, said);
        Some(Ended { token, outcome, logs: job.control.collect().0 })
    }

    /// Cancels a job, and sets when it is dropped if it does not end. A job already cancelled keeps its
    /// reason, and the earlier time.
    pub(super) fn stop(&mut self, token: &Token, stop: Stop, drop_at: Instant) {
        let Some(job) = self.running.get_mut(token) else { return };
        let is_first = job.stop.is_none();
        if is_first {
            job.stop = Some(stop);
            job.control.cancel();
        }
        if is_first || drop_at < job.due {
            self.dues.remove(&(job.due, job.number));
            job.due = drop_at;
            self.dues.insert((drop_at, job.number), token.clone());
        }
    }

    pub(super) fn stop_all(&mut self, stop: Stop, drop_at: Instant) {
        let tokens: Vec<Token> = self.running.keys().cloned().collect();
        for token in &tokens {
            self.stop(token, stop, drop_at);
        }
    }

    /// Cancels jobs whose time is over, and drops cancelled jobs that did not end in time. Returns the
    /// dropped ones.
    pub(super) fn do_what_is_due(&mut self, now: Instant) -> Vec<Ended> {
        let mut over = Vec::new();
        while let Some(entry) = self.dues.first_entry().filter(|entry| entry.key().0 <= now) {
            let token = entry.get().clone();
            let Some(job) = self.running.get(&token) else {
                entry.remove();
                continue;
            };
            let Some(stop) = job.stop else {
                let stop = Stop::TimedOut(job.timeout);
                self.stop(&token, stop, now + STOP_GRACE);
                continue;
            };
            entry.remove();
            warn!(?stop, "a handler did not end after it was cancelled; dropping it");
            let logs = job.control.collect().0;
            self.running.remove(&token);
            over.push(Ended { token, outcome: report::abandon(stop), logs });
        }
        over
    }

    /// A job has news.
    pub(super) fn has_news(&mut self, token: Token, now: Instant) {
        self.news.push(token);
        self.news_due.get_or_insert(now + NEWS_INTERVAL);
    }

    /// The log lines and progress of running jobs, when they are due. A finished job has sent its lines with
    /// its report.
    pub(super) fn collect_news(&mut self, now: Instant) -> Vec<News> {
        if self.news_due.is_none_or(|due| due > now) {
            return Vec::new();
        }
        self.news_due = None;
        let mut collected = Vec::new();
        for token in std::mem::take(&mut self.news) {
            if let Some(job) = self.running.get(&token) {
                let (logs, progress) = job.control.collect();
                collected.push(News { token, logs, progress });
            }
        }
        collected
    }

    /// When [`Self::do_what_is_due`] or [`Self::collect_news`] has something to do.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let job = self.dues.first_key_value().map(|((due, _), _)| *due);
        job.into_iter().chain(self.news_due).min()
    }
}

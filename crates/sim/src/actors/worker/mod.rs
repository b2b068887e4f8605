//! Workers that behave like the client library: they keep a poll open, send reports concurrently, and stop
//! attempts when they cannot renew their lease.

mod state;

use std::{cell::RefCell, collections::BTreeSet, rc::Rc};

use windlass_core::{Millis, Name};
use windlass_engine::{EngineError, Exchange, ExchangeAnswer, HandedOut, ReportStatus, Said, WorkerReport};
use windlass_store::{AttemptId, ClaimRequest, SessionId, Signal, WorkerState};

use self::state::{Outgoing, Run, Sent, State};
use super::{commands, lease::Lease};
use crate::{
    config::WorkerConfig,
    judge::Seen,
    kinds::Kind,
    world::{Broken, Host, World},
};

/// How long the worker waits for an answer to reports.
const REPORT_TIMEOUT_MS: u64 = 10_000;

/// A worker's process.
pub(crate) struct Worker {
    pub(crate) world: Rc<World>,
    pub(crate) index: usize,
    config: WorkerConfig,
    session: SessionId,
    state: RefCell<State>,
    /// Signals that there is something to report.
    news: Signal,
    /// Signals that another poll may be needed.
    polls_changed: Signal,
}

/// Starts a worker's process, with a new session.
pub(super) fn start_worker(world: &Rc<World>, index: usize) {
    world.count("worker started");
    let session = SessionId(u128::from(world.random()) << 64 | u128::from(world.random()));
    let config = world.config.workers[index].clone();
    world.tell(|| format!("worker {index} starts as session {session}"));
    let server = usize::try_from(world.below(world.servers.count() as u64)).unwrap_or(0);
    let worker = Rc::new(Worker {
        world: world.clone(),
        index,
        session,
        state: RefCell::new(State { server, lease: Lease::new(world.now()), ..State::default() }),
        config,
        news: Signal::default(),
        polls_changed: Signal::default(),
    });
    world.spawn(Host::Worker(index), worker.clone().poll());
    world.spawn(Host::Worker(index), worker.clone().report());
    world.spawn(Host::Worker(index), worker.watch());
}

/// Starts the spare workers that do not run.
pub(crate) fn start_spare_workers(world: &Rc<World>) {
    let is_missed =
        |index: &usize| world.config.workers[*index].is_spare && !world.is_up(Host::Worker(*index));
    (0..world.config.workers.len()).filter(is_missed).for_each(|index| start_worker(world, index));
}

impl Worker {
    /// Keeps a poll open, and opens another one where the client library does. A detached worker polls from time to time.
    async fn poll(self: Rc<Self>) {
        if !self.config.attached {
            loop {
                self.clone().carry_poll(self.call(true, Vec::new())).await;
                self.world.sleep(self.world.within(10..=800)).await;
            }
        }
        loop {
            while !self.wants_poll() {
                self.polls_changed.wait().await;
            }
            if self.state.borrow().polls.is_newest_open() {
                self.world.count("poll beside another");
            }
            let call = self.call(true, Vec::new());
            self.world.spawn(Host::Worker(self.index), self.clone().carry_poll(call));
        }
    }

    fn wants_poll(&self) -> bool {
        let mut state = self.state.borrow_mut();
        let free = self.free(state.runs.len());
        !state.is_pausing && state.polls.wants(free)
    }

    async fn carry_poll(self: Rc<Self>, call: Sent) {
        match self.carry(call, self.poll_timeout()).await {
            Some(answer) => {
                self.state.borrow_mut().failed_polls = 0;
                self.take(answer);
            }
            None => {
                let failures = {
                    let mut state = self.state.borrow_mut();
                    (state.failed_polls, state.is_pausing) = (state.failed_polls + 1, true);
                    state.failed_polls
                };
                self.retry_elsewhere(failures).await;
                self.state.borrow_mut().is_pausing = false;
            }
        }
        self.polls_changed.set();
    }

    /// Sends unsent reports until they are answered.
    async fn report(self: Rc<Self>) {
        let mut failures = 0;
        loop {
            let batch: Vec<WorkerReport> = {
                let state = self.state.borrow();
                state.outbox.values().flat_map(|outgoing| &outgoing.reports).cloned().collect()
            };
            if batch.is_empty() {
                self.news.wait().await;
                continue;
            }
            match self.carry(self.call(false, batch.clone()), REPORT_TIMEOUT_MS).await {
                Some(answer) => {
                    failures = 0;
                    self.settle(&answer, &batch);
                    self.polls_changed.set();
                }
                None => {
                    failures += 1;
                    self.retry_elsewhere(failures).await;
                }
            }
        }
    }

    /// Stops the runs when the lease cannot be renewed, and reports them once a server answers.
    async fn watch(self: Rc<Self>) {
        loop {
            self.world.sleep(100).await;
            if self.state.borrow().lease.lapses(self.world.now()) {
                let runs = std::mem::take(&mut self.state.borrow_mut().runs);
                for (token, run) in runs {
                    self.world.count("run ended: lease not renewed");
                    self.stop(&run, true);
                    self.say(&token, run.id, Said::Ended(commands::interrupted()));
                }
            }
        }
    }

    /// Carries out a call. None if it was not answered, or the server could not serve it.
    async fn carry(&self, Sent { call, named, server }: Sent, timeout: u64) -> Option<ExchangeAnswer> {
        let sent_at = self.world.now();
        let (seq, free, polls) = (call.seq, call.free.unwrap_or(0), call.reports.is_empty());
        let kind = if polls { "poll" } else { "report" };
        self.world.tell(|| {
            format!("worker {}: {kind} {seq} goes to server {server} with {free} free slots", self.index)
        });
        let world = &self.world;
        let worker = self.index;
        let serve = move |live: Rc<super::Live>| -> std::pin::Pin<Box<dyn Future<Output = _>>> {
            let (call, ids) = (call.clone(), named.clone());
            Box::pin(async move {
                live.world.see(Seen::Offered { worker, seq: call.seq, free });
                if !polls {
                    return live.engine.exchange(call, live.now()).await;
                }
                live.world.see(Seen::Named { ids });
                let answer = live.engine.exchange(call, live.now()).await;
                for attempt in answer.iter().flat_map(|answer| &answer.attempts) {
                    let id = attempt.id;
                    live.world.tell(|| {
                        let AttemptId { task, key, attempt: number, claim } = id;
                        let queue = attempt.module().map_or("", |queue| &**queue);
                        format!(
                            "task {task}: worker {worker} is given {key:?} attempt {number} from queue {queue}, claim {claim:x}"
                        )
                    });
                    live.world.see(Seen::Given { worker, seq, id });
                    live.world.see(Seen::HandedOut(Box::new(attempt.clone())));
                }
                answer
            })
        };
        let called = world.call(Host::Worker(self.index), server, polls, Rc::new(serve));
        let answered: Option<Result<Result<ExchangeAnswer, EngineError>, Broken>> =
            world.at_most(timeout, called).await;
        if polls {
            self.state.borrow_mut().polls.end(seq);
            self.polls_changed.set();
        }
        self.world.tell(|| match &answered {
            Some(Ok(Ok(answer))) => {
                let (attempts, poll) = (answer.attempts.len(), answer.poll);
                format!(
                    "worker {}: {kind} {seq} is answered with {attempts} attempts, newest poll {poll:?}",
                    self.index
                )
            }
            _ => format!("worker {}: {kind} {seq} is lost", self.index),
        });
        let answer = answered.and_then(|answer| answer.ok()?.ok());
        let mut state = self.state.borrow_mut();
        state.is_cut_off = answer.is_none();
        let answer = answer?;
        state.lease.renew(sent_at, answer.lease);
        if let Some(received) = answer.poll {
            state.polls.answer(received, seq, free);
        }
        drop(state);
        Some(answer)
    }

    /// Builds a call.
    fn call(&self, polls: bool, reports: Vec<WorkerReport>) -> Sent {
        let mut state = self.state.borrow_mut();
        state.seq += 1;
        // Like the client library: an ended attempt stays claimed until its report is answered, but its slot
        // is free.
        let free = self.free(state.runs.len());
        if polls {
            let seq = state.seq;
            state.polls.begin(seq, free);
        } else {
            state.polls.report(free);
        }
        let (declining, reported): (Vec<_>, Vec<_>) =
            state.outbox.keys().partition(|token| state.outbox[*token].is_declined());
        let held: BTreeSet<&String> = state.runs.keys().chain(reported).collect();
        let modules = if self.config.both_modules { &["m", "n"][..] } else { &["m"] };
        let claim_request =
            |name: &&str| Some(ClaimRequest { module: Name::new(name).ok()?, commands: None, free });
        // As the client library: after a failed call the next poll does not wait, so that the answer renews the lease.
        let wait = if state.is_cut_off { 0 } else { state.lease.poll_wait(&self.config) };
        let wait = if self.config.attached { wait } else { self.world.within(0..=wait) };
        let call = Exchange {
            session: self.session,
            seq: state.seq,
            attached: self.config.attached,
            lease: self.config.lease,
            worker: Some(WorkerState {
                name: format!("worker-{}", self.index).into(),
                ..WorkerState::default()
            }),
            holding: polls.then(|| held.into_iter().cloned().collect()),
            declining: declining.into_iter().filter(|_| polls).cloned().collect(),
            claim_requests: Some(modules.iter().filter_map(claim_request).collect()),
            free: Some(free),
            draining: None,
            wait: Millis(wait),
            reports,
        };
        let server = match self.world.config.is(Kind::Balanced) {
            true => self.any_server(),
            false => state.server,
        };
        Sent { call, named: state.runs.values().map(|run| run.id).collect(), server }
    }

    /// The pause after a failed call: none the first time, then 100 ms, up to a second.
    async fn retry_elsewhere(&self, failures: u64) {
        if failures > 1 {
            let pause = (50 << failures.min(5)).min(1000);
            self.world.sleep(self.world.within(pause / 2..=pause)).await;
        }
        if self.world.chance(500) {
            self.state.borrow_mut().server = self.any_server();
        }
    }

    fn free(&self, running: usize) -> u32 {
        u32::try_from(self.config.slots.saturating_sub(running)).unwrap_or(0)
    }

    fn any_server(&self) -> usize {
        usize::try_from(self.world.below(self.world.servers.count() as u64)).unwrap_or(0)
    }

    /// The time limit for the answer of a poll, in milliseconds.
    fn poll_timeout(&self) -> u64 {
        self.state.borrow().lease.poll_timeout(&self.config)
    }

    /// Processes the answer to a poll.
    fn take(self: &Rc<Self>, answer: ExchangeAnswer) {
        for token in &answer.cancels {
            let run = self.state.borrow_mut().runs.remove(token);
            if let Some(run) = run {
                self.world.count("run ended: cancelled");
                self.stop(&run, true);
                self.say(token, run.id, Said::Ended(commands::stopped()));
            }
        }
        for attempt in answer.attempts {
            self.begin(attempt);
        }
        self.state.borrow_mut().polls.forget_settled();
    }

    fn begin(self: &Rc<Self>, attempt: HandedOut) {
        let (known, excess) = {
            let state = self.state.borrow();
            let known = state.runs.contains_key(&attempt.token)
                || state.outbox.contains_key(&attempt.token)
                || state.polls.has_settled(&attempt.token);
            (known, state.polls.has_overlapped && self.free(state.runs.len()) == 0)
        };
        if known {
            return;
        }
        let declined = self.world.config.outcomes.declined;
        if excess || !self.world.is_calm() && self.world.chance(declined) {
            self.world.count("attempt declined");
            self.world.see(Seen::Declined { worker: self.index, id: attempt.id });
            self.say(&attempt.token, attempt.id, Said::Declined);
            return;
        }
        let (token, id, number) = (attempt.token.clone(), attempt.id, self.world.random());
        self.world.tell(|| {
            let (key, number, claim) = (id.key, id.attempt, id.claim);
            format!(
                "task {}: worker {} begins {key:?} attempt {number}, claim {claim:x}",
                id.task, self.index
            )
        });
        self.world.see(Seen::RunBegan { worker: self.index, run: number, id });
        let job = self.world.spawn(Host::Commands(self.index), commands::run(self.clone(), attempt, number));
        self.state.borrow_mut().runs.insert(token, Run { number, id, job });
    }

    fn stop(&self, run: &Run, reported: bool) {
        self.world.cancel(run.job);
        self.world.see(Seen::RunEnded { run: run.number, reported });
    }

    /// A command has ended by itself.
    pub(super) fn ended(&self, token: &str, said: Said) {
        let run = self.state.borrow_mut().runs.remove(token);
        if let Some(run) = run {
            self.world.see(Seen::RunEnded { run: run.number, reported: true });
            self.say(token, run.id, said);
        }
    }

    /// Puts a report into the outbox.
    pub(super) fn say(&self, token: &str, id: AttemptId, said: Said) {
        if let Said::Ended(outcome) = &said {
            self.world.see(Seen::Said { id, outcome: outcome.clone() });
        }
        let logs = if self.world.chance(300) { vec!["a line".to_owned()] } else { Vec::new() };
        let report = WorkerReport { token: token.to_owned(), said: Ok(said), logs };
        let mut state = self.state.borrow_mut();
        let outgoing =
            state.outbox.entry(token.to_owned()).or_insert_with(|| Outgoing { id, reports: Vec::new() });
        outgoing.reports.push(report);
        self.news.set();
    }

    /// Removes answered reports from the outbox.
    fn settle(&self, answer: &ExchangeAnswer, sent: &[WorkerReport]) {
        let mut state = self.state.borrow_mut();
        let seq = state.seq;
        for (answer, sent) in answer.reports.iter().zip(sent) {
            let accepted = answer.status == ReportStatus::Accepted;
            self.world.count(match answer.status {
                ReportStatus::Accepted => "report accepted",
                ReportStatus::Duplicate => "report duplicate",
                ReportStatus::Stale => "report stale",
                ReportStatus::Unknown => "report unknown",
                ReportStatus::Invalid(_) => "report invalid",
            });
            let Some(outgoing) = state.outbox.get_mut(&sent.token) else { continue };
            let id = outgoing.id;
            self.world.tell(|| {
                let (key, number, status) = (id.key, id.attempt, &answer.status);
                format!(
                    "task {}: worker {} reported {key:?} attempt {number}: {status:?}",
                    id.task, self.index
                )
            });
            match sent.said {
                Ok(Said::Ended(_)) => self.world.see(Seen::Reported { id, accepted }),
                Ok(Said::Declined) if accepted => {
                    self.world.see(Seen::Returned { worker: self.index, seq, id });
                }
                _ => {}
            }
            outgoing.reports.remove(0);
            if outgoing.reports.is_empty() {
                state.outbox.remove(&sent.token);
                state.polls.settle(&sent.token);
            }
        }
    }
}

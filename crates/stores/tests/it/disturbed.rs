//! A database that servers share is used while calls are dropped, connections are cut and it dies itself: what each
//! product is tried with.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};

use windlass_conformance::block_on;
use windlass_core::{ActKey, Effect, Flow, Millis, OnFailure, TaskId, waits};
use windlass_store::{
    Change, ClaimRequest, LogLine, Now, Outcome, PollState, SessionId, SessionRenewal, Store, StoreError,
};
use windlass_testkit::{Product, Server};

use crate::story::{self, Story};

pub(crate) const NOW: Now = Now { wall: story::START, mono: Millis(5_000) };
pub(crate) const SESSION: SessionId = SessionId(1);

/// Adds a flow of one step.
pub(crate) fn add_flow(store: &dyn Store) -> Arc<Flow> {
    let flow = story::flow("flow", 1, OnFailure::Rollback);
    assert_eq!(block_on(store.commit(vec![story::flow_change(&flow)])).unwrap(), [Outcome::Committed]);
    flow
}

pub(crate) fn id(number: u64) -> TaskId {
    story::id(0, number)
}

/// What takes a new task in.
pub(crate) fn new_task(flow: &Arc<Flow>, number: u64) -> Change {
    let mut change = Story::new(flow, id(number), 0, &[]).accept(0);
    if let Change::Task(change) = &mut change {
        change.waits = waits(&change.task).into_iter().map(Effect::Wait).collect();
    }
    change
}

/// A line of log of a task.
pub(crate) fn log_line(number: u64) -> LogLine {
    let (task, key) = (id(number), ActKey::forward(0));
    LogLine { task, key, attempt: 1, at: NOW.wall, line: "line".into() }
}

/// What writes a line of log: the batch is read before it is written, in another trip.
pub(crate) fn line(number: u64) -> Change {
    Change::Logs(vec![log_line(number)])
}

pub(crate) fn renew(store: &dyn Store) {
    let lease = Millis::from_secs(600);
    let (poll, worker) = (PollState::Open(1), None);
    let renewal = SessionRenewal { session: SESSION, poll, lease, lease_unpolled: lease, worker };
    block_on(store.renew(vec![renewal], NOW)).unwrap();
}

pub(crate) fn claim_request(free: u32) -> Vec<ClaimRequest> {
    vec![ClaimRequest { module: story::name("module"), commands: None, free }]
}

/// How long something may take that happens soon.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until `found` finds something.
pub(crate) fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < until, "not within {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Polls a future so often, so far apart, and drops it, if it has not ended by then.
pub(crate) fn drop_after<T>(polls: usize, apart: Duration, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..polls {
        if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return Some(done);
        }
        thread::sleep(apart);
    }
    None
}

/// What was answered to the commit of a task.
pub(crate) struct Answer {
    pub(crate) number: u64,
    /// How many changes the commit had.
    pub(crate) changes: usize,
    pub(crate) outcomes: Result<Vec<Outcome>, StoreError>,
}

/// The minimum number of successful commits. On a busy machine one run of `disturb` may be too short for it.
pub(crate) const COMMITTED_MIN: usize = 20;

/// Commits tasks one after the other while `disturb` runs. Runs `disturb` again until [`COMMITTED_MIN`] commits have
/// succeeded, for up to [`PATIENCE`].
pub(crate) fn commit_while(disturb: impl Fn(), commit: impl Fn(u64) -> Answer + Sync) -> Vec<Answer> {
    let (stop, committed) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let committing = scope.spawn(|| {
            let mut answers = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let answer = commit(answers.len() as u64 + 1);
                committed.fetch_add(usize::from(answer.outcomes.is_ok()), Ordering::Relaxed);
                answers.push(answer);
            }
            answers
        });
        let until = Instant::now() + PATIENCE;
        loop {
            disturb();
            if committed.load(Ordering::Relaxed) >= COMMITTED_MIN || Instant::now() >= until {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        committing.join().unwrap()
    })
}

/// Kills a server twice, and starts it again each time.
pub(crate) fn kill_twice<P: Product>(server: &Server<P>) {
    for _ in 0..2 {
        thread::sleep(Duration::from_millis(300));
        server.kill().unwrap();
        server.restart().unwrap();
    }
    thread::sleep(Duration::from_millis(300));
}

/// Whatever was answered is so: a commit that was answered is there once, one that failed is not there at all. Gives how
/// many were committed and failed.
pub(crate) fn answers_hold(store: &dyn Store, answers: &[Answer]) -> (usize, usize) {
    let (mut committed, mut failed) = (0, 0);
    for Answer { number, changes, outcomes } in answers {
        let there = block_on(store.load(&[id(*number)])).unwrap().remove(0).is_some();
        match outcomes {
            Ok(outcomes) => {
                assert_eq!(*outcomes, vec![Outcome::Committed; *changes], "task {number}");
                assert!(there, "task {number} was committed and is not there");
                committed += 1;
            }
            Err(error) => {
                // Where nobody could be asked what became of it, the error says so.
                assert!(
                    !there || error.to_string().contains("unknown whether it was committed"),
                    "task {number}: {error}"
                );
                failed += 1;
            }
        }
    }
    (committed, failed)
}

/// Where the server of this URL listens.
pub(crate) fn port_of(url: &str) -> u16 {
    url.rsplit_once(':').unwrap().1.split_once('/').unwrap().0.parse().unwrap()
}

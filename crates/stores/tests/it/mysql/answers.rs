//! Whatever happens to calls and connections, nobody reads an answer that was not for them.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};

use mysql_async::{Conn, Opts, prelude::Queryable as _};
use windlass_conformance::{block_on, claim};
use windlass_core::{Flow, OnFailure};
use windlass_store::{Change, Claimed, Claims as _, Cluster as _, Outcome, Queries as _, Store, StoreError};
use windlass_stores::mysql::MySqlStore;
use windlass_testkit::{Database, MariaDbProduct};

use super::{database, faults::APART, open, runtime};
use crate::{
    disturbed::{NOW, PATIENCE, SESSION, add_flow, claim_request, drop_after, id, log_line, new_task, renew},
    story,
};

/// How long calls and connections are disturbed.
const DISTURBED: Duration = Duration::from_secs(6);

/// Callers at once, on few connections.
const CALLERS: u64 = 6;

/// Wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Numbers that look random, the same for a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Waits for a future, but now and then drops it at one of the places where it waits.
fn perhaps_drop<T>(dice: &mut Dice, future: impl Future<Output = T>) -> Option<T> {
    let most = if dice.below(3) == 0 { dice.below(8) } else { u64::MAX };
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut polls = 0;
    while polls < most {
        if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return Some(done);
        }
        polls += 1;
        thread::park_timeout(Duration::from_secs(40));
    }
    None
}

/// Ends statements and connections of this database at random.
async fn kill_at_random(url: &str, stop: &AtomicBool) -> u64 {
    let mut conn = Conn::new(Opts::from_url(url).unwrap()).await.unwrap();
    let (mut dice, mut killed) = (Dice(7), 0);
    while !stop.load(Ordering::Relaxed) {
        let others: Vec<u64> = conn
            .query("SELECT id FROM information_schema.processlist WHERE db = database() AND id <> connection_id()")
            .await
            .unwrap();
        if !others.is_empty() {
            let other = others[usize::try_from(dice.below(others.len() as u64)).unwrap()];
            let what = if dice.below(10) == 0 { "CONNECTION" } else { "QUERY" };
            // It may be gone by now.
            killed += u64::from(conn.query_drop(format!("KILL {what} {other}")).await.is_ok());
        }
        tokio::time::sleep(Duration::from_micros(500)).await;
    }
    conn.disconnect().await.unwrap();
    killed
}

/// What answers of a caller came to.
#[derive(Default)]
struct Seen {
    answered: u64,
    failed: u64,
    dropped: u64,
    /// Tasks whose commit was reported.
    committed: Vec<u64>,
    damaged: Vec<String>,
}

impl Seen {
    fn note<T>(&mut self, answer: Option<Result<T, StoreError>>) -> Option<T> {
        match answer {
            None => self.dropped += 1,
            Some(Err(StoreError::Damaged(what))) => self.damaged.push(what),
            Some(Err(_)) => self.failed += 1,
            Some(Ok(done)) => {
                self.answered += 1;
                return Some(done);
            }
        }
        None
    }
}

/// Makes all kinds of calls until it is to stop.
fn call(store: &MySqlStore, flow: &Arc<Flow>, seed: u64, next: &AtomicU64, stop: &AtomicBool) -> Seen {
    let (mut dice, mut seen, mut has) = (Dice(seed), Seen::default(), Vec::<Claimed>::new());
    while !stop.load(Ordering::Relaxed) {
        match dice.below(12) {
            0..=3 => {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let answer = perhaps_drop(&mut dice, store.commit(vec![new_task(flow, number)]));
                if seen.note(answer) == Some(vec![Outcome::Committed]) {
                    seen.committed.push(number);
                }
            }
            4..=5 => {
                let free = u32::try_from(dice.below(5) + 1).unwrap();
                let answer = perhaps_drop(&mut dice, claim(store, SESSION, &claim_request(free), NOW));
                has.extend(seen.note(answer).unwrap_or_default());
            }
            6 => {
                let ids: Vec<_> = has.iter().map(|claimed| claimed.id).collect();
                let answer = perhaps_drop(&mut dice, store.adopt(SESSION, &ids, NOW));
                seen.note(answer);
            }
            7 => {
                if let Some(claimed) = has.pop() {
                    let answer = perhaps_drop(&mut dice, store.release(SESSION, claimed.id, None, NOW));
                    seen.note(answer);
                }
            }
            8 => {
                let ids: Vec<_> = (1..next.load(Ordering::Relaxed)).rev().take(20).map(id).collect();
                let answer = perhaps_drop(&mut dice, store.load(&ids));
                let loaded = seen.note(answer).unwrap_or_default();
                for (id, loaded) in ids.iter().zip(loaded) {
                    assert!(loaded.is_none_or(|loaded| loaded.task.id == *id));
                }
            }
            9 => {
                let answer = perhaps_drop(&mut dice, store.time());
                let time = seen.note(answer).flatten();
                assert!(time.is_none_or(|time| time.0 > 1_700_000_000_000), "{time:?}");
            }
            10 => {
                let answer = perhaps_drop(&mut dice, store.lost(NOW, 10));
                seen.note(answer);
                let answer = perhaps_drop(&mut dice, store.due(NOW, 10));
                seen.note(answer);
            }
            _ => {
                let answer = perhaps_drop(&mut dice, store.queues());
                seen.note(answer);
                let answer = perhaps_drop(&mut dice, store.flows());
                let flows = seen.note(answer);
                assert!(flows.is_none_or(|flows| flows.len() == 1 && flows[0].flow == *flow));
            }
        }
    }
    seen
}

#[test]
fn calls_that_are_dropped_and_statements_that_are_killed_leave_no_answers_to_others() {
    let Some(database) = database() else { return };
    let stores: Vec<_> = (0..2).map(|_| open(&database.url()).unwrap()).collect();
    let flow = add_flow(&*stores[0]);
    renew(&*stores[0]);
    let (stop, next) = (AtomicBool::new(false), AtomicU64::new(1));
    let until = Instant::now() + DISTURBED;
    let (mut all, killed) = (Seen::default(), AtomicU64::new(0));
    thread::scope(|scope| {
        let (stop, next, flow) = (&stop, &next, &flow);
        let killer = scope.spawn(|| {
            let kills = runtime().block_on(kill_at_random(&database.url(), stop));
            killed.store(kills, Ordering::Relaxed);
        });
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| {
                let store = &stores[usize::try_from(caller).unwrap() % stores.len()];
                scope.spawn(move || call(store, flow, caller + 1, next, stop))
            })
            .collect();
        thread::sleep(until.saturating_duration_since(Instant::now()));
        stop.store(true, Ordering::Relaxed);
        for caller in callers {
            let seen = caller.join().unwrap();
            all.answered += seen.answered;
            all.failed += seen.failed;
            all.dropped += seen.dropped;
            all.committed.extend(seen.committed);
            all.damaged.extend(seen.damaged);
        }
        killer.join().unwrap();
    });
    let killed = killed.into_inner();
    let Seen { answered, failed, dropped, .. } = all;
    println!("{answered} answered, {failed} failed, {dropped} dropped, {killed} killed");
    assert!(
        all.damaged.is_empty(),
        "{} answers were not understood: {:?}",
        all.damaged.len(),
        all.damaged.first()
    );
    assert!(
        answered > 100 && dropped > 20 && killed > 20,
        "{answered} answered, {dropped} dropped, {killed} killed"
    );
    for ids in all.committed.chunks(500) {
        let ids: Vec<_> = ids.iter().map(|number| id(*number)).collect();
        let there = block_on(stores[0].load(&ids)).unwrap();
        assert!(there.iter().all(Option::is_some), "the commit of a task was reported, and it is not there");
    }
}

/// A store with two tasks on this database.
fn with_tasks(database: &Database<'_, MariaDbProduct>) -> Arc<MySqlStore> {
    let store = open(&database.url()).unwrap();
    let flow = add_flow(&*store);
    let tasks = (1..=2).map(|number| new_task(&flow, number)).collect();
    assert_eq!(block_on(store.commit(tasks)).unwrap(), vec![Outcome::Committed; 2]);
    store
}

/// A commit that reads and locks both tasks first, in a statement with others before and behind it.
fn lock_both(flow: &str) -> Vec<Change> {
    let flow = story::flow(flow, 1, OnFailure::Rollback);
    vec![Change::Logs(vec![log_line(1), log_line(2)]), story::flow_change(&flow)]
}

/// Everybody gets their own answers.
fn answers_are_ones_own(store: &MySqlStore) {
    for _ in 0..2 {
        assert!(block_on(store.time()).unwrap().is_some_and(|time| time.0 > 1_700_000_000_000));
        assert!(block_on(store.load(&[id(1), id(2)])).unwrap().iter().all(Option::is_some));
        assert!(!block_on(store.flows()).unwrap().is_empty());
    }
}

#[test]
fn an_ending_that_nobody_waits_for_is_no_answer_to_others() {
    let Some(database) = database() else { return };
    let store = with_tasks(&database);
    for polls in 0..60 {
        // It comes to nothing, so its transaction is ended without a commit.
        drop_after(polls, APART, store.commit(Vec::new()));
        answers_are_ones_own(&store);
    }
}

/// Locks the second task, waits for somebody who has locked the first, and gets in their way.
async fn get_in_the_way(url: &str, how: &str, is_locked: mpsc::Sender<()>) {
    let mut conn = Conn::new(Opts::from_url(url).unwrap()).await.unwrap();
    let lock =
        |number| format!("SELECT 1 FROM windlass_state WHERE task = x'{:032x}' FOR UPDATE", id(number).0);
    // The transaction that has done less is the one that is given up.
    let much = "CREATE TABLE IF NOT EXISTS much (n INT) ENGINE = InnoDB; START TRANSACTION;
        INSERT INTO much SELECT seq FROM seq_1_to_1000";
    conn.query_drop(much).await.unwrap();
    conn.query_drop(lock(2)).await.unwrap();
    is_locked.send(()).unwrap();
    // A statement that is seen again and again is one that waits.
    let running = "SELECT id FROM information_schema.processlist WHERE db = database()
        AND id <> connection_id() AND info LIKE '%windlass_state%FOR UPDATE%'";
    let (mut seen, mut waits) = (0, 0_u64);
    // A statement that has waited for 5 s fails, and the store sends it again.
    let until = Instant::now() + PATIENCE;
    while seen < 4 {
        assert!(Instant::now() < until, "nobody waits");
        tokio::time::sleep(Duration::from_millis(25)).await;
        match conn.query_first(running).await.unwrap() {
            Some(id) => (seen, waits) = (seen + 1, id),
            None => seen = 0,
        }
    }
    match how {
        "lock" => conn.query_drop(lock(1)).await.unwrap(),
        kill => conn.query_drop(format!("{kill} {waits}")).await.unwrap(),
    }
    conn.query_drop("ROLLBACK").await.unwrap();
    conn.disconnect().await.unwrap();
}

#[test]
fn an_error_in_the_middle_of_a_script_ends_it() {
    let Some(database) = database() else { return };
    let store = with_tasks(&database);
    // Deadlocks and lost connections are tried again; who kills a statement is obeyed.
    for (flow, how, is_obeyed) in
        [("one", "lock", false), ("two", "KILL CONNECTION", false), ("three", "KILL QUERY", true)]
    {
        let (url, (locked, is_locked)) = (database.url(), mpsc::channel());
        let other = runtime().spawn(async move { get_in_the_way(&url, how, locked).await });
        is_locked.recv().unwrap();
        let answer = block_on(store.commit(lock_both(flow)));
        block_on(other).unwrap();
        match answer {
            Ok(outcomes) => {
                assert!(!is_obeyed, "{how} was not obeyed");
                assert_eq!(outcomes, vec![Outcome::Committed; 2], "{how}");
            }
            Err(error) => {
                assert!(is_obeyed && matches!(error, StoreError::Unavailable(_)), "{how}: {error}");
            }
        }
        answers_are_ones_own(&store);
    }
    assert_eq!(database.ask("select count(*) from windlass_log").unwrap(), "4");
}

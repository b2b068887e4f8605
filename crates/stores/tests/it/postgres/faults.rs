//! Calls that are dropped, connections that are cut, a server that dies: what was answered holds, and nothing stays open.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use tokio::runtime::Builder;
use windlass_conformance::{block_on, claim};
use windlass_core::{Flow, OnFailure, Timestamp};
use windlass_store::{
    Change, ClaimOutcome, Claims as _, Cluster as _, Leave, Members as _, Outcome, Queries as _, ServerId,
    ServerState, Store as _, StoreError,
};
use windlass_stores::postgres::{PostgresOptions, PostgresStore};
use windlass_testkit::{Database, Postgres, PostgresProduct, Product as _, Proxy};

use super::{database, open, wait};
use crate::{
    disturbed::{
        Answer, COMMITTED_MIN, NOW, PATIENCE, SESSION, add_flow, answers_hold, claim_request, commit_while,
        drop_after, id, kill_twice, line, new_task, port_of, renew, until,
    },
    newest,
    story::{self, Story},
};

/// Between two polls of a call that is dropped.
const APART: Duration = Duration::from_millis(1);

/// Waits until no transaction is open in this database.
fn nothing_is_open(database: &Database<'_, PostgresProduct>) {
    let open = "select count(*) from pg_stat_activity where datname = current_database()
        and pid <> pg_backend_pid() and xact_start is not null";
    until("every transaction has ended", || (database.ask(open).unwrap() == "0").then_some(()));
}

/// All of each task is there or nothing.
fn all_is_whole(database: &Database<'_, PostgresProduct>) {
    let torn = "select count(*) from windlass_task t left join windlass_wait w on w.task = t.id
        left join windlass_history h on h.task = t.id where w.task is null or h.task is null";
    assert_eq!(database.ask(torn).unwrap(), "0");
}

#[test]
fn calls_may_be_dropped_anywhere() {
    let Some(database) = database() else { return };
    let store = open(&database.url()).unwrap();
    let flow = add_flow(&*store);
    renew(&*store);
    let (mut dropped, mut ended, mut claimed) = (0, 0, 0);
    // The last limits, up to 3.6 s, are longer than any call takes.
    for polls in (0..40).chain((40..400).step_by(40)).chain((400..4000).step_by(800)) {
        let number = polls as u64 + 1;
        match drop_after(polls, APART, store.commit(vec![new_task(&flow, number), line(number)])) {
            Some(outcomes) => {
                assert_eq!(outcomes.unwrap(), [Outcome::Committed, Outcome::Committed]);
                assert!(block_on(store.load(&[id(number)])).unwrap()[0].is_some());
                ended += 1;
            }
            None => dropped += 1,
        }
        claimed += drop_after(polls, APART, claim(&*store, SESSION, &claim_request(1), NOW))
            .map_or(0, |got| got.unwrap().len());
        drop_after(polls, APART, store.lost(NOW, 10));
        drop_after(polls, APART, store.load(&[id(number)]));
    }
    assert!(dropped > 2 && ended > 3 && claimed > 0, "{dropped} dropped, {ended} ended, {claimed} claimed");
    nothing_is_open(&database);
    all_is_whole(&database);
}

#[test]
fn a_runtime_that_ends_leaves_nothing_open() {
    let Some(database) = database() else { return };
    let flow = add_flow(&*open(&database.url()).unwrap());
    let (mut dropped, mut ended) = (0, 0);
    for round in 0..30 {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let options: PostgresOptions = database.url().parse().unwrap();
        let store = runtime.block_on(PostgresStore::open(&options)).unwrap();
        // The first call of a connection opens it.
        runtime.block_on(store.flows()).unwrap();
        let commit = store.commit(vec![new_task(&flow, round + 1), line(round + 1)]);
        // The first are stopped before they are sent, and the last have time on a busy machine too.
        let stop_at =
            if round < 27 { Duration::from_micros(50 * round * round) } else { Duration::from_secs(5) };
        match runtime.block_on(async { tokio::time::timeout(stop_at, commit).await }) {
            Ok(outcomes) => {
                assert_eq!(outcomes.unwrap(), [Outcome::Committed, Outcome::Committed]);
                ended += 1;
            }
            Err(_) => dropped += 1,
        }
        // All that was under way is dropped where it stands.
        drop(runtime);
    }
    assert!(dropped > 2 && ended > 2, "{dropped} dropped, {ended} ended");
    nothing_is_open(&database);
    all_is_whole(&database);
}

/// Commits a task, now in one trip, now in two.
fn commit(store: &PostgresStore, flow: &Arc<Flow>, number: u64) -> Answer {
    let mut changes = vec![new_task(flow, number)];
    changes.extend(number.is_multiple_of(2).then(|| line(number)));
    Answer { number, changes: changes.len(), outcomes: block_on(store.commit(changes)) }
}

#[test]
fn commits_whose_connection_is_cut_come_to_what_was_answered() {
    let Some(database) = database() else { return };
    let flow = add_flow(&*open(&database.url()).unwrap());
    let proxy = Proxy::start(port_of(&database.url())).unwrap();
    let store = open(&database.url_at(proxy.port())).unwrap();
    let cut_often = || {
        for cut in 0..60_u64 {
            // Long enough for some to get through: a new connection asks a dozen times before its first commit.
            thread::sleep(Duration::from_millis(50 + cut % 23));
            proxy.cut();
            thread::sleep(Duration::from_millis(1));
            proxy.heal();
            // Slow as well, now and then: more is on its way when it is cut.
            proxy.delay(Duration::from_millis(cut % 2));
        }
        proxy.heal();
    };
    let answers = commit_while(cut_often, |number| commit(&store, &flow, number));
    let (committed, failed) = answers_hold(&*store, &answers);
    assert!(committed >= COMMITTED_MIN, "{committed} committed, {failed} failed");
    nothing_is_open(&database);
    all_is_whole(&database);
}

#[test]
fn a_server_that_dies_and_comes_back_loses_nothing() {
    let Some(server) = Postgres::start().unwrap() else { return };
    let database = server.database().unwrap();
    let store = open(&database.url()).unwrap();
    let flow = add_flow(&*store);
    let answers = commit_while(|| kill_twice(&server), |number| commit(&store, &flow, number));
    let (committed, failed) = answers_hold(&*store, &answers);
    assert!(committed >= COMMITTED_MIN, "{committed} committed, {failed} failed");
    all_is_whole(&database);
}

/// A store that gives up a statement after 2 s. Without a lock in the way a statement takes less, on a busy machine too.
fn open_impatient(url: &str) -> Arc<PostgresStore> {
    let mut options: PostgresOptions = url.parse().unwrap();
    options.statement_max = Duration::from_secs(2);
    wait(async move { PostgresStore::open(&options).await.map(Arc::new) }).unwrap()
}

#[test]
fn a_server_that_stands_still_is_given_up_in_time_and_used_again() {
    let Some(server) = Postgres::start_with(PostgresProduct::QUICK).unwrap() else { return };
    let database = server.database().unwrap();
    let store = open_impatient(&database.url());
    let flow = add_flow(&*store);
    server.pause().unwrap();
    let began = Instant::now();
    // With no server to ask what became of it, the error says so.
    let error = block_on(store.commit(vec![new_task(&flow, 1)])).unwrap_err();
    assert!(error.to_string().contains("unknown whether it was committed"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(100), "{:?}", began.elapsed());
    server.resume().unwrap();
    assert_eq!(block_on(store.flows()).unwrap().len(), 1);
    nothing_is_open(&database);
}

#[test]
fn a_server_that_is_away_is_told_at_once_and_used_again() {
    let Some(server) = Postgres::start_with(PostgresProduct::QUICK).unwrap() else { return };
    let database = server.database().unwrap();
    let store = open(&database.url()).unwrap();
    server.stop().unwrap();
    let began = Instant::now();
    let error = block_on(store.flows()).unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    let change = story::flow_change(&story::flow("flow", 1, OnFailure::Rollback));
    assert!(matches!(block_on(store.commit(vec![change])), Err(StoreError::Unavailable(_))));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    server.restart().unwrap();
    assert!(block_on(store.flows()).unwrap().is_empty());
}

/// Works while another client runs a statement. The work begins when the statement sleeps, or has ended already. Returns
/// also the output of the other client.
fn beside<T>(
    database: &Database<'_, PostgresProduct>,
    statement: &str,
    work: impl FnOnce() -> T,
) -> (T, Result<String, String>) {
    thread::scope(|scope| {
        let other = scope.spawn(|| database.ask(statement).map_err(|error| error.to_string()));
        let sleeps = "select count(*) from pg_stat_activity
            where datname = current_database() and wait_event = 'PgSleep'";
        until("the other has its locks", || {
            (other.is_finished() || database.ask(sleeps).unwrap() == "1").then_some(())
        });
        let done = work();
        (done, other.join().unwrap())
    })
}

#[test]
fn a_statement_that_takes_too_long_is_given_up() {
    let Some(database) = database() else { return };
    let store = open_impatient(&database.url());
    let locked = "begin; lock table windlass_flow; select pg_sleep(10); commit";
    let end_it = "select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and wait_event = 'PgSleep'";
    let (error, _) = beside(&database, locked, || {
        let error = block_on(store.flows()).unwrap_err();
        database.ask(end_it).unwrap();
        error
    });
    assert!(matches!(&error, StoreError::Unavailable(why) if why.contains("statement timeout")), "{error}");
    assert!(block_on(store.flows()).unwrap().is_empty());
}

/// Two tasks that go on in one commit.
fn two_go_on(store: &PostgresStore, flow: &Arc<Flow>, numbers: [u64; 2]) -> Vec<Change> {
    let mut stories = numbers.map(|number| Story::new(flow, id(number), 0, &[]));
    let new = stories.iter_mut().map(|story| story.accept(0)).collect();
    assert_eq!(block_on(store.commit(new)).unwrap(), vec![Outcome::Committed; 2]);
    stories.iter_mut().map(|story| story.succeed(1, None)).collect()
}

/// Whether the database counts more deadlocks than this. It may count one up to 10 s late.
fn has_more_deadlocks_than(database: &Database<'_, PostgresProduct>, count: u64) -> bool {
    let more = format!("select deadlocks > {count} from pg_stat_database where datname = current_database()");
    let until = Instant::now() + PATIENCE;
    while database.ask(&more).unwrap() != "t" {
        if Instant::now() >= until {
            return false;
        }
        thread::sleep(Duration::from_millis(50));
    }
    true
}

#[test]
fn deadlocks_with_strangers_are_tried_again() {
    let Some(database) = database() else { return };
    let store = open(&database.url()).unwrap();
    let flow = add_flow(&*store);
    let hold = |number| format!("select from windlass_task where id = '{}' for update", id(number));
    let mut strangers_ended = 0;
    // On a busy machine our commit may come too late: then there is no deadlock, or the database ends the stranger.
    for round in 0..5 {
        let [first, second] = [2 * round + 1, 2 * round + 2];
        let changes = two_go_on(&store, &flow, [first, second]);
        // The stranger locks the tasks in the other order. Our commit waits first, so the database ends our commit.
        let other = format!("begin; {}; select pg_sleep(0.7); {}; commit", hold(second), hold(first));
        let (outcomes, other) = beside(&database, &other, || block_on(store.commit(changes)));
        assert_eq!(outcomes.unwrap(), vec![Outcome::Committed; 2]);
        match other {
            Ok(_) if has_more_deadlocks_than(&database, strangers_ended) => return,
            Ok(_) => {}
            Err(error) => {
                assert!(error.contains("deadlock detected"), "{error}");
                strangers_ended += 1;
            }
        }
    }
    panic!("the database ended no commit of ours in 5 rounds");
}

#[test]
fn locks_that_strangers_hold_for_long_are_waited_for_again() {
    let Some(database) = database() else { return };
    let store = open(&database.url()).unwrap();
    let changes = two_go_on(&store, &add_flow(&*store), [1, 2]);
    let other = format!(
        "begin; select from windlass_task where id = '{}' for update; select pg_sleep(6); commit",
        id(1)
    );
    let began = Instant::now();
    let (outcomes, other) = beside(&database, &other, || block_on(store.commit(changes)));
    other.unwrap();
    assert_eq!(outcomes.unwrap(), vec![Outcome::Committed; 2]);
    assert!(began.elapsed() > Duration::from_secs(5), "the first try was given up");
}

#[test]
fn log_lines_of_a_task_are_numbered_in_the_order_of_their_commits() {
    let Some(database) = database() else { return };
    let store = open(&database.url()).unwrap();
    let flow = add_flow(&*store);
    block_on(store.commit(vec![new_task(&flow, 1)])).unwrap();
    // Another server that is about to write a line has locked the task.
    let other = format!(
        "begin; select from windlass_task where id = '{0}' for update; select pg_sleep(1);
         insert into windlass_log (task, act, attempt, at, line) values ('{0}', 0, 1, 0, 'first'); commit",
        id(1)
    );
    let (outcomes, other) = beside(&database, &other, || block_on(store.commit(vec![line(1)])));
    other.unwrap();
    assert_eq!(outcomes.unwrap(), [Outcome::Committed]);
    let lines = block_on(store.logs(id(1), 0, 10)).unwrap();
    let lines: Vec<&str> = lines.iter().map(|(_, line)| &*line.line).collect();
    assert_eq!(lines, ["first", "line"]);
}

/// Whether a store hears of another server in time.
fn hears(store: &PostgresStore, within: Duration) -> bool {
    let polls = usize::try_from(within.as_millis()).unwrap();
    drop_after(polls.max(1), APART, store.news()).is_some()
}

#[test]
fn other_servers_are_heard_of_again_after_the_connection_was_lost() {
    let Some(database) = database() else { return };
    let other = open(&database.url()).unwrap();
    let flow = add_flow(&*other);
    for number in 1..=2 {
        let (version, address) = ("1".into(), "http://127.0.0.1:1".into());
        let (id, started_at, heard_at) = (ServerId(number), NOW.wall, NOW.wall);
        let server = ServerState { id, version, address, level: 1, started_at, heard_at, heard: NOW.mono };
        block_on(other.register(server)).unwrap();
    }
    let proxy = Proxy::start(port_of(&database.url())).unwrap();
    let store = open(&database.url_at(proxy.port())).unwrap();
    // It looks by itself once it listens, and then waits.
    assert!(hears(&store, PATIENCE) && !hears(&store, Duration::from_millis(50)));
    block_on(other.commit(vec![new_task(&flow, 1)])).unwrap();
    assert!(hears(&store, PATIENCE));

    renew(&*other);
    assert_eq!(block_on(claim(&*other, SESSION, &claim_request(1), NOW)).unwrap().len(), 1);
    proxy.cut();
    assert!(!hears(&store, Duration::from_millis(50)), "nobody listens");
    proxy.heal();
    assert!(hears(&store, PATIENCE), "something may have come meanwhile");
    assert!(!hears(&store, Duration::from_millis(50)));
    block_on(other.commit(vec![new_task(&flow, 2)])).unwrap();
    assert!(hears(&store, PATIENCE));
}

#[test]
fn a_batch_of_new_tasks_is_one_trip_and_one_that_goes_on_two() {
    let Some(database) = database() else { return };
    let store = open(&database.url()).unwrap();
    let flow = add_flow(&*store);
    renew(&*store);
    let trips = || store.round_trips().unwrap();
    let before = trips();
    let tasks: Vec<Change> = (1..=200).map(|number| new_task(&flow, number)).collect();
    assert_eq!(block_on(store.commit(tasks)).unwrap(), vec![Outcome::Committed; 200]);
    assert_eq!(trips() - before, 1);
    let before = trips();
    assert_eq!(block_on(claim(&*store, SESSION, &claim_request(100), NOW)).unwrap().len(), 100);
    assert_eq!(trips() - before, 1);
    let before = trips();
    block_on(store.commit(vec![line(1)])).unwrap();
    assert_eq!(trips() - before, 2);
}

#[test]
fn what_others_have_just_made_ready_is_left_to_them() {
    let Some(database) = database() else { return };
    let store = open(&database.url()).unwrap();
    let flow = add_flow(&*store);
    renew(&*store);
    block_on(store.commit((1..=3).map(|number| new_task(&flow, number)).collect())).unwrap();
    let claim = |since: Timestamp| {
        let leave = Leave { since: Some(since), but: vec![id(2)] };
        let ClaimOutcome::Claimed(claimed) =
            block_on(store.claim(SESSION, &claim_request(9), &leave, NOW)).unwrap()
        else {
            unreachable!("a database needs no second question")
        };
        claimed.into_iter().map(|claimed| claimed.id.task).collect::<Vec<_>>()
    };
    assert_eq!(claim(story::at(0)), [id(2)]);
    assert_eq!(claim(story::at(0)), []);
    assert_eq!(claim(story::at(1)), [id(1), id(3)]);
}

#[test]
fn the_newest_version_of_a_flow_is_asked_once_in_a_while() {
    let Some(database) = database() else { return };
    newest::is_asked_once_in_a_while(&*open(&database.url()).unwrap());
}

#[test]
fn the_newest_version_of_a_flow_is_the_same_everywhere() {
    let Some(database) = database() else { return };
    let [one, other] = [open(&database.url()).unwrap(), open(&database.url()).unwrap()];
    newest::is_the_same_everywhere(&*one, &*other);
}

//! Damaged rows of locks, limits, paused queues and of the file itself: a start goes on without them, and does what is safe.

use std::sync::Arc;

use rusqlite::Connection;
use windlass_conformance::{block_on, claim};
use windlass_core::{
    ActKey, Command, Flow, Lock, LockCommand, LockOwner, LockRef, Message, Millis, OnFailure, TaskId,
    Timestamp,
};
use windlass_store::{
    Change, ClaimRequest, Claims as _, Limit, LimitChange, LockChange, Now, Outcome, PollState, Queries as _,
    QueueChange, QueuePause, SessionId, SessionRenewal, Store as _, resident::Resident,
};
use windlass_stores::sqlite::{SqliteOptions, SqliteSink, doctor};

use crate::story::{Place, Story, at, flow, flow_change, id, name, now};

fn open(place: &Place) -> Resident {
    let sink = SqliteSink::open(&place.path(), SqliteOptions::default()).unwrap();
    block_on(Resident::open(Arc::new(sink), now(0))).unwrap()
}

/// Does something to one row, with the server stopped.
fn damage(place: &Place, sql: &str) {
    let shell = Connection::open(place.path()).unwrap();
    assert_eq!(shell.execute(sql, []).unwrap(), 1, "{sql}");
}

/// The names of what is known to be damaged, and what the alarm says.
fn damaged(store: &Resident) -> Vec<(String, String)> {
    let found = store.quarantine().unreported();
    found.into_iter().map(|found| (found.row.into_string(), found.reason.into_string())).collect()
}

fn only(store: &Resident, row: &str, advice: &str) {
    let found = damaged(store);
    let [(of, reason)] = &found[..] else { panic!("{found:?}") };
    assert!(of == row && reason.contains(advice), "{found:?}");
}

/// The doctor lists the row of this table.
fn listed(place: &Place, table: &str) {
    let problems = doctor(&place.path()).unwrap().problems;
    assert!(problems.iter().any(|problem| problem.contains(table)), "{problems:?}");
}

fn owner(task: u128) -> LockOwner {
    LockOwner { task: TaskId(task), key: ActKey::forward(0), turn: 1 }
}

/// Applies a command to a lock. Returns the task that got the lock by that, and its fence.
fn tell(store: &Resident, lock: &str, command: &LockCommand) -> Option<(u128, u64)> {
    let current = block_on(store.locks_by_name(&[name(lock)])).unwrap().pop().unwrap();
    let transition = current.apply(command, at(1)).unwrap()?;
    let change = LockChange::new(current.version, transition, at(1), None);
    let granted = change.messages.iter().find_map(|envelope| match &envelope.message {
        Message::Granted { owner, fence, .. } => Some((owner.task.0, *fence)),
        _ => None,
    });
    assert_eq!(block_on(store.commit(vec![Change::Lock(change)])).unwrap(), [Outcome::Committed]);
    granted
}

fn acquire(store: &Resident, lock: &str, task: u128) -> Option<(u128, u64)> {
    tell(store, lock, &LockCommand::Acquire { owner: owner(task) })
}

/// Two steps wait for a lock that a third one has; returns its fence.
fn busy_lock(place: &Place) -> u64 {
    let store = open(place);
    let (holder, fence) = acquire(&store, "disk", 1).unwrap();
    assert_eq!(holder, 1);
    assert_eq!((acquire(&store, "disk", 2), acquire(&store, "disk", 3)), (None, None));
    fence
}

#[test]
fn a_damaged_lock_is_closed_until_an_operator_opens_it() {
    for damage_of_it in
        ["version = version - 1", "version = version + 4096", "holder = x'00'", "holder = x'ff'"]
    {
        let place = Place::new();
        let fence = busy_lock(&place);
        damage(&place, &format!("UPDATE lock SET {damage_of_it} WHERE name = 'disk'"));
        listed(&place, "row disk of the table lock");
        let store = open(&place);
        only(&store, "lock.disk", "windlass lock release disk");
        // Nobody gets it, not by asking and not by what the former holder says.
        assert_eq!(acquire(&store, "disk", 4), None, "{damage_of_it}");
        assert_eq!(tell(&store, "disk", &LockCommand::Release { owner: owner(1) }), None, "{damage_of_it}");
        drop(store);
        // Its row is sound by now, and it is closed still.
        let store = open(&place);
        only(&store, "lock.disk", "windlass lock release disk");
        listed(&place, "lock disk: ");
        let seize = LockCommand::Seize { reason: "nobody has it".into(), by: None };
        let (holder, next) = tell(&store, "disk", &seize).unwrap();
        assert!(holder == 2 && next > fence, "{damage_of_it}: {holder} {next}");
        let (holder, last) = tell(&store, "disk", &LockCommand::Release { owner: owner(2) }).unwrap();
        assert!(holder == 3 && last > next);
        drop(store);
        assert_eq!(damaged(&open(&place)), []);
    }
}

#[test]
fn a_lock_whose_name_is_damaged_is_not_free() {
    for name in ["'disj'", "'d sk'", "CAST(x'ff6973' AS TEXT)"] {
        let place = Place::new();
        let fence = busy_lock(&place);
        damage(&place, &format!("UPDATE lock SET name = {name}"));
        let store = open(&place);
        assert_eq!(acquire(&store, "disk", 4), None, "{name}: those who wait show that it is not free");
        let seize = LockCommand::Seize { reason: "nobody has it".into(), by: None };
        let (_, next) = tell(&store, "disk", &seize).unwrap();
        assert!(next > fence, "{name}");
        assert!(damaged(&store).iter().any(|(row, _)| row == "lock.disk"), "{:?}", damaged(&store));
    }
}

/// A task that has the lock `disk` and rests, because its step is tried again in an hour. Returns its fence.
fn lock_of_a_task_at_rest(place: &Place) -> u64 {
    let mut flow = Flow::clone(&flow("locking", 1, OnFailure::Rollback));
    flow.steps[0].locks = vec![LockRef::Name(name("disk"))];
    let mut story = Story::new(&flow.into(), id(0, 1), 0, &[]);
    let store = open(place);
    let commit = |change| assert_eq!(block_on(store.commit(vec![change])).unwrap(), [Outcome::Committed]);
    commit(flow_change(&story.task.flow));
    commit(story.accept(0));
    let owner = LockOwner { task: story.task.id, key: ActKey::forward(0), turn: 1 };
    let (_, fence) = tell(&store, "disk", &LockCommand::Acquire { owner }).unwrap();
    commit(story.apply(&Command::Granted { key: owner.key, turn: 1, name: name("disk"), fence }, 1));
    commit(story.retry_later(2, Millis(3_600_000)));
    fence
}

#[test]
fn a_lock_whose_name_is_damaged_is_not_free_while_its_holder_rests() {
    for name in ["'disj'", "'d sk'"] {
        let place = Place::new();
        let fence = lock_of_a_task_at_rest(&place);
        let resting = Connection::open(place.path()).unwrap();
        let resting = resting.query_row("SELECT count(*) FROM resting", [], |row| row.get::<_, u32>(0));
        assert_eq!(resting, Ok(1));
        damage(&place, &format!("UPDATE lock SET name = {name}"));
        let store = open(&place);
        let lock = block_on(store.lock(&self::name("disk"))).unwrap();
        assert!(lock.is_some_and(|lock| lock.is_closed()), "{name}");
        assert_eq!(acquire(&store, "disk", 4), None, "{name}");
        let seize = LockCommand::Seize { reason: "nobody has it".into(), by: None };
        let (holder, next) = tell(&store, "disk", &seize).unwrap();
        assert!(holder == 4 && next > fence, "{name}: {fence} {next}");
        assert!(damaged(&store).iter().any(|(row, _)| row == "lock.disk"), "{:?}", damaged(&store));
    }
}

#[test]
fn one_who_waits_is_served_as_far_as_its_row_can_be_read() {
    // By place, by what cannot be read at all, by another task.
    for (damage_of_it, next) in [
        ("place = place - 1", 2),
        ("waiter = x'ff'", 3),
        ("place = (SELECT max(place) + 1000 FROM lock_waiter)", 3),
    ] {
        let place = Place::new();
        let fence = busy_lock(&place);
        let first = "WHERE place = (SELECT min(place) FROM lock_waiter)";
        damage(&place, &format!("UPDATE lock_waiter SET {damage_of_it} {first}"));
        listed(&place, "lock_waiter");
        let store = open(&place);
        let found = damaged(&store);
        assert!(found.len() == 1 && found[0].0.starts_with("lock_waiter.disk."), "{found:?}");
        let (holder, got) = tell(&store, "disk", &LockCommand::Release { owner: owner(1) }).unwrap();
        assert!(holder == next && got > fence, "{damage_of_it}: {holder} {got}");
    }
}

#[test]
fn a_damaged_floor_of_locks_does_not_fall() {
    for floor in ["0", "version - 1", "version + 4503599627370496"] {
        let place = Place::new();
        let fence = busy_lock(&place);
        let store = open(&place);
        for task in [1, 2, 3] {
            tell(&store, "disk", &LockCommand::Release { owner: owner(task) });
        }
        let free: Vec<Lock> = block_on(store.free_locks(9)).unwrap();
        let delete = |lock| Change::Lock(LockChange::delete(lock, at(2)));
        assert_eq!(
            block_on(store.commit(free.into_iter().map(delete).collect())).unwrap(),
            [Outcome::Committed]
        );
        let before = block_on(store.lock_floor()).unwrap();
        drop(store);
        damage(&place, &format!("UPDATE lock_floor SET version = {floor}"));
        listed(&place, "lock_floor");
        let store = open(&place);
        only(&store, "lock_floor.one", "above every fencing token");
        let (_, next) = acquire(&store, "disk", 4).unwrap();
        assert!(next > before && before > fence && next < 1 << 53, "{floor}: {fence} {before} {next}");
        drop(store);
        let store = open(&place);
        assert_eq!(damaged(&store), [], "it is written again");
        assert!(acquire(&store, "other", 5).unwrap().1 > before);
    }
}

/// A store with one ready task of the queue `module`.
fn with_ready_task(place: &Place, more: Vec<Change>) {
    let flow = flow("f", 1, OnFailure::Rollback);
    let mut story = Story::new(&flow, id(0, 1), 0, &[]);
    let changes = [flow_change(&flow), story.accept(0)].into_iter().chain(more).collect();
    let outcomes = block_on(open(place).commit(changes)).unwrap();
    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Committed), "{outcomes:?}");
}

/// How many attempts of the queue `module` a worker gets.
fn claimed(store: &Resident) -> usize {
    let claim_request = ClaimRequest { module: name("module"), commands: None, free: 9 };
    let claim_requests = [claim_request];
    // The grace of the start is over then.
    let later = Now { mono: Millis(10_000), ..now(10_000) };
    let _ = block_on(store.due(later, 9)).unwrap();
    let lease = Millis(60_000);
    let (session, poll) = (SessionId(7), PollState::Unknown);
    let renewal = SessionRenewal { session, poll, lease, lease_unpolled: lease, worker: None };
    block_on(store.renew(vec![renewal], later)).unwrap();
    block_on(claim(store, session, &claim_requests, later)).unwrap().len()
}

#[test]
fn the_queue_of_a_damaged_limit_is_closed_until_the_limit_is_set_or_removed() {
    let limit = Limit {
        name: name("few"),
        queue: name("module"),
        command: Some(name("other")),
        per_key: false,
        running: Some(5),
        starts: None,
    };
    let set = |limit: Option<Limit>| Change::Limit(LimitChange { name: name("few"), limit });
    for after in [Some(limit.clone()), None] {
        let place = Place::new();
        with_ready_task(&place, vec![set(Some(limit.clone()))]);
        damage(&place, "UPDATE limit_rule SET running = 4096");
        listed(&place, "row few of the table limit_rule");
        let store = open(&place);
        only(&store, "limit.few", "windlass limit remove few");
        assert_eq!(claimed(&store), 0, "nothing is handed out of its queue");
        let states = block_on(store.limits(now(10_000))).unwrap();
        assert_eq!(states[0].limit, Limit::closed(name("few"), name("module")));
        assert_eq!(block_on(store.commit(vec![set(after)])).unwrap(), [Outcome::Committed]);
        assert_eq!(claimed(&store), 1);
        drop(store);
        assert_eq!(damaged(&open(&place)), []);
    }
    let place = Place::new();
    with_ready_task(&place, vec![set(Some(limit))]);
    damage(&place, "UPDATE limit_rule SET queue = 'no name'");
    let store = open(&place);
    only(&store, "limit.few", "does not apply the limit");
    assert_eq!(claimed(&store), 1);
}

#[test]
fn a_damaged_paused_queue_is_paused() {
    let paused = Some(QueuePause { at: Timestamp(5), by: None });
    let change = |paused| Change::Queue(QueueChange { name: name("module"), paused });
    let place = Place::new();
    with_ready_task(&place, vec![change(paused.clone())]);
    damage(&place, "UPDATE queue SET paused_at = 7");
    listed(&place, "row module of the table queue");
    let store = open(&place);
    only(&store, "queue.module", "windlass queue resume module");
    assert_eq!(claimed(&store), 0);
    assert_eq!(block_on(store.commit(vec![change(None)])).unwrap(), [Outcome::Committed]);
    assert_eq!(claimed(&store), 1);
    drop(store);
    assert_eq!(damaged(&open(&place)), []);

    let place = Place::new();
    with_ready_task(&place, vec![change(paused)]);
    damage(&place, "UPDATE queue SET name = 'no name'");
    let store = open(&place);
    only(&store, "queue.no_name", "windlass queue pause");
}

#[test]
fn a_damaged_row_of_the_file_gets_a_new_key_and_later_claims() {
    for damage_of_it in [
        "token_key = zeroblob(32)",
        "token_key = x'00'",
        "epoch = 0",
        "epoch = 4000000000",
        "latest_at = 1 << 60",
    ] {
        let place = Place::new();
        with_ready_task(&place, Vec::new());
        let store = open(&place);
        let key = store.token_key();
        drop(store);
        damage(&place, &format!("UPDATE meta SET {damage_of_it}"));
        listed(&place, "of the table meta");
        let store = open(&place);
        only(&store, "meta.one", "new key for tokens");
        assert!(store.token_key() != key && store.token_key() != [0; 32], "{damage_of_it}");
        let new = store.token_key();
        assert!(store.latest_at() < Timestamp(1 << 50) && store.latest_at() >= at(0), "{damage_of_it}");
        assert_eq!(claimed(&store), 1);
        drop(store);
        let store = open(&place);
        assert_eq!((damaged(&store), store.token_key()), (Vec::new(), new), "{damage_of_it}");
        let report = doctor(&place.path()).unwrap();
        assert!(report.problems.is_empty() && (1_000..1 << 24).contains(&report.epoch), "{report:?}");
    }
    let place = Place::new();
    with_ready_task(&place, Vec::new());
    damage(&place, "DELETE FROM meta");
    assert!(doctor(&place.path()).is_ok());
    only(&open(&place), "meta.one", "new key for tokens");
}

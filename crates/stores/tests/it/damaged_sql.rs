//! Damaged rows that are of no task, in a database that servers share: each is skipped, and none fails what is read with it.

use std::sync::Arc;

use windlass_conformance::{block_on, claim};
use windlass_core::{
    ActKey, Alarm, AlarmCommand, AlarmId, AlarmState, Effect, LockCommand, LockOwner, Message, Millis,
    OnFailure, StuckKind, TaskId, waits,
};
use windlass_store::{
    AlarmChange, AttemptId, Change, ClaimRequest, Limit, LimitChange, LockChange, Now, Outcome, PollState,
    QueueChange, QueuePause, SessionId, SessionRenewal, Store, StoreError,
};

use crate::story::{Story, at, flow, flow_change, id, name, now};

/// A database, and how statements are sent to it.
pub(crate) struct Bench<'b> {
    pub(crate) open: &'b dyn Fn() -> Arc<dyn Store>,
    pub(crate) ask: &'b dyn Fn(&str),
    /// How bytes are written that nobody can read.
    pub(crate) junk: &'static str,
}

fn commit(store: &dyn Store, changes: Vec<Change>) {
    let outcomes = block_on(store.commit(changes)).unwrap();
    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Committed), "{outcomes:?}");
}

fn rows(store: &dyn Store) -> Vec<String> {
    store.quarantine().rows().into_iter().map(|found| found.row.into_string()).collect()
}

fn raised(store: &dyn Store, named: &str) -> Change {
    let id = AlarmId(named.into());
    let before = block_on(store.alarm(&id)).unwrap();
    let (kind, task) = (StuckKind::Held.into(), TaskId(7));
    let raise = AlarmCommand::Raise { kind, task, step: None, message: "look at it".into() };
    let alarm = Alarm::apply(before.as_ref().map(|stored| &stored.alarm), &id, &raise, at(0)).unwrap();
    let before = before.map_or(0, |stored| stored.version);
    Change::Alarm(AlarmChange { alarm, before, consumes: None })
}

/// The task is accepted, and its first attempt is ready.
fn accept(story: &mut Story) -> Change {
    let Change::Task(mut change) = story.accept(0) else { unreachable!("a story is of a task") };
    change.waits = waits(&change.task).into_iter().map(Effect::Wait).collect();
    Change::Task(change)
}

fn owner(task: u128) -> LockOwner {
    LockOwner { task: TaskId(task), key: ActKey::forward(0), turn: 1 }
}

/// Applies a command to a lock. Returns the task that got the lock by that, and its fence.
fn tell(store: &dyn Store, lock: &str, command: &LockCommand) -> Option<(u128, u64)> {
    let current = block_on(store.locks_by_name(&[name(lock)])).unwrap().pop().unwrap();
    let transition = current.apply(command, at(1)).unwrap()?;
    let change = LockChange::new(current.version, transition, at(1), None);
    let granted = change.messages.iter().find_map(|envelope| match &envelope.message {
        Message::Granted { owner, fence, .. } => Some((owner.task.0, *fence)),
        _ => None,
    });
    commit(store, vec![Change::Lock(change)]);
    granted
}

pub(crate) fn the_other_rows_are_read(bench: &Bench<'_>) {
    let store = (bench.open)();
    let (sound, hurt) = (flow("sound", 1, OnFailure::Rollback), flow("hurt", 1, OnFailure::Rollback));
    let mut tasks = [Story::new(&sound, id(0, 1), 0, &[]), Story::new(&hurt, id(1, 2), 0, &[])];
    let mut changes = vec![flow_change(&sound), flow_change(&hurt)];
    changes.extend(tasks.iter_mut().map(|story| story.accept(0)));
    changes.extend(["one", "two"].map(|named| raised(&*store, named)));
    commit(&*store, changes);
    for lock in ["disk", "tape"] {
        assert!(tell(&*store, lock, &LockCommand::Acquire { owner: owner(1) }).is_some());
    }
    drop(store);
    let junk = bench.junk;
    for sql in [
        format!("UPDATE windlass_flow SET data = {junk} WHERE name = 'hurt'"),
        format!("UPDATE windlass_alarm SET data = {junk} WHERE id = 'two'"),
        // The message of lock disk; that of lock tape stays.
        format!("UPDATE windlass_message SET data = {junk} ORDER BY sender LIMIT 1"),
    ] {
        let sql = sql.replace(
            " ORDER BY sender LIMIT 1",
            " WHERE sender = (SELECT s FROM (SELECT min(sender) AS s FROM windlass_message) m)",
        );
        (bench.ask)(&sql.replace(
            "min(sender)",
            if junk.starts_with('\'') { "(array_agg(sender ORDER BY sender))[1]" } else { "min(sender)" },
        ));
    }
    let store = (bench.open)();
    // A flow: the tasks of the other one can be read, and no other flow takes its place.
    let loaded = block_on(store.load(&[tasks[0].task.id, tasks[1].task.id])).unwrap();
    assert!(loaded[0].is_some() && loaded[1].is_none());
    let named: Vec<String> =
        block_on(store.flows()).unwrap().iter().map(|stored| stored.flow.name.to_string()).collect();
    assert_eq!(named, ["sound"]);
    for version in [None, Some(1)] {
        let found = block_on(store.flow("hurt", version));
        assert!(matches!(found, Err(StoreError::Damaged(_))), "{found:?}");
        assert!(block_on(store.flow("sound", version)).unwrap().is_some());
        assert!(block_on(store.flow("none", version)).unwrap().is_none());
    }
    // An alarm: the next one of this id replaces it.
    let ids = |store: &dyn Store| {
        let alarms = block_on(store.alarms(true, 9)).unwrap();
        let mut ids: Vec<String> = alarms.iter().map(|alarm| alarm.id.to_string()).collect();
        ids.sort();
        ids
    };
    assert_eq!(ids(&*store), ["one"]);
    let unreadable = block_on(store.alarm(&AlarmId("two".into()))).unwrap().unwrap();
    assert_eq!(unreadable.alarm.state, AlarmState::Resolved);
    commit(&*store, vec![raised(&*store, "two")]);
    assert_eq!(ids(&*store), ["one", "two"]);
    // A message.
    let messages = block_on(store.messages(9)).unwrap();
    assert_eq!(messages.len(), 1, "{messages:?}");
    let found = rows(&*store);
    for row in ["alarm.two", "flow.hurt.1", "message.lock.disk."] {
        assert!(found.iter().any(|found| found.starts_with(row)), "{row}: {found:?}");
    }
    assert_eq!(found.len(), 3, "{found:?}");
}

pub(crate) fn a_damaged_lock_is_closed(bench: &Bench<'_>) {
    let store = (bench.open)();
    let (_, fence) = tell(&*store, "disk", &LockCommand::Acquire { owner: owner(1) }).unwrap();
    for task in [2, 3] {
        assert_eq!(tell(&*store, "disk", &LockCommand::Acquire { owner: owner(task) }), None);
    }
    (bench.ask)(&format!("UPDATE windlass_lock SET holder = {}", bench.junk));
    // What was decided on the lock as it was is void; and nobody gets it.
    assert_eq!(tell(&*store, "disk", &LockCommand::Release { owner: owner(1) }), None);
    assert_eq!(tell(&*store, "disk", &LockCommand::Acquire { owner: owner(4) }), None);
    assert_eq!(rows(&*store), ["lock.disk"]);
    assert_eq!(block_on(store.free_locks(9)), Ok(Vec::new()), "the janitor does not delete it");
    drop(store);
    let store = (bench.open)();
    assert!(
        block_on(store.locks(None, 9)).unwrap()[0].is_closed(),
        "its row is sound by now, and it is closed"
    );
    assert_eq!(rows(&*store), ["lock.disk"]);
    let seize = LockCommand::Seize { reason: "nobody has it".into(), by: None };
    let (task, next) = tell(&*store, "disk", &seize).unwrap();
    assert!(task == 2 && next > fence, "{task} {next}");
    // One who waits and cannot be read is left out.
    (bench.ask)(&format!("UPDATE windlass_lock_waiter SET waiter = {}", bench.junk));
    assert_eq!(block_on(store.lock(&name("disk"))).unwrap().unwrap().waiting(), 0);
    assert!(rows(&*store).iter().any(|row| row.starts_with("lock_waiter.disk.")));
}

pub(crate) fn damaged_events_hold_up_their_own_task(bench: &Bench<'_>) {
    let store = (bench.open)();
    let flow = flow("f", 1, OnFailure::Rollback);
    let mut tasks: Vec<Story> = (1..=5).map(|n| Story::new(&flow, id(n, n.unsigned_abs()), 0, &[])).collect();
    let accepted = tasks.iter_mut().map(|story| story.accept(0)).map(|change| match change {
        Change::Task(mut change) => {
            change.announces = true;
            Change::Task(change)
        }
        other => other,
    });
    let changes = std::iter::once(flow_change(&flow)).chain(accepted).collect();
    commit(&*store, changes);
    let all = block_on(store.unannounced(TaskId::NONE, 9)).unwrap();
    assert_eq!(all.len(), 5);
    let first: Vec<String> = all[..2].iter().map(|found| format!("{:032x}", found.task.0)).collect();
    let literal = |hex: &String| {
        if bench.junk.starts_with('\'') { format!("'{hex}'::uuid") } else { format!("x'{hex}'") }
    };
    let hurt: Vec<String> = first.iter().map(literal).collect();
    (bench.ask)(&format!(
        "UPDATE windlass_history SET events = {} WHERE task IN ({})",
        bench.junk,
        hurt.join(", ")
    ));
    for limit in 1..=9 {
        let found = block_on(store.unannounced(TaskId::NONE, limit)).unwrap();
        assert_eq!(found, all[2..5.min(2 + limit)], "at most {limit}");
    }
    assert_eq!(rows(&*store).len(), 2);
}

const SESSION: SessionId = SessionId(7);

/// What a worker gets of the queue `module`.
fn claimed(store: &dyn Store) -> Vec<AttemptId> {
    let claim_requests = [ClaimRequest { module: name("module"), commands: None, free: 9 }];
    let later = Now { mono: Millis(10_000), ..now(10_000) };
    let (lease, poll) = (Millis(60_000), PollState::Unknown);
    let renewal = SessionRenewal { session: SESSION, poll, lease, lease_unpolled: lease, worker: None };
    block_on(store.renew(vec![renewal], later)).unwrap();
    let claimed = block_on(claim(store, SESSION, &claim_requests, later)).unwrap();
    claimed.into_iter().map(|claimed| claimed.id).collect()
}

fn release(store: &dyn Store, id: AttemptId) {
    block_on(store.release(SESSION, id, None, now(10_000))).unwrap();
}

pub(crate) fn a_damaged_limit_closes_its_queue(bench: &Bench<'_>) {
    let store = (bench.open)();
    let flow = flow("f", 1, OnFailure::Rollback);
    let mut story = Story::new(&flow, id(0, 1), 0, &[]);
    let limit = Limit {
        name: name("few"),
        queue: name("module"),
        command: None,
        per_key: false,
        running: Some(5),
        starts: None,
    };
    let set = |limit| Change::Limit(LimitChange { name: name("few"), limit });
    let pause = QueueChange { name: name("paused"), paused: Some(QueuePause { at: at(0), by: None }) };
    commit(&*store, vec![flow_change(&flow), accept(&mut story), set(Some(limit)), Change::Queue(pause)]);
    for damage in ["running = -5", "command = 'no name'"] {
        (bench.ask)(&format!("UPDATE windlass_limit SET {damage}"));
        assert_eq!(claimed(&*store), [], "{damage}");
        let states = block_on(store.limits(now(0))).unwrap();
        assert_eq!(states[0].limit, Limit::closed(name("few"), name("module")));
        assert_eq!(rows(&*store), ["limit.few"]);
    }
    commit(&*store, vec![set(None)]);
    let [id] = claimed(&*store)[..] else { panic!("the queue is open") };
    release(&*store, id);
    (bench.ask)("UPDATE windlass_queue SET name = 'no name' WHERE name = 'paused'");
    let queues = block_on(store.queues()).unwrap();
    assert_eq!(queues.iter().map(|queue| queue.name.as_str()).collect::<Vec<_>>(), ["module"]);
    assert!(rows(&*store).contains(&"queue.no_name".to_owned()));
}

/// Nothing of a task that is known to be damaged is claimed, so nothing of it takes up a place of a limit.
pub(crate) fn a_damaged_task_takes_up_no_place(bench: &Bench<'_>) {
    let flow = flow("f", 1, OnFailure::Rollback);
    let limit = Limit {
        name: name("one"),
        queue: name("module"),
        command: None,
        per_key: false,
        running: Some(1),
        starts: None,
    };
    for limit in [None, Some(limit)] {
        let store = (bench.open)();
        (bench.ask)("DELETE FROM windlass_wait");
        let n = if limit.is_some() { 10 } else { 0 };
        let mut tasks = [Story::new(&flow, id(n, 1), 0, &[]), Story::new(&flow, id(n + 1, 2), 0, &[])];
        let mut changes: Vec<Change> = tasks.iter_mut().map(accept).collect();
        if limit.is_none() {
            changes.insert(0, flow_change(&flow));
        }
        changes.push(Change::Limit(LimitChange { name: name("one"), limit: limit.clone() }));
        commit(&*store, changes);
        let hurt = format!("{:032x}", tasks[0].task.id.0);
        let (table, key) = if bench.junk.starts_with('\'') {
            ("windlass_task", format!("id = '{hurt}'::uuid"))
        } else {
            ("windlass_state", format!("task = x'{hurt}'"))
        };
        (bench.ask)(&format!("UPDATE {table} SET state = {} WHERE {key}", bench.junk));
        drop(store);
        let store = (bench.open)();
        let met = claimed(&*store);
        assert!(met.iter().any(|id| id.task == tasks[0].task.id), "nobody knows yet that it is damaged");
        assert!(block_on(store.load(&[tasks[0].task.id])).unwrap()[0].is_none());
        met.into_iter().for_each(|id| release(&*store, id));
        let again = claimed(&*store);
        assert_eq!(again.iter().map(|id| id.task).collect::<Vec<_>>(), [tasks[1].task.id], "{limit:?}");
        again.into_iter().for_each(|id| release(&*store, id));
    }
}

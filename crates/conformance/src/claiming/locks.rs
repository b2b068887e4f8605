//! Locks: stored with their holder and waiters, changed by version, deleted when free.

use std::sync::Arc;

use windlass_core::{
    ActKey, Candidacy, Command, Leader, Lock, LockCommand, LockName, LockOwner, LockRef, Message, Millis,
    Name, TaskId, Timestamp,
};
use windlass_store::{Change, Envelope, LockChange, Outcome, Sender, TaskChange};

use crate::{World, history::line, topic};

topic![
    a_lock_is_kept_as_long_as_somebody_has_it_or_waits,
    a_change_on_another_version_changes_nothing,
    a_lock_and_a_task_consume_one_anothers_messages_once,
    locks_are_listed_by_name,
    what_builds_on_a_change_that_failed_conflicts,
    a_message_that_finds_nothing_to_do_is_consumed_once,
    the_fence_of_a_deleted_lock_grows_though_the_clock_went_back,
    what_was_decided_below_the_floor_is_a_conflict,
    the_floor_of_locks_stays_over_a_restart,
    a_task_changes_under_the_fence_of_its_exclusive_queue_alone,
    a_leader_is_stored_with_what_is_known_of_it,
];

fn name(text: &str) -> Name {
    Name::new(text).expect("it is a name")
}

pub(crate) fn owner(task: u128) -> LockOwner {
    LockOwner { task: TaskId(task), key: ActKey::forward(0), turn: 1 }
}

async fn stored(world: &mut World, lock: &str) -> Option<Lock> {
    world.store().lock(&name(lock)).await.expect("reading a lock succeeds")
}

/// The lock that new changes build on.
async fn current(world: &mut World, lock: &str) -> Lock {
    let mut locks = world.store().locks_by_name(&[name(lock)]).await.expect("reading a lock succeeds");
    locks.pop().expect("there is one for each name")
}

/// The change that a command makes of the current lock.
pub(crate) async fn change(world: &mut World, lock: &str, command: &LockCommand) -> LockChange {
    let generation = world.store().generation();
    let lock = current(world, lock).await;
    let before = lock.version;
    let transition = lock.apply(command, world.now.wall).expect("it applies").expect("it changes something");
    LockChange::new(before, transition, world.now.wall, None).decided_in(generation)
}

async fn tell(world: &mut World, lock: &str, command: &LockCommand) -> Vec<Envelope> {
    let change = change(world, lock, command).await;
    let messages = change.messages.clone();
    assert_eq!(world.commit_one(Change::Lock(change)).await, Outcome::Committed);
    messages
}

async fn a_lock_is_kept_as_long_as_somebody_has_it_or_waits(mut world: World) {
    assert!(stored(&mut world, "disk").await.is_none());
    for task in [1, 2, 3] {
        tell(&mut world, "disk", &LockCommand::Acquire { owner: owner(task) }).await;
    }
    let lock = stored(&mut world, "disk").await.expect("somebody has it");
    assert_eq!(lock.holder.map(|holder| holder.owner), Some(owner(1)));
    let waiting: Vec<_> = lock.waiters().map(|waiter| waiter.owner).collect();
    assert_eq!(waiting, [owner(2), owner(3)]);
    tell(&mut world, "disk", &LockCommand::Release { owner: owner(2) }).await;
    let first = lock.holder.expect("somebody has it").fence;
    tell(&mut world, "disk", &LockCommand::Release { owner: owner(1) }).await;
    let lock = stored(&mut world, "disk").await.expect("somebody has it");
    assert_eq!(lock.holder.map(|holder| holder.owner), Some(owner(3)));
    assert!(lock.holder.is_some_and(|holder| holder.fence > first) && lock.waiting() == 0);
    tell(&mut world, "disk", &LockCommand::Release { owner: owner(3) }).await;
    assert!(stored(&mut world, "disk").await.is_none());
}

async fn a_change_on_another_version_changes_nothing(mut world: World) {
    let first = change(&mut world, "disk", &LockCommand::Acquire { owner: owner(1) }).await;
    let second = change(&mut world, "disk", &LockCommand::Acquire { owner: owner(2) }).await;
    let outcomes = world.commit(vec![Change::Lock(first), Change::Lock(second)]).await;
    assert_eq!(outcomes, [Outcome::Committed, Outcome::Conflict]);
    let lock = stored(&mut world, "disk").await.expect("somebody has it");
    assert_eq!((lock.holder.map(|holder| holder.owner), lock.waiting()), (Some(owner(1)), 0));
    assert_eq!(world.messages().await.len(), 1, "what conflicts sends nothing");
}

async fn a_lock_and_a_task_consume_one_anothers_messages_once(mut world: World) {
    let mut flow = line("locked", 1);
    flow.steps[0].locks = vec![LockRef::Name(name("disk"))];
    let flow = world.add_flow(flow).await;
    let id = world.submit(&flow).await;
    let asked = world.messages().await.remove(0);
    assert_eq!(asked.id.sender, Sender::Task(id));
    let Message::Lock { name: lock, command } = &asked.message else {
        panic!("it asks for a lock: {asked:?}")
    };
    let mut given = change(&mut world, lock, command).await;
    given.consumes = Some(asked.id.clone());
    let outcomes = world.commit(vec![Change::Lock(given.clone()), Change::Lock(given)]).await;
    assert_eq!(outcomes, [Outcome::Committed, Outcome::Conflict]);
    let granted = world.messages().await;
    assert_eq!(granted.len(), 1);
    assert_eq!(granted[0].id.sender, Sender::Lock(name("disk")));
    let Message::Granted { owner, name, fence } = granted[0].message.clone() else {
        panic!("it is given: {granted:?}")
    };
    let command = Command::Granted { key: owner.key, turn: owner.turn, name, fence };
    let change = world.decide(id, &command).await;
    let change = TaskChange { consumes: Some(granted[0].id.clone()), ..change };
    let outcomes = world.commit(vec![change.clone().into(), change.into()]).await;
    assert_eq!(outcomes, [Outcome::Committed, Outcome::Conflict]);
    assert_eq!(world.messages().await, []);
    let session = world.session(1).await;
    assert_eq!(world.claim_one(session).await.id.task, id, "with its lock it is handed out");
}

async fn locks_are_listed_by_name(mut world: World) {
    for (task, lock) in [(1, "b"), (2, "a"), (3, "c")] {
        tell(&mut world, lock, &LockCommand::Acquire { owner: owner(task) }).await;
    }
    let names = |locks: Vec<Lock>| locks.iter().map(|lock| lock.name.to_string()).collect::<Vec<_>>();
    let after: Option<&LockName> = None;
    let first = world.store().locks(after, 2).await.expect("listing locks succeeds");
    assert_eq!(names(first), ["a", "b"]);
    let rest = world.store().locks(Some(&name("b")), 2).await.expect("listing locks succeeds");
    assert_eq!(names(rest), ["c"]);
}

async fn what_builds_on_a_change_that_failed_conflicts(mut world: World) {
    let acquire = |task| LockCommand::Acquire { owner: owner(task) };
    let sends = change(&mut world, "disk", &acquire(1)).await;
    let first = LockChange {
        consumes: Some(sends.messages[0].id.clone()),
        ..change(&mut world, "net", &acquire(2)).await
    };
    let transition = first.lock.apply(&acquire(3), world.now.wall).expect("it applies").expect("it waits");
    let second =
        LockChange::new(first.lock.version, transition, world.now.wall, None).decided_in(first.generation);
    // Neither lock is what was read any more, and one has the version that the last change is built on.
    tell(&mut world, "disk", &acquire(4)).await;
    tell(&mut world, "net", &acquire(5)).await;
    assert_eq!(current(&mut world, "net").await.version, second.before);
    // Another message has the id of the one that was not sent.
    let sent = world.messages().await;
    assert!(sent.iter().any(|envelope| envelope.id == sends.messages[0].id));
    let third =
        LockChange { consumes: first.consumes.clone(), ..change(&mut world, "cpu", &acquire(6)).await };
    let outcomes = world.commit([sends, first, second, third].map(Change::Lock).into()).await;
    assert_eq!(outcomes, vec![Outcome::Conflict; 4]);
    assert_eq!(current(&mut world, "net").await.waiters().count(), 0);
    assert_eq!(world.messages().await, sent);
}

async fn a_message_that_finds_nothing_to_do_is_consumed_once(mut world: World) {
    let messages = tell(&mut world, "disk", &LockCommand::Acquire { owner: owner(1) }).await;
    let id = messages[0].id.clone();
    let outcomes = world.commit(vec![Change::Consume(id.clone()), Change::Consume(id)]).await;
    assert_eq!(outcomes, [Outcome::Committed, Outcome::Conflict]);
    assert_eq!(world.messages().await, []);
}

/// Deletes the free locks, as the janitor does.
async fn delete_free(world: &mut World) -> Vec<Outcome> {
    let free = world.store().free_locks(10).await.expect("listing free locks succeeds");
    let now = world.now.wall;
    world.commit(free.into_iter().map(|lock| Change::Lock(LockChange::delete(lock, now))).collect()).await
}

/// An execution gets the lock and releases it. Returns the fence.
async fn hold_once(world: &mut World, lock: &str, task: u128) -> u64 {
    tell(world, lock, &LockCommand::Acquire { owner: owner(task) }).await;
    let holder = stored(world, lock).await.and_then(|lock| lock.holder).expect("it has a holder");
    assert_eq!(holder.owner, owner(task));
    tell(world, lock, &LockCommand::Release { owner: owner(task) }).await;
    holder.fence
}

async fn the_fence_of_a_deleted_lock_grows_though_the_clock_went_back(mut world: World) {
    let mut fences = vec![hold_once(&mut world, "disk", 1).await, hold_once(&mut world, "disk", 2).await];
    let late = world.now;
    world.now.wall = Timestamp(late.wall.0 - 3_600_000);
    for task in 3..6 {
        assert_eq!(delete_free(&mut world).await, [Outcome::Committed]);
        assert_eq!(delete_free(&mut world).await, [], "it is deleted");
        fences.push(hold_once(&mut world, "disk", task).await);
    }
    world.now.wall = late.wall;
    assert!(fences.is_sorted_by(|one, next| one < next), "{fences:?}");
}

async fn what_was_decided_below_the_floor_is_a_conflict(mut world: World) {
    let first = hold_once(&mut world, "disk", 1).await;
    let on_stored = change(&mut world, "disk", &LockCommand::Acquire { owner: owner(2) }).await;
    let now = world.now.wall;
    let deleted = Change::Lock(LockChange::delete(current(&mut world, "disk").await, now));
    let below = change(&mut world, "other", &LockCommand::Acquire { owner: owner(3) }).await;
    // The floor equals the version of the deleted lock, so a decision based on it is valid.
    let outcomes = world.commit(vec![deleted, Change::Lock(below), Change::Lock(on_stored)]).await;
    assert_eq!(outcomes, [Outcome::Committed, Outcome::Conflict, Outcome::Committed]);
    let holder = stored(&mut world, "disk").await.and_then(|lock| lock.holder).expect("it has a holder");
    assert!(holder.owner == owner(2) && holder.fence > first, "{holder:?} {first}");
    tell(&mut world, "disk", &LockCommand::Release { owner: owner(2) }).await;

    // A lock that is requested before its deletion stays.
    let deleted = LockChange::delete(current(&mut world, "disk").await, now);
    tell(&mut world, "disk", &LockCommand::Acquire { owner: owner(5) }).await;
    assert_eq!(world.commit_one(Change::Lock(deleted)).await, Outcome::Conflict);
    assert_eq!(stored(&mut world, "disk").await.and_then(|lock| lock.holder).unwrap().owner, owner(5));
}

async fn the_floor_of_locks_stays_over_a_restart(mut world: World) {
    let first = hold_once(&mut world, "disk", 1).await;
    assert_eq!(delete_free(&mut world).await, [Outcome::Committed]);
    let floor = world.store().lock_floor().await.expect("reading the floor succeeds");
    assert!(floor >= first, "{floor} {first}");
    world.reopen().await;
    assert_eq!(world.store().lock_floor().await, Ok(floor));
    assert!(hold_once(&mut world, "disk", 2).await > first);
}

async fn a_task_changes_under_the_fence_of_its_exclusive_queue_alone(mut world: World) {
    let flow = world.add_flow(line("order", 1)).await;
    let id = world.submit(&flow).await;
    tell(&mut world, "orders", &LockCommand::Join { owner: LockOwner::task(id, 1), order: None }).await;
    let other = LockOwner::task(TaskId(2), 1);
    tell(&mut world, "orders", &LockCommand::Join { owner: other, order: None }).await;
    let fence = current(&mut world, "orders").await.holder.expect("the task has it").fence;
    let pause = Command::Pause { by: None };
    let under = |change: TaskChange, queue: &str, fence: u64| TaskChange {
        fence: Some((name(queue), fence)),
        ..change
    };
    let change = world.decide(id, &pause).await;
    let wrong = [("orders", fence + 1), ("orders", fence - 1), ("others", fence)];
    for (queue, fence) in wrong {
        let change = under(change.clone(), queue, fence);
        assert_eq!(world.commit_one(Change::from(change)).await, Outcome::Conflict, "{queue} {fence}");
    }
    assert_eq!(world.commit_one(Change::from(under(change, "orders", fence))).await, Outcome::Committed);
    // The queue passes on in the commit before the change, and in the same one.
    let seize = LockCommand::Seize { reason: "gone".into(), by: None };
    let resume = world.decide(id, &Command::Resume { by: None }).await;
    let passes = self::change(&mut world, "orders", &seize).await;
    let changes = vec![Change::Lock(passes), Change::from(under(resume.clone(), "orders", fence))];
    assert_eq!(world.commit(changes).await, [Outcome::Committed, Outcome::Conflict]);
    assert_eq!(
        world.commit_one(Change::from(under(resume.clone(), "orders", fence))).await,
        Outcome::Conflict
    );
    assert_eq!(world.commit_one(Change::from(resume)).await, Outcome::Committed);
}

async fn a_leader_is_stored_with_what_is_known_of_it(mut world: World) {
    let leader = Arc::new(Leader {
        name: "fleet/leader".into(),
        id: "host-1".into(),
        value: "10.0.0.7:80".into(),
        lease: Millis(4_000),
    });
    let candidacy = Candidacy { campaign: u128::MAX, leader: leader.clone(), renews: None, over: None };
    tell(&mut world, "leader..x", &LockCommand::Lead(candidacy.clone())).await;
    let elected = stored(&mut world, "leader..x").await.expect("it leads");
    let fence = elected.fence_of(u128::MAX).expect("it leads");
    world.reopen().await;
    let read = stored(&mut world, "leader..x").await.expect("it leads after a restart");
    assert_eq!((&read.leader, read.fence_of(u128::MAX)), (&Some(leader), Some(fence)));
    let listed = world.store().locks(None, 10).await.expect("listing locks succeeds");
    assert_eq!(listed, [read]);
    // Another candidate takes it at the version at which the lease is over, and at no other.
    let renewal = Candidacy { renews: Some(fence), ..candidacy.clone() };
    let over = Candidacy { campaign: 2, over: Some(elected.version), ..candidacy };
    let takes = change(&mut world, "leader..x", &LockCommand::Lead(over)).await;
    tell(&mut world, "leader..x", &LockCommand::Lead(renewal)).await;
    assert_eq!(world.commit_one(Change::Lock(takes)).await, Outcome::Conflict);
    tell(&mut world, "leader..x", &LockCommand::Release { owner: LockOwner::leader(u128::MAX) }).await;
    assert!(stored(&mut world, "leader..x").await.is_none());
}

//! Locks: kept with who has them and who waits, changed in their version, gone when nobody needs them.

use windlass_core::{
    ActKey, Command, Lock, LockCommand, LockName, LockOwner, LockRef, Message, Millis, Name, TaskId,
};

use super::{World, history::line, topic};
use crate::ports::{Change, Envelope, LockChange, Outcome, Sender};

topic![
    a_lock_is_kept_as_long_as_somebody_has_it_or_waits,
    a_change_on_another_version_changes_nothing,
    a_lock_and_a_task_consume_one_anothers_messages_once,
    locks_are_listed_by_name,
    a_message_that_finds_nothing_to_do_is_consumed_once,
];

fn name(text: &str) -> Name {
    Name::new(text).expect("it is a name")
}

fn owner(task: u128) -> LockOwner {
    LockOwner { task: TaskId(task), key: ActKey::forward(0), turn: 1 }
}

async fn stored(world: &mut World, lock: &str) -> Option<Lock> {
    world.store().lock(&name(lock)).await.expect("reading a lock succeeds")
}

/// The change that a command asks for, on the lock as it is now.
async fn change(world: &mut World, lock: &str, command: &LockCommand) -> LockChange {
    let stored = stored(world, lock).await;
    let before = stored.as_ref().map_or(0, |lock| lock.version);
    let lock = stored.unwrap_or_else(|| Lock::new(name(lock)));
    let transition = lock.apply(command, world.now.wall).expect("it applies").expect("it changes something");
    LockChange::new(before, transition, world.now.wall, None)
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
    // Later than its number, so that the next one of its name has a higher one.
    world.pass(Millis(1_000));
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
    let change = crate::ports::TaskChange { consumes: Some(granted[0].id.clone()), ..change };
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

async fn a_message_that_finds_nothing_to_do_is_consumed_once(mut world: World) {
    let messages = tell(&mut world, "disk", &LockCommand::Acquire { owner: owner(1) }).await;
    let id = messages[0].id.clone();
    let outcomes = world.commit(vec![Change::Consume(id.clone()), Change::Consume(id)]).await;
    assert_eq!(outcomes, [Outcome::Committed, Outcome::Conflict]);
    assert_eq!(world.messages().await, []);
}

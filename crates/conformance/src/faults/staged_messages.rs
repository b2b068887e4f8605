//! Messages of changes that have not reached the disk: later changes consume them, and nobody else sees them.

use std::sync::Arc;

use windlass_core::LockCommand;
use windlass_store::{Change, LockChange, Outcome};

use crate::{
    World,
    claiming::locks::{change, owner},
    faults::staging::{GatedCase, begin},
    gate::Gate,
};

/// The cases about messages on their way to the disk.
pub(crate) fn cases() -> Vec<GatedCase> {
    vec![
        |world, gate| Box::pin(a_message_is_consumed_in_the_commit_that_sends_it(world, gate)),
        |world, gate| Box::pin(a_message_that_is_not_on_disk_is_not_delivered(world, gate)),
        |world, gate| Box::pin(a_lock_that_was_decided_on_what_was_lost_conflicts(world, gate)),
    ]
}

/// `task` asks for the lock `disk`. The one who gets it receives a message.
async fn acquire(world: &mut World, task: u128) -> LockChange {
    change(world, "disk", &LockCommand::Acquire { owner: owner(task) }).await
}

async fn a_message_is_consumed_in_the_commit_that_sends_it(mut world: World, _: Arc<Gate>) {
    let sends = acquire(&mut world, 1).await;
    let consumes = Change::Consume(sends.messages[0].id.clone());
    let outcomes = world.commit(vec![Change::Lock(sends), consumes.clone()]).await;
    assert_eq!(outcomes, [Outcome::Committed, Outcome::Committed]);
    assert_eq!(world.messages().await, []);
    assert_eq!(world.commit_one(consumes).await, Outcome::Conflict);
    world.reopen().await;
    assert_eq!(world.messages().await, []);
}

async fn a_message_that_is_not_on_disk_is_not_delivered(mut world: World, gate: Arc<Gate>) {
    let sends = acquire(&mut world, 1).await;
    let envelope = sends.messages[0].clone();
    gate.close();
    let sending = begin(&mut world, vec![Change::Lock(sends)]);
    assert_eq!(world.messages().await, [], "another message may get its number");
    gate.open();
    assert_eq!(sending.await.expect("it is written"), [Outcome::Committed]);
    assert_eq!(world.messages().await, [envelope]);
}

async fn a_lock_that_was_decided_on_what_was_lost_conflicts(mut world: World, gate: Arc<Gate>) {
    let lost = acquire(&mut world, 1).await;
    gate.close();
    let acquiring = begin(&mut world, vec![Change::Lock(lost)]);
    let stale = acquire(&mut world, 2).await;
    gate.fail();
    assert!(acquiring.await.is_err());
    world.load_nothing().await;
    // The lock reaches the same version in another way.
    let other = acquire(&mut world, 3).await;
    assert_eq!(other.lock.version, stale.before);
    assert_eq!(world.commit_one(Change::Lock(other.clone())).await, Outcome::Committed);
    assert_eq!(world.commit_one(Change::Lock(stale)).await, Outcome::Conflict);
    assert_eq!(acquire(&mut world, 4).await.lock.holder, other.lock.holder);
}

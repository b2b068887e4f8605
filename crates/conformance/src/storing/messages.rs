//! Messages between aggregates: written with their sender's change, consumed once with their receiver's change.

use windlass_core::{Alarm, AlarmCommand, Message, OnFailure, Resolution};
use windlass_store::{AlarmChange, Change, Envelope, MessageId, Outcome, Sender};

use crate::{World, history::line, topic};

topic![
    a_message_comes_with_its_senders_change,
    a_message_is_consumed_once,
    a_change_whose_message_is_gone_changes_nothing,
    a_message_may_change_nothing,
    messages_wait_in_order_and_no_more_are_read_than_asked_for,
];

/// A task whose first step has failed and is held: it has sent the message that raises an alarm.
pub(crate) async fn held(world: &mut World) -> windlass_core::TaskId {
    let flow = match world.store().flow("held", None).await.expect("reading flows succeeds") {
        Some(stored) => stored.flow,
        None => world.add_flow(windlass_core::Flow { on_failure: OnFailure::Hold, ..line("held", 1) }).await,
    };
    let id = world.submit(&flow).await;
    let session = world.session(1).await;
    let claimed = world.claim_one(session).await;
    assert_eq!(claimed.id.task, id);
    world.fail(&claimed).await;
    id
}

/// The change that a message makes of its alarm in the current state.
pub(crate) async fn delivery(world: &mut World, envelope: &Envelope) -> AlarmChange {
    let Message::Alarm { id, command } = &envelope.message else { panic!("it is to an alarm: {envelope:?}") };
    let stored = world.store().alarm(id).await.expect("reading an alarm succeeds");
    let now = world.now.wall;
    let alarm =
        Alarm::apply(stored.as_ref().map(|stored| &stored.alarm), id, command, now).expect("it applies");
    AlarmChange {
        before: stored.map_or(0, |stored| stored.version),
        alarm,
        consumes: Some(envelope.id.clone()),
    }
}

/// Delivers all waiting messages.
pub(crate) async fn deliver(world: &mut World) {
    for envelope in world.messages().await {
        let change = delivery(world, &envelope).await;
        assert_eq!(world.commit_one(Change::Alarm(change)).await, Outcome::Committed);
    }
}

async fn a_message_comes_with_its_senders_change(mut world: World) {
    assert_eq!(world.messages().await, []);
    let id = held(&mut world).await;
    let messages = world.messages().await;
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0].id.sender, Sender::Task(id));
    assert!(matches!(&messages[0].message,
        Message::Alarm { command: AlarmCommand::Raise { task, .. }, .. } if *task == id));
    assert_eq!(world.messages().await, messages, "it waits until it is consumed");
}

async fn a_message_is_consumed_once(mut world: World) {
    held(&mut world).await;
    let envelope = world.messages().await.remove(0);
    let change = delivery(&mut world, &envelope).await;
    assert_eq!(world.commit_one(Change::Alarm(change.clone())).await, Outcome::Committed);
    assert_eq!(world.messages().await, []);
    assert_eq!(world.commit_one(Change::Alarm(change)).await, Outcome::Conflict);
    // Also when the receiver's version is right.
    let again = delivery(&mut world, &envelope).await;
    let id = again.alarm.as_ref().expect("it is raised again").id.clone();
    assert_eq!(world.commit_one(Change::Alarm(again)).await, Outcome::Conflict);
    let alarm = world.store().alarm(&id).await.expect("reading an alarm succeeds").expect("it was raised");
    assert_eq!((alarm.version, alarm.alarm.raised), (1, 1));
}

async fn a_change_whose_message_is_gone_changes_nothing(mut world: World) {
    let id = held(&mut world).await;
    let envelope = world.messages().await.remove(0);
    let mut change = delivery(&mut world, &envelope).await;
    change.consumes = Some(MessageId { sender: Sender::Task(id), n: envelope.id.n + 1_000 });
    let alarm = change.alarm.as_ref().expect("it is raised").id.clone();
    assert_eq!(world.commit_one(Change::Alarm(change)).await, Outcome::Conflict);
    assert_eq!(world.messages().await, [envelope]);
    assert!(world.store().alarm(&alarm).await.expect("reading an alarm succeeds").is_none());
}

async fn a_message_may_change_nothing(mut world: World) {
    held(&mut world).await;
    let envelope = world.messages().await.remove(0);
    let nothing = AlarmChange { before: 0, alarm: None, consumes: Some(envelope.id.clone()) };
    let outcomes = world.commit(vec![Change::Alarm(nothing.clone()), Change::Alarm(nothing)]).await;
    assert_eq!(outcomes, [Outcome::Committed, Outcome::Conflict]);
    assert_eq!(world.messages().await, []);
    assert_eq!(world.store().alarms(true, 10).await.expect("listing alarms succeeds"), []);
}

async fn messages_wait_in_order_and_no_more_are_read_than_asked_for(mut world: World) {
    let id = held(&mut world).await;
    let retry = windlass_core::Command::Resolve { step: 0, resolution: Resolution::Retry(None), by: None };
    world.apply(id, retry).await;
    let other = held_again(&mut world, id).await;
    let messages = world.messages().await;
    let of = |task| {
        let sender = Sender::Task(task);
        messages.iter().filter(|message| message.id.sender == sender).collect::<Vec<_>>()
    };
    assert_eq!((of(id).len(), of(other).len()), (3, 1), "raised, cleared, raised · raised");
    assert!(of(id).windows(2).all(|pair| pair[0].id < pair[1].id), "a sender's messages keep their order");
    let first = world.store().messages(2).await.expect("reading messages succeeds");
    assert_eq!(first.len(), 2);
    deliver(&mut world).await;
    assert_eq!(world.messages().await, []);
    let alarms = world.store().alarms(true, 10).await.expect("listing alarms succeeds");
    assert_eq!(alarms.iter().find(|alarm| alarm.task == id).map(|alarm| alarm.raised), Some(2));
}

/// Fails the retried step of `id`, then holds another task.
async fn held_again(world: &mut World, id: windlass_core::TaskId) -> windlass_core::TaskId {
    let session = world.session(1).await;
    let claimed = world.claim_one(session).await;
    assert_eq!(claimed.id.task, id);
    world.fail(&claimed).await;
    held(world).await
}

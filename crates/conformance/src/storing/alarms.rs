//! Alarms: stored with versions, listed for operators.

use windlass_core::{Alarm, AlarmCommand, AlarmState, Millis};
use windlass_store::{AlarmChange, Change, Outcome, StoredAlarm};

use crate::{
    World,
    storing::messages::{deliver, held},
    topic,
};

topic![
    an_alarm_is_kept_with_its_version,
    a_change_of_an_old_version_is_a_conflict,
    a_change_fails_with_the_one_it_was_built_on,
    those_raised_last_are_listed_first,
    resolved_ones_are_listed_only_when_asked_for,
    an_unknown_alarm_is_not_there,
];

async fn alarms(world: &mut World, all: bool, limit: usize) -> Vec<Alarm> {
    world.store().alarms(all, limit).await.expect("listing alarms succeeds")
}

async fn stored(world: &mut World, alarm: &Alarm) -> StoredAlarm {
    world.store().alarm(&alarm.id).await.expect("reading an alarm succeeds").expect("the alarm is there")
}

async fn tell(world: &mut World, stored: &StoredAlarm, command: &AlarmCommand) -> Outcome {
    let alarm =
        Alarm::apply(Some(&stored.alarm), &stored.alarm.id, command, world.now.wall).expect("it applies");
    world.commit_one(Change::Alarm(AlarmChange { before: stored.version, alarm, consumes: None })).await
}

async fn an_alarm_is_kept_with_its_version(mut world: World) {
    let id = held(&mut world).await;
    deliver(&mut world).await;
    let listed = alarms(&mut world, false, 10).await;
    assert_eq!(
        listed.iter().map(|alarm| (alarm.task, alarm.state)).collect::<Vec<_>>(),
        [(id, AlarmState::Raised)]
    );
    let raised = stored(&mut world, &listed[0]).await;
    assert_eq!(raised, StoredAlarm { alarm: listed[0].clone(), version: 1 });
    let acknowledge = AlarmCommand::Acknowledge { by: None };
    assert_eq!(tell(&mut world, &raised, &acknowledge).await, Outcome::Committed);
    let seen = stored(&mut world, &listed[0]).await;
    assert_eq!((seen.version, seen.alarm.state), (2, AlarmState::Acknowledged));
    assert_eq!(alarms(&mut world, false, 10).await, [seen.alarm]);
}

/// Two servers hear the same; one of them decides one more. The version alone would let that pass.
async fn a_change_fails_with_the_one_it_was_built_on(mut world: World) {
    held(&mut world).await;
    deliver(&mut world).await;
    let listed = alarms(&mut world, false, 10).await;
    let raised = stored(&mut world, &listed[0]).await;
    let resolve = AlarmCommand::Resolve { by: None };
    let alarm = &raised.alarm;
    let again = AlarmCommand::Raise {
        kind: alarm.kind,
        task: alarm.task,
        step: alarm.step.clone(),
        message: alarm.message.clone(),
    };
    let apply = |alarm: &Alarm, command: &AlarmCommand, at| {
        Alarm::apply(Some(alarm), &alarm.id, command, at).expect("it applies").expect("it changes")
    };
    let resolved = apply(alarm, &resolve, world.now.wall);
    let raised_anew = apply(&resolved, &again, world.now.wall);
    assert_eq!(tell(&mut world, &raised, &again).await, Outcome::Committed);
    let change = |before, alarm| Change::Alarm(AlarmChange { before, alarm: Some(alarm), consumes: None });
    let ours = vec![change(raised.version, resolved), change(raised.version + 1, raised_anew)];
    assert_eq!(world.commit(ours).await, [Outcome::Conflict, Outcome::Conflict]);
    assert_eq!(stored(&mut world, &listed[0]).await.version, raised.version + 1);
}

async fn a_change_of_an_old_version_is_a_conflict(mut world: World) {
    held(&mut world).await;
    deliver(&mut world).await;
    let listed = alarms(&mut world, false, 10).await;
    let raised = stored(&mut world, &listed[0]).await;
    let acknowledge = AlarmCommand::Acknowledge { by: None };
    assert_eq!(tell(&mut world, &raised, &acknowledge).await, Outcome::Committed);
    let resolve = AlarmCommand::Resolve { by: None };
    assert_eq!(tell(&mut world, &raised, &resolve).await, Outcome::Conflict);
    let seen = stored(&mut world, &listed[0]).await;
    assert_eq!((seen.version, seen.alarm.state), (2, AlarmState::Acknowledged));
    // Of two changes in one batch the second is outdated, and what follows may be built on it.
    let change = |before: u64| AlarmChange { before, alarm: Some(seen.alarm.clone()), consumes: None };
    let changes = [2, 2, 3].map(|before| Change::Alarm(change(before)));
    let expected = [Outcome::Committed, Outcome::Conflict, Outcome::Conflict];
    assert_eq!(world.commit(changes.into()).await, expected);
    // A new alarm must not exist.
    assert_eq!(world.commit_one(Change::Alarm(change(0))).await, Outcome::Conflict);
    assert_eq!(world.commit_one(Change::Alarm(change(3))).await, Outcome::Committed);
    assert_eq!(stored(&mut world, &listed[0]).await.version, 4);
}

async fn those_raised_last_are_listed_first(mut world: World) {
    let mut tasks = Vec::new();
    for _ in 0..4 {
        tasks.push(held(&mut world).await);
        deliver(&mut world).await;
        world.pass(Millis(10));
    }
    tasks.reverse();
    let listed = alarms(&mut world, false, 10).await;
    assert_eq!(listed.iter().map(|alarm| alarm.task).collect::<Vec<_>>(), tasks);
    let listed = alarms(&mut world, true, 2).await;
    assert_eq!(listed.iter().map(|alarm| alarm.task).collect::<Vec<_>>(), tasks[..2]);
}

async fn resolved_ones_are_listed_only_when_asked_for(mut world: World) {
    for _ in 0..3 {
        held(&mut world).await;
        deliver(&mut world).await;
        world.pass(Millis(10));
    }
    let listed = alarms(&mut world, false, 10).await;
    let first = stored(&mut world, &listed[0]).await;
    assert_eq!(tell(&mut world, &first, &AlarmCommand::Resolve { by: None }).await, Outcome::Committed);
    assert_eq!(alarms(&mut world, false, 10).await, listed[1..]);
    assert_eq!(alarms(&mut world, false, 1).await, listed[1..2], "resolved ones take no room");
    let all = alarms(&mut world, true, 10).await;
    assert_eq!(
        all.iter().map(|alarm| &alarm.id).collect::<Vec<_>>(),
        listed.iter().map(|alarm| &alarm.id).collect::<Vec<_>>()
    );
    assert_eq!(all[0].state, AlarmState::Resolved);
}

async fn an_unknown_alarm_is_not_there(mut world: World) {
    let id = windlass_core::AlarmId("held.nothing".into());
    assert!(world.store().alarm(&id).await.expect("reading an alarm succeeds").is_none());
    assert_eq!(alarms(&mut world, true, 10).await, []);
}

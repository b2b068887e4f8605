//! Alarms: raised, seen, over, and raised again.

use windlass_core::{
    Alarm, AlarmCommand, AlarmId, AlarmKind, AlarmRejection, AlarmState, Millis, Name, TaskId,
};

use crate::world::{START, anna};

fn id() -> AlarmId {
    AlarmId::new(AlarmKind::Held, TaskId(7), Some(&Name::new("a").unwrap()))
}

fn raise(message: &str) -> AlarmCommand {
    let step = Some(Name::new("a").unwrap());
    AlarmCommand::Raise { kind: AlarmKind::Held, task: TaskId(7), step, message: message.into() }
}

fn told(alarm: Option<&Alarm>, command: &AlarmCommand) -> Result<Option<Alarm>, AlarmRejection> {
    Alarm::apply(alarm, &id(), command, START)
}

#[test]
fn an_alarm_is_raised_seen_and_over() {
    let raised = told(None, &raise("no space")).unwrap().unwrap();
    assert_eq!((raised.state, raised.raised, &*raised.message), (AlarmState::Raised, 1, "no space"));
    assert_eq!(raised.id.to_string(), "held.00000000-0000-0000-0000-000000000007.a");

    let acknowledge = AlarmCommand::Acknowledge { by: anna() };
    let seen = told(Some(&raised), &acknowledge).unwrap().unwrap();
    assert_eq!((seen.state, &seen.by), (AlarmState::Acknowledged, &anna()));
    assert_eq!(told(Some(&seen), &acknowledge), Ok(None), "the second time changes nothing");

    let resolve = AlarmCommand::Resolve { by: anna() };
    let over = told(Some(&seen), &resolve).unwrap().unwrap();
    assert_eq!(over.state, AlarmState::Resolved);
    assert_eq!(told(Some(&over), &resolve), Ok(None));
    assert_eq!(told(Some(&over), &acknowledge), Err(AlarmRejection::Resolved));
}

#[test]
fn an_alarm_that_is_raised_again_must_be_seen_again() {
    let raised = told(None, &raise("one")).unwrap().unwrap();
    let over = told(Some(&raised), &AlarmCommand::Resolve { by: anna() }).unwrap().unwrap();
    let later = START + Millis(5);
    let again = Alarm::apply(Some(&over), &id(), &raise("two"), later).unwrap().unwrap();
    assert_eq!((again.state, again.raised, again.raised_at, again.by), (AlarmState::Raised, 2, later, None));
    assert_eq!(&*again.message, "two");
}

#[test]
fn an_alarm_that_was_never_raised_is_unknown() {
    for command in [AlarmCommand::Acknowledge { by: None }, AlarmCommand::Resolve { by: None }] {
        assert_eq!(told(None, &command), Err(AlarmRejection::Unknown));
    }
}

#[test]
fn kinds_are_found_by_their_codes() {
    for (position, kind) in AlarmKind::ALL.into_iter().enumerate() {
        assert_eq!((kind as usize, AlarmKind::of_code(kind.as_str())), (position, Some(kind)));
    }
    assert_eq!(AlarmKind::of_code("hold"), None);
}

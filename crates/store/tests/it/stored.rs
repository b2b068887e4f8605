//! Stored formats: what was ever written can be read.
//!
//! `fixtures/FORMAT/` contains one file per kind. Nobody changes or deletes a file. When a change of the core's
//! types makes a test here fail, data in users' files would become unreadable: give the change a new format and
//! a reader for the old one. `WINDLASS_WRITE_FIXTURES=1` writes files that are missing, never one that is there.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use windlass_core::{
    ActKey, Action, Actor, Alarm, AlarmCommand, AlarmId, AlarmState, Backoff, Cause, Command, Context,
    Device, Event, EventKind, Failure, Flow, Input, Json, Members, Message, Millis, Name, Outcome, Presence,
    PresenceRule, Report, Retry, RollbackParams, State, StepDefinition, StuckKind, Task, TaskId, Timestamp,
    apply,
};
use windlass_store::stored;

pub(crate) fn fixture(name: &str, written: &[u8]) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures").join(name);
    if std::env::var_os("WINDLASS_WRITE_FIXTURES").is_some() && !path.exists() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, written).unwrap();
    }
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A flow of these steps, one after the other, each with a rollback.
fn flow(name: &str, steps: &[&str], retries: u32) -> Flow {
    let action = |command: String| Action {
        retry: Retry { max: retries, backoff: Backoff::Fixed, ..Retry::default() },
        ..Action::of_worker(Name::new("m").unwrap(), Name::new(&command).unwrap())
    };
    let steps = steps.iter().enumerate().map(|(index, name)| StepDefinition {
        rollback: Some(action(format!("undo-{name}"))),
        ..StepDefinition::new(
            Name::new(name).unwrap(),
            action((*name).to_owned()),
            index.checked_sub(1).into_iter().collect(),
        )
    });
    Flow { version: 0, ..Flow::new(Name::new(name).unwrap(), steps.collect()) }
}

const STARTED: Timestamp = Timestamp(1_700_000_000_500);

/// A task that has seen a retry, a pause, a failure for good and a rollback, with all its events.
fn history() -> (Task, Vec<Event>) {
    let flow = Flow { version: 3, ..flow("create", &["check", "init"], 1) };
    let mut task =
        Task::new(TaskId(0x0190_0000_0000_7000_8000_0000_0000_0001), Arc::new(flow), Arc::new(input()));
    let mut events = Vec::new();
    let ops = Some(Actor { name: "ops".into(), claimed: true });
    let report = |key, number, outcome| {
        let attempt = windlass_core::Attempt { key, number, started_at: Some(STARTED) };
        Command::Report(Report { attempt, outcome })
    };
    let boom = || Outcome::Failed(Failure::new("boom", 7, true));
    let done = || Outcome::Succeeded(Some(Json::parse(r#"{"port":5432}"#).unwrap()));
    let wake = |step| Command::Wake(windlass_core::Wakeup::Act(ActKey::forward(step)));
    let commands = [
        (0, Command::Accept { done: Vec::new(), overrides_unique: false, by: None }),
        (1, report(ActKey::forward(0), 1, boom())),
        (2000, wake(0)),
        (2001, report(ActKey::forward(0), 2, done())),
        (2002, Command::Pause { by: ops.clone() }),
        (2003, Command::Resume { by: ops }),
        (2004, report(ActKey::forward(1), 1, boom())),
        (4000, wake(1)),
        (4001, report(ActKey::forward(1), 2, boom())),
        (4002, report(ActKey::rollback(1), 1, Outcome::Succeeded(None))),
    ];
    for (ms, command) in commands {
        let transition = apply(&task, &command, &Context::at(Timestamp(1_700_000_001_000 + ms))).unwrap();
        events.extend(transition.events);
        task = transition.task;
    }
    // Today's rules record no start of an attempt before it was ready; those that wrote format 1 did.
    let mut replayed = Task::new(task.id, task.flow.clone(), task.input.clone());
    for event in &mut events {
        if matches!(event.kind, EventKind::ActStarted { .. }) {
            event.at = STARTED;
        }
        windlass_core::evolve(&mut replayed, event);
    }
    task = replayed;
    assert!(matches!(task.state.cause, Some(Cause::Failure { step: 1 })));
    (task, events)
}

fn input() -> Input {
    Input {
        labels: BTreeMap::from([("team".to_owned(), "data".to_owned())]),
        priority: -3,
        by: Some(Actor { name: "ci".into(), claimed: false }),
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        ..Input::new(Json::parse(r#"{"Cpu":4}"#).unwrap(), Timestamp(1_700_000_000_000))
    }
}

/// Results and members are stored apart, so what is read back lacks them.
pub(crate) fn without_results(mut state: State) -> State {
    for step in &mut state.steps {
        let step = Arc::make_mut(step);
        step.forward.result = None;
        step.undo.result = None;
        if let Some(members) = &mut step.members {
            **members = Members::new(members.total());
        }
    }
    state
}

#[test]
fn format_1_of_states_events_flows_and_inputs_is_read() {
    let (task, events) = history();
    let state = fixture("1/state.bin", &stored::write_state(&task.state));
    assert_eq!(stored::read_state(&state).unwrap(), without_results(task.state));
    let flow = fixture("1/flow.bin", &stored::write_flow(&task.flow));
    let before = Flow { rollback_params: RollbackParams::StepAndResult, ..(*task.flow).clone() };
    assert_eq!(stored::read_flow(&flow).unwrap(), before);
    let head = fixture("1/input.bin", &stored::write_input(&task.input));
    assert_eq!(stored::read_input(&head, task.input.params.as_str()).unwrap(), *task.input);
    let bytes = fixture("1/events.bin", &stored::write_events(&events));
    let read = stored::read_events(&bytes).unwrap();
    assert_eq!(read.len(), events.len());
    // Replaying what is stored gives the state as it is stored.
    let mut replayed = Task::new(task.id, task.flow.clone(), task.input.clone());
    for event in &read {
        windlass_core::evolve(&mut replayed, event);
    }
    assert_eq!(replayed.state, stored::read_state(&state).unwrap());
}

#[test]
fn format_1_of_messages_and_alarms_is_read() {
    let step = Name::new("init").unwrap();
    let task = TaskId(0x0190_0000_0000_7000_8000_0000_0000_0001);
    let id = AlarmId::new(StuckKind::RollbackFailed, task, Some(&step));
    let command = AlarmCommand::Raise {
        kind: StuckKind::RollbackFailed.into(),
        task,
        step: Some(step.clone()),
        message: "cannot undo".into(),
    };
    let message = Message::Alarm { id: id.clone(), command };
    let bytes = fixture("1/message.bin", &stored::write_message(&message));
    assert_eq!(stored::read_message(&bytes).unwrap(), message);
    let alarm = Alarm {
        id,
        kind: StuckKind::RollbackFailed.into(),
        task,
        step: Some(step),
        message: "cannot undo".into(),
        raised_at: Timestamp(1_700_000_000_000),
        raised: 2,
        state: AlarmState::Acknowledged,
        by: Some(Actor { name: "ops".into(), claimed: true }),
    };
    let bytes = fixture("1/alarm.bin", &stored::write_alarm(&alarm));
    assert_eq!(stored::read_alarm(&bytes).unwrap(), alarm);
}

#[test]
fn another_format_and_damage_are_told_apart() {
    let (task, _) = history();
    let mut bytes = stored::write_state(&task.state);
    bytes[0] = 9;
    assert!(stored::read_state(&bytes).unwrap_err().to_string().contains("format 9"));
    bytes[0] = stored::FORMAT;
    let half = &bytes[..bytes.len() / 2];
    assert!(stored::read_state(half).unwrap_err().to_string().contains("cannot be read"));
    let longer = [bytes.as_slice(), &[0]].concat();
    assert!(stored::read_state(&longer).unwrap_err().to_string().contains("ends at byte"));
    assert!(stored::read_state(&[]).unwrap_err().to_string().contains("empty"));
}

#[test]
fn format_4_of_devices_and_their_presence_is_read() {
    let presences = [
        PresenceRule::Always,
        PresenceRule::Topic {
            topic: "site/press-1/status".into(),
            online: "up".into(),
            offline: "down".into(),
        },
        PresenceRule::KeepAlive(Millis(60_000)),
        PresenceRule::Learned {
            topic: "site/press-1/status".into(),
            online: "up".into(),
            offline: "down".into(),
        },
    ];
    for (index, presence) in presences.into_iter().enumerate() {
        let device = Device {
            name: Name::new("press-1").unwrap(),
            labels: BTreeMap::from([("site".to_owned(), "nord".to_owned())]),
            presence,
            echoes_attempt: index == 1,
        };
        let bytes = fixture(&format!("4/device-{index}.bin"), &stored::write_device(&device));
        assert_eq!(stored::read_device(&bytes).unwrap(), device);
    }
    let presence = Presence { online: true, since: Timestamp(1_700_000_000_000), changes: 3 };
    let bytes = fixture("4/presence.bin", &stored::write_presence(&presence));
    assert_eq!(stored::read_presence(&bytes).unwrap(), presence);
}

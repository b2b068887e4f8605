//! Format 2: flows beyond a line, and what happens in them. Every field and every variant that format 1 had not is in
//! one of the fixtures.

use std::{collections::BTreeMap, sync::Arc};

use windlass_core::{
    Act, ActExtras, ActKey, ActState, Action, Actor, Awaited, Backoff, Cause, ChildCommand, ChildEnd,
    ChildStart, Command, Context, Direction, Doer, During, Each, Event, EventKind, Expression, Failure, Flow,
    HeldLock, Input, Json, LockCommand, LockHolder, LockOwner, LockRef, LockWaiter, Member, Message, Millis,
    Name, OnConflict, OnFailure, OnPartial, Outcome, Parent, Report, Resolution, ResolutionKind, Retry,
    RetryBy, Role, RollbackParams, StepDefinition, Task, TaskId, Timestamp, Unique, apply,
};
use windlass_store::stored;

use crate::stored::{fixture, without_results};

const TASK: TaskId = TaskId(0x0190_0000_0000_7000_8000_0000_0000_0002);
const CHILD: TaskId = TaskId(0x0190_0000_0000_7000_8000_0000_0000_0003);
const START: Timestamp = Timestamp(1_700_000_000_000);

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn expression(text: &str) -> Expression {
    Expression::compile(text).unwrap()
}

fn ops() -> Option<Actor> {
    Some(Actor { name: "ops".into(), claimed: true })
}

fn at(ms: i64) -> Timestamp {
    Timestamp(START.0 + ms)
}

/// A flow with all that a flow can have.
fn flow() -> Flow {
    let worker = |command: &str| Action {
        timeout: Millis::from_secs(60),
        deadline: Some(Millis::from_secs(600)),
        start_within: Some(Millis::from_secs(30)),
        retry: Retry {
            max: 2,
            backoff: Backoff::Fixed,
            base: Millis::from_secs(1),
            cap: Millis::from_secs(9),
        },
        ..Action::of_worker(name("files"), name(command))
    };
    let of = |doer: Doer| Action { doer, ..worker("any") };
    let each = StepDefinition {
        rollback: Some(worker("remove")),
        when: Some(expression("size(files) > 0")),
        each: Some(Each { list: "files".into(), parallel: 2 }),
        on_partial: OnPartial::AtLeast(1),
        key: Some(expression("item.owner")),
        locks: vec![LockRef::Name(name("disk")), LockRef::Expression(expression("'dir-' + item.owner"))],
        ..StepDefinition::new(name("copy"), worker("copy"), Vec::new())
    };
    let approve = StepDefinition::new(name("approve"), of(Doer::Signal { name: name("approval") }), vec![0]);
    let child = StepDefinition {
        on_partial: OnPartial::Continue,
        delay: Some(Millis::from_secs(5)),
        ..StepDefinition::new(name("report"), of(Doer::Flow { name: name("reporting") }), vec![0, 1])
    };
    let apologize = StepDefinition {
        role: Role::OnError,
        ..StepDefinition::new(name("apologize"), worker("mail"), Vec::new())
    };
    Flow {
        version: 4,
        params: Some(r#"{"region":"north"}"#.into()),
        retry_by: RetryBy::Module,
        on_failure: OnFailure::Hold,
        deadline: Some(Millis::from_secs(86_400)),
        unique: Some(Unique {
            key: expression("size(files)"),
            during: During::Finished(Millis::from_secs(60)),
            on_conflict: OnConflict::Return,
        }),
        retention: Some(Millis::from_secs(7 * 86_400)),
        ..Flow::new(name("everything"), vec![each, approve, child, apologize])
    }
}

fn input() -> Input {
    Input {
        labels: BTreeMap::from([("team".to_owned(), "data".to_owned())]),
        priority: 5,
        at: Some(at(1_000)),
        deadline: Some(Millis::from_secs(3_600)),
        parent: Some(Parent {
            task: CHILD,
            key: ActKey::rollback(3).of_member(9),
            attempt: 2,
            depth: 3,
            top: TASK,
        }),
        rerun_of: Some(CHILD),
        unique: Some("3".into()),
        by: ops(),
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        ..Input::new(Json::parse(r#"{"files":[{"owner":"a"},{"owner":"b"},{"owner":"a"}]}"#).unwrap(), START)
    }
}

/// An act with all that an act can have.
fn act(state: ActState) -> Act {
    Act {
        state,
        attempt: 3,
        failures: 2,
        deaths: 1,
        ready_at: Some(at(1)),
        deadline_at: Some(at(2)),
        overdue: true,
        started_at: Some(at(3)),
        ended_at: Some(at(4)),
        failure: Some(Failure::new("no space", 28, true)),
        extras: Some(Box::new(ActExtras {
            postponements: 4,
            start_by: Some(at(5)),
            fairness: Some("owner-a".into()),
            child: Some(CHILD),
            locks: vec![
                HeldLock { name: name("disk"), fence: Some(77), seized: false },
                HeldLock { name: name("dir-a"), fence: None, seized: true },
            ],
            turn: 2,
        })),
        result: None,
    }
}

/// A task with items, a kept signal and parameters from an operator.
fn task() -> (Task, Vec<Event>) {
    // As the rules do it where nothing but workers is asked.
    let mut flow = flow();
    (flow.steps[0].locks, flow.retry_by) = (Vec::new(), RetryBy::Engine);
    flow.steps[2].run = Action::of_worker(name("files"), name("report"));
    let mut task = Task::new(TASK, Arc::new(flow), Arc::new(Input { at: None, ..input() }));
    let mut events = Vec::new();
    let report = |number, outcome| {
        let attempt = windlass_core::Attempt {
            key: ActKey::forward(0).of_member(number),
            number: 1,
            started_at: Some(at(1_002)),
        };
        Command::Report(Report { attempt, outcome })
    };
    let fail = || Outcome::Failed(Failure::new("no space", 28, false));
    let params = |text: &str| Some(Json::parse(text).unwrap());
    let signal = Command::Signal {
        name: name("approval"),
        params: params(r#"{"by":"the lead"}"#),
        keep: true,
        by: ops(),
    };
    let commands = [
        Command::Accept { done: Vec::new(), overrides_unique: false, by: None },
        signal,
        report(2, fail()),
        report(1, fail()),
        report(3, fail()),
        Command::Resolve {
            step: 0,
            resolution: Resolution::Retry(params(r#"{"region":"south"}"#)),
            by: ops(),
        },
    ];
    for (ms, command) in (0..).zip(commands) {
        let transition = apply(&task, &command, &Context::at(at(1_000 + ms))).unwrap();
        for event in transition.events.into_iter().map(as_written) {
            windlass_core::evolve(&mut task, &event);
            events.push(event);
        }
    }
    (task, events)
}

/// Messages said "member" in place of "item" when the fixtures were written.
fn as_written(mut event: Event) -> Event {
    if let EventKind::ActFailed { failure, .. } = &mut event.kind {
        failure.message = failure.message.replace("item ", "member ").into();
    }
    event
}

/// What happens that did not in format 1.
fn events() -> Vec<EventKind> {
    let key = ActKey::forward(0).of_member(3);
    let (name, attempt, by) = (name("disk"), 2, ops());
    let awaiting = |awaited| EventKind::ActAwaiting {
        key,
        attempt,
        awaited,
        child: Some(CHILD),
        locks: vec![name.clone()],
    };
    vec![
        EventKind::ActDelayed { key, until: at(7) },
        EventKind::ActKeyed { key, fairness: "owner-a".into() },
        EventKind::ActFanned { key: key.of_member(0), members: 3 },
        awaiting(Awaited::Signal),
        awaiting(Awaited::Child),
        awaiting(Awaited::Lock),
        EventKind::ActLocked { key, name: name.clone(), fence: 77 },
        EventKind::ActTaken { key, attempt },
        EventKind::SignalKept { name: name.clone(), params: Some("{}".into()), by: by.clone() },
        EventKind::SignalReceived { key, name: name.clone(), by: by.clone() },
        EventKind::StepAmended { step: 2, before: "{}".into(), after: r#"{"a":1}"#.into(), by: by.clone() },
        EventKind::ActUnlocked { key, name, fence: 77, reason: "stuck".into(), by: by.clone() },
        EventKind::TaskRollingBack { cause: Cause::Deadline },
        EventKind::TaskRollingBack { cause: Cause::Parent },
        EventKind::TaskRollingBack { cause: Cause::ResultTooLarge { bytes: 300_000 } },
        EventKind::ActResolved { key, resolution: ResolutionKind::Retry, result: None, by },
    ]
}

#[test]
fn format_2_of_tasks_with_members_is_read() {
    let (task, happened) = task();
    let state = fixture("2/state.bin", &stored::write_state(&task.state));
    let read = stored::read_state(&state).unwrap();
    assert_eq!(read, without_results(task.state.clone()));
    let (members, step) = (task.state.steps[0].members.as_ref().unwrap(), &read.steps[0]);
    assert_eq!((members.begun(), step.members.as_ref().unwrap().total()), (3, 3));
    assert!(step.amended.is_some() && read.signals.len() == 1);
    let head = fixture("2/input.bin", &stored::write_input(&input()));
    assert_eq!(stored::read_input(&head, input().params.as_str()).unwrap(), input());
    let bytes = fixture("2/events.bin", &stored::write_events(&happened));
    // Replaying what is stored gives the task, its members as well.
    let mut replayed = Task::new(task.id, task.flow.clone(), task.input.clone());
    for event in stored::read_events(&bytes).unwrap() {
        windlass_core::evolve(&mut replayed, &event);
    }
    assert_eq!(replayed.state, task.state);
}

#[test]
fn format_2_of_members_and_acts_is_read() {
    let states = [
        ActState::Succeeded,
        ActState::Delayed { until: at(9) },
        ActState::Awaiting(Awaited::Signal),
        ActState::Awaiting(Awaited::Child),
        ActState::Awaiting(Awaited::Lock),
        ActState::Fanned,
    ];
    for (number, state) in states.into_iter().enumerate() {
        let member = Member { touched: true, forward: act(state), undo: act(ActState::Parked) };
        let bytes = fixture(&format!("2/member-{number}.bin"), &stored::write_member(&member));
        assert_eq!(stored::read_member(&bytes).unwrap(), member);
        assert_eq!(member.act(Direction::Rollback).state, ActState::Parked);
    }
}

#[test]
fn format_2_of_flows_is_read() {
    let bytes = fixture("2/flow.bin", &stored::write_flow(&flow()));
    let before = Flow { rollback_params: RollbackParams::StepAndResult, ..flow() };
    assert_eq!(stored::read_flow(&bytes).unwrap(), before);
}

#[test]
fn format_2_of_events_is_read() {
    let events: Vec<Event> = events().into_iter().map(|kind| Event { at: at(1), kind }).collect();
    let bytes = fixture("2/kinds.bin", &stored::write_events(&events));
    assert_eq!(stored::read_events(&bytes).unwrap(), events);
}

#[test]
fn format_2_of_messages_and_locks_is_read() {
    let owner = LockOwner { task: TASK, key: ActKey::forward(0).of_member(3), turn: 2 };
    let disk = || name("disk");
    let to_lock = |command| Message::Lock { name: disk(), command };
    let parent = Parent { task: TASK, key: owner.key, attempt: 2, depth: 3, top: TASK };
    let to_child = |command| Message::Child { child: CHILD, parent, command };
    let start = ChildStart {
        flow: name("copy"),
        params: r#"{"file":"a"}"#.into(),
        priority: -3,
        until: Some(at(9)),
        by: ops(),
        traceparent: input().traceparent,
    };
    let ended = |end| Message::ChildEnded { parent: TASK, key: owner.key, child: CHILD, end };
    let messages = [
        to_lock(LockCommand::Acquire { owner }),
        to_lock(LockCommand::Release { owner }),
        to_lock(LockCommand::Seize { reason: "stuck".into(), by: ops() }),
        Message::Granted { owner, name: disk(), fence: 77 },
        Message::Seized { owner, name: disk(), fence: 77, reason: "stuck".into(), by: ops() },
        to_child(ChildCommand::Start(Box::new(start))),
        to_child(ChildCommand::Cancel),
        to_child(ChildCommand::Undo),
        ended(ChildEnd::Succeeded(Some(r#"{"n":1}"#.into()))),
        ended(ChildEnd::Undone(Failure::new("no space", 28, true))),
        ended(ChildEnd::Gone),
    ];
    for (number, message) in messages.into_iter().enumerate() {
        let bytes = fixture(&format!("2/message-{number}.bin"), &stored::write_message(&message));
        assert_eq!(stored::read_message(&bytes).unwrap(), message);
    }
    let waiter = LockWaiter { owner, since: at(1) };
    let bytes = fixture("2/lock-waiter.bin", &stored::write_lock_waiter(&waiter));
    assert_eq!(stored::read_lock_waiter(&bytes).unwrap(), waiter);
    let holder = stored::Tenure::Held(LockHolder { owner, fence: 77, since: at(2) });
    let bytes = fixture("2/lock-holder.bin", &stored::write_tenure(&holder));
    assert_eq!(stored::read_tenure(&bytes).unwrap(), holder);
}

//! Format 4: a flow names the exclusive queue of its tasks, and a task has a place in its queue.

use std::sync::Arc;

use windlass_core::{
    Action, Actor, Command, Context, Event, EventKind, Expression, Flow, Input, Json, Leader, LockCommand,
    LockHolder, LockOwner, LockRef, LockWaiter, Message, Millis, Name, QueueState, StepDefinition, Task,
    TaskId, Timestamp, apply, evolve,
};
use windlass_store::stored;

use crate::stored::fixture;

const TASK: TaskId = TaskId(0x0190_0000_0000_7000_8000_0000_0000_0004);
const START: Timestamp = Timestamp(1_700_000_000_000);

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn flow(exclusive: LockRef) -> Flow {
    let init = StepDefinition::new(name("init"), Action::of_worker(name("mysql"), name("init")), Vec::new());
    Flow { exclusive: Some(exclusive), ..Flow::new(name("create"), vec![init]) }
}

fn input() -> Input {
    Input {
        exclusive: Some(name("fleet-7")),
        unique: Some("7".into()),
        ..Input::new(Json::parse(r#"{"fleet":"7"}"#).unwrap(), START)
    }
}

#[test]
fn format_4_of_flows_and_inputs_is_read() {
    let expression = Expression::compile("'fleet-' + fleet").unwrap();
    let each = [LockRef::Name(name("fleet-7")), LockRef::Expression(expression)];
    for (number, exclusive) in each.into_iter().enumerate() {
        let flow = flow(exclusive);
        let bytes = fixture(&format!("4/flow-{number}.bin"), &stored::write_flow(&flow));
        assert_eq!(stored::read_flow(&bytes).unwrap(), flow);
    }
    let head = fixture("4/input.bin", &stored::write_input(&input()));
    assert_eq!(stored::read_input(&head, input().params.as_str()).unwrap(), input());
}

#[test]
fn a_flow_with_secrets_has_a_format_of_its_own() {
    let flow = Flow { secret: vec![name("password"), name("key")], ..flow(LockRef::Name(name("fleet-7"))) };
    let bytes = fixture("5/flow.bin", &stored::write_flow(&flow));
    assert_eq!((bytes[0], stored::read_flow(&bytes).unwrap()), (5, flow.clone()));
    let plain = Flow { secret: Vec::new(), ..flow };
    assert_eq!(stored::write_flow(&plain)[0], stored::FORMAT, "a server of the version before reads it");
}

#[test]
fn format_4_of_states_and_events_is_read() {
    let flow = flow(LockRef::Name(name("fleet-7")));
    let mut task = Task::new(TASK, Arc::new(flow), Arc::new(input()));
    let accept = Command::Accept { done: Vec::new(), overrides_unique: false, by: None };
    let accepted = apply(&task, &accept, &Context::at(START)).unwrap();
    let lost = EventKind::QueueLost {
        fence: 7,
        reason: "gone".into(),
        by: Some(Actor { name: "ops".into(), claimed: true }),
    };
    let further = [lost, EventKind::QueueJoined, EventKind::QueueGranted { fence: 9 }];
    let further = further.into_iter().map(|kind| Event { at: START, kind });
    let events: Vec<Event> = accepted.events.into_iter().chain(further).collect();
    events.iter().for_each(|event| evolve(&mut task, event));
    let bytes = fixture("4/events.bin", &stored::write_events(&events));
    assert_eq!(stored::read_events(&bytes).unwrap(), events);
    let bytes = fixture("4/state.bin", &stored::write_state(&task.state));
    let read = stored::read_state(&bytes).unwrap();
    assert_eq!(read, task.state);
    assert_eq!((read.queue.turn, read.queue.state), (2, QueueState::Granted { fence: 9 }));
}

#[test]
fn format_4_of_messages_and_locks_is_read() {
    let owner = LockOwner::task(TASK, 2);
    for (number, order) in [None, Some(START)].into_iter().enumerate() {
        let message = Message::Lock { name: name("fleet-7"), command: LockCommand::Join { owner, order } };
        let bytes = fixture(&format!("4/message-{number}.bin"), &stored::write_message(&message));
        assert_eq!(stored::read_message(&bytes).unwrap(), message);
    }
    let waiter = LockWaiter { owner, since: START };
    let bytes = fixture("4/lock-waiter.bin", &stored::write_lock_waiter(&waiter));
    assert_eq!(stored::read_lock_waiter(&bytes).unwrap(), waiter);
    let holder = stored::Tenure::Held(LockHolder { owner, fence: 77, since: START });
    let bytes = fixture("4/lock-holder.bin", &stored::write_tenure(&holder));
    assert_eq!(stored::read_tenure(&bytes).unwrap(), holder);
    let holder = LockHolder { owner: LockOwner::leader(u128::MAX), fence: 78, since: START };
    let (lease, name) = (Millis(4_000), "fleet/leader".into());
    let leader = Leader { name, id: "host-1".into(), value: "10.0.0.7".into(), lease };
    let led = stored::Tenure::Led(holder, leader.into());
    let bytes = fixture("4/lock-leader.bin", &stored::write_tenure(&led));
    assert_eq!(stored::read_tenure(&bytes).unwrap(), led);
}

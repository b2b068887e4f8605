//! Exclusive queues: a task starts nothing before it has its queue, and keeps the queue until it has ended.

use windlass_core::{
    ActKey, ActState, Action, AlarmState, Awaited, Command, Failure, Flow, Input, LockCommand, LockOwner,
    LockRef, Millis, Name, OnFailure, Outcome, Pause, QueueState, Rejection, Resolution, StepDefinition,
    TaskId, Timestamp, Wakeup,
};

use crate::world::{World, anna, input};

const STEP: ActKey = ActKey::forward(0);
const MINE: Option<TaskId> = Some(TaskId(7));

fn name(text: &str) -> Name {
    Name::new(text).expect("it is a name")
}

fn flow() -> Flow {
    let action = |command| Action::of_worker(name("shop"), name(command));
    let mut step = StepDefinition::new(name("pay"), action("pay"), Vec::new());
    step.rollback = Some(action("refund"));
    Flow::new(name("order"), vec![step, StepDefinition::new(name("send"), action("send"), vec![0])])
}

fn world(flow: Flow, input: Input) -> World {
    World::new(flow, Input { exclusive: Some(name("orders")), ..input })
}

fn begin(flow: Flow) -> World {
    let mut world = world(flow, input(None));
    accept(&mut world);
    world
}

fn accept(world: &mut World) {
    apply(world, &Command::Accept { done: Vec::new(), overrides_unique: false, by: None });
    world.hear();
}

fn apply(world: &mut World, command: &Command) {
    world.apply(command).unwrap_or_else(|rejection| panic!("{command:?} is refused: {rejection}"));
}

/// Another task of the queue.
fn stranger() -> LockOwner {
    LockOwner::task(TaskId(99), 1)
}

fn join(world: &mut World, order: Option<Timestamp>) {
    world.tell_lock(&name("orders"), &LockCommand::Join { owner: stranger(), order });
    world.hear();
}

fn release(world: &mut World) {
    world.tell_lock(&name("orders"), &LockCommand::Release { owner: stranger() });
    world.hear();
}

fn holder(world: &World) -> Option<TaskId> {
    world.locks.get(&name("orders"))?.holder.map(|holder| holder.owner.task)
}

fn report(world: &mut World, key: ActKey, outcome: Outcome) {
    let number = world.act(key).attempt;
    world.held.insert(key, (number, world.now));
    world.handed_out.insert(key, number);
    let report = world.report(key, outcome);
    apply(world, &report);
    world.hear();
}

/// The number of alarms that are not resolved.
fn alarms(world: &World) -> usize {
    world.alarms.values().filter(|alarm| alarm.state != AlarmState::Resolved).count()
}

fn skip() -> Command {
    Command::SkipQueue { reason: "waits for the bank".into(), by: anna() }
}

fn failed() -> Outcome {
    Outcome::Failed(Failure::new("no", 1, false))
}

#[test]
fn nothing_starts_before_the_task_has_the_queue_and_it_keeps_the_queue_until_its_end() {
    let mut world = world(flow(), input(None));
    join(&mut world, None);
    accept(&mut world);
    assert_eq!((world.task.state.queue.state, world.act(STEP).state), (QueueState::Waiting, ActState::Idle));
    release(&mut world);
    let fence = world.task.queue_fence().map(|(_, fence)| fence);
    assert!(fence.is_some() && world.act(STEP).state == ActState::Ready);
    join(&mut world, None);
    report(&mut world, STEP, Outcome::Succeeded(None));
    report(&mut world, ActKey::forward(1), failed());
    assert_eq!(world.act(ActKey::rollback(0)).state, ActState::Ready);
    assert_eq!((holder(&world), world.task.queue_fence().map(|(_, fence)| fence)), (MINE, fence));
    report(&mut world, ActKey::rollback(0), Outcome::Succeeded(None));
    assert!(world.task.is_ended());
    assert_eq!(holder(&world), Some(TaskId(99)));
}

#[test]
fn a_task_that_waits_can_be_cancelled_and_its_deadline_ends_it() {
    let mut world = world(Flow { deadline: Some(Millis::from_secs(10)), ..flow() }, input(None));
    join(&mut world, None);
    accept(&mut world);
    let mut late = world.clone();
    apply(&mut world, &Command::Cancel { by: anna() });
    assert!(world.task.is_ended() && world.locks[&name("orders")].waiting() == 0);
    late.now = late.now + Millis::from_secs(10);
    apply(&mut late, &Command::Wake(Wakeup::Deadline));
    assert!(late.task.is_ended() && late.locks[&name("orders")].waiting() == 0);
}

#[test]
fn a_task_with_a_start_time_joins_then_and_is_ordered_by_it() {
    let at = Timestamp(2_000_000_000);
    let mut world = world(flow(), input(Some(at)));
    accept(&mut world);
    assert_eq!((world.task.state.queue.turn, world.locks.len()), (0, 0));
    let first = LockCommand::Join { owner: LockOwner::task(TaskId(98), 1), order: None };
    world.tell_lock(&name("orders"), &first);
    join(&mut world, Some(at + Millis(1)));
    world.now = at + Millis(50);
    apply(&mut world, &Command::Wake(Wakeup::Start));
    let owner = world.task.queue_owner().expect("it waits");
    assert_eq!(world.locks[&name("orders")].place(&owner), Some(0));
}

#[test]
fn a_stuck_head_keeps_the_queue_until_an_operator_moves_past_it() {
    let mut world = begin(Flow { on_failure: OnFailure::Hold, ..flow() });
    join(&mut world, None);
    assert_eq!(world.apply(&skip()), Err(Rejection::UnderWay), "its first step is ready");
    report(&mut world, STEP, failed());
    assert!(world.task.state.stuck.is_some());
    assert_eq!(holder(&world), MINE);
    apply(&mut world, &skip());
    world.hear();
    assert_eq!((holder(&world), world.task.state.queue.state), (Some(TaskId(99)), QueueState::Out));
    assert_eq!(world.apply(&skip()), Err(Rejection::NotInQueue));
    let retry = Command::Resolve { step: 0, resolution: Resolution::Retry(None), by: anna() };
    apply(&mut world, &retry);
    world.hear();
    assert_eq!((world.act(STEP).state, holder(&world)), (ActState::Parked, Some(TaskId(99))));
    // It was accepted before all others, so it is the next one.
    let later = LockCommand::Join { owner: LockOwner::task(TaskId(98), 1), order: None };
    world.tell_lock(&name("orders"), &later);
    release(&mut world);
    assert_eq!((world.act(STEP).state, holder(&world)), (ActState::Ready, MINE));
}

#[test]
fn a_paused_head_keeps_the_queue_with_an_alarm_until_it_goes_on_or_loses_it() {
    let mut world = begin(flow());
    apply(&mut world, &Command::Pause { by: anna() });
    assert_eq!((holder(&world), alarms(&world)), (MINE, 1));
    let mut skipped = world.clone();
    apply(&mut world, &Command::Resume { by: anna() });
    assert_eq!((world.act(STEP).state, alarms(&world)), (ActState::Ready, 0));
    join(&mut skipped, None);
    apply(&mut skipped, &skip());
    skipped.hear();
    assert_eq!((holder(&skipped), alarms(&skipped)), (Some(TaskId(99)), 0));
    apply(&mut skipped, &Command::Resume { by: anna() });
    assert_eq!((skipped.act(STEP).state, skipped.task.state.pause), (ActState::Parked, Pause::None));
    release(&mut skipped);
    assert_eq!((skipped.act(STEP).state, holder(&skipped)), (ActState::Ready, MINE));
}

#[test]
fn a_paused_task_that_waits_gets_the_queue_and_starts_nothing() {
    let mut world = world(flow(), input(None));
    join(&mut world, None);
    accept(&mut world);
    apply(&mut world, &Command::Pause { by: anna() });
    release(&mut world);
    assert_eq!((holder(&world), alarms(&world)), (MINE, 1));
    assert_eq!(world.act(STEP).state, ActState::Parked);
    apply(&mut world, &Command::Cancel { by: anna() });
    world.hear();
    assert!(world.task.is_ended() && alarms(&world) == 0);
    assert_eq!(holder(&world), None);
}

#[test]
fn a_task_whose_queue_is_seized_finishes_what_runs_and_starts_nothing_more() {
    let mut world = begin(flow());
    let number = world.act(STEP).attempt;
    world.held.insert(STEP, (number, world.now));
    world.handed_out.insert(STEP, number);
    join(&mut world, None);
    world.tell_lock(&name("orders"), &LockCommand::Seize { reason: "gone".into(), by: anna() });
    world.hear();
    assert_eq!((world.task.state.queue.state, holder(&world)), (QueueState::Out, Some(TaskId(99))));
    report(&mut world, STEP, Outcome::Succeeded(None));
    assert_eq!(world.act(ActKey::forward(1)).state, ActState::Parked);
    release(&mut world);
    assert_eq!((world.act(ActKey::forward(1)).state, holder(&world)), (ActState::Ready, MINE));
}

#[test]
fn with_the_queue_a_task_releases_the_locks_of_its_steps() {
    let mut flow = flow();
    flow.steps[0].locks = vec![LockRef::Name(name("a")), LockRef::Name(name("b"))];
    let mut world = world(flow, input(None));
    let other = LockOwner { task: TaskId(99), key: STEP, turn: 1 };
    world.tell_lock(&name("b"), &LockCommand::Acquire { owner: other });
    accept(&mut world);
    assert_eq!(world.act(STEP).state, ActState::Awaiting(Awaited::Lock));
    apply(&mut world, &Command::Pause { by: anna() });
    apply(&mut world, &skip());
    world.hear();
    let free = |world: &World, lock: &str| world.locks[&name(lock)].holder.is_none();
    assert!(free(&world, "a") && world.locks[&name("b")].waiting() == 0);
    world.tell_lock(&name("b"), &LockCommand::Release { owner: other });
    apply(&mut world, &Command::Resume { by: anna() });
    world.hear();
    assert_eq!((world.act(STEP).state, holder(&world)), (ActState::Ready, MINE));
    assert!(!free(&world, "a") && !free(&world, "b"));
}

#[test]
fn a_running_attempt_keeps_its_locks_when_the_queue_is_seized_and_one_that_waits_does_not() {
    let mut flow = flow();
    flow.steps[0].locks = vec![LockRef::Name(name("a"))];
    let mut world = begin(flow);
    let number = world.act(STEP).attempt;
    world.held.insert(STEP, (number, world.now));
    world.handed_out.insert(STEP, number);
    join(&mut world, None);
    world.tell_lock(&name("orders"), &LockCommand::Seize { reason: "gone".into(), by: anna() });
    world.hear();
    assert!(world.locks[&name("a")].holder.is_some() && world.act(STEP).state == ActState::Ready);
    // The worker gives it back unrun.
    world.held.remove(&STEP);
    let attempt = world.attempt(STEP, None);
    apply(&mut world, &Command::Park(attempt));
    world.hear();
    assert!(world.locks[&name("a")].holder.is_none());
    assert_eq!((world.act(STEP).state, world.task.waits_for_queue()), (ActState::Parked, true));
    release(&mut world);
    assert_eq!((world.act(STEP).state, holder(&world)), (ActState::Ready, MINE));
}

#[test]
fn a_step_that_names_the_queue_of_its_task_as_a_lock_does_not_wait_for_itself() {
    let mut flow = flow();
    flow.steps[0].locks = vec![LockRef::Name(name("orders"))];
    let world = begin(flow);
    assert_eq!((world.act(STEP).state, holder(&world)), (ActState::Ready, MINE));
}

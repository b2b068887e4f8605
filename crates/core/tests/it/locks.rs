//! Steps with locks: they are asked for in the order of their names, held through retries, and always given back.

use windlass_core::{
    ActKey, ActState, Action, Attempt, Awaited, Command, Expression, Failure, Flow, LockCommand, LockOwner,
    LockRef, Name, Outcome, Report, Retry, StepDefinition, TaskId, Timestamp,
};

use crate::world::{World, anna, input};

const STEP: ActKey = ActKey::forward(0);

fn name(text: &str) -> Name {
    Name::new(text).expect("it is a name")
}

fn flow(locks: &[&str]) -> Flow {
    let mut run = Action::of_worker(name("disk"), name("write"));
    run.retry = Retry { max: 1, ..Retry::default() };
    let mut step = StepDefinition::new(name("write"), run, Vec::new());
    step.rollback = Some(Action::of_worker(name("disk"), name("clean")));
    step.locks = locks.iter().map(|lock| LockRef::Name(name(lock))).collect();
    let other = Action::of_worker(name("disk"), name("check"));
    Flow::new(name("backup"), vec![step, StepDefinition::new(name("check"), other, vec![0])])
}

fn begin(flow: Flow) -> World {
    let mut world = World::new(flow, input(None));
    apply(&mut world, &Command::Accept { done: Vec::new(), overrides_unique: false, by: None });
    world
}

fn apply(world: &mut World, command: &Command) {
    world.apply(command).unwrap_or_else(|rejection| panic!("{command:?} is refused: {rejection}"));
}

/// Another task that requests locks.
fn stranger() -> LockOwner {
    LockOwner { task: TaskId(99), key: STEP, turn: 1 }
}

fn acquire(world: &mut World, lock: &str) {
    world.tell_lock(&name(lock), &LockCommand::Acquire { owner: stranger() });
    world.hear();
}

fn release(world: &mut World, lock: &str) {
    world.tell_lock(&name(lock), &LockCommand::Release { owner: stranger() });
    world.hear();
}

fn holder(world: &World, lock: &str) -> Option<TaskId> {
    world.locks.get(&name(lock))?.holder.map(|holder| holder.owner.task)
}

fn state(world: &World, key: ActKey) -> ActState {
    world.act(key).state
}

fn take(world: &mut World, key: ActKey) -> Attempt {
    let number = world.act(key).attempt;
    world.held.insert(key, (number, world.now));
    world.handed_out.insert(key, number);
    Attempt { key, number, started_at: Some(world.now) }
}

fn report(world: &mut World, key: ActKey, outcome: Outcome) {
    let attempt = take(world, key);
    apply(world, &Command::Report(Report { attempt, outcome }));
}

fn failure(retryable: bool) -> Outcome {
    Outcome::Failed(Failure::new("no", 1, retryable))
}

const MINE: Option<TaskId> = Some(TaskId(7));

#[test]
fn locks_are_asked_for_one_after_the_other_in_the_order_of_their_names() {
    let mut world = begin(flow(&["b", "a", "b"]));
    acquire(&mut world, "b");
    assert_eq!(state(&world, STEP), ActState::Awaiting(Awaited::Lock));
    assert_eq!((holder(&world, "a"), holder(&world, "b")), (MINE, Some(TaskId(99))));
    assert!(!world.task.state.steps[0].touched, "nothing was begun");
    release(&mut world, "b");
    assert_eq!((state(&world, STEP), world.act(STEP).attempt), (ActState::Ready, 1));
    let fences: Vec<_> =
        world.act(STEP).locks().iter().map(|lock| (lock.name.to_string(), lock.fence)).collect();
    assert_eq!(fences.len(), 2);
    assert!(fences[0].0 == "a" && fences[1].0 == "b" && fences.iter().all(|(_, fence)| fence.is_some()));
}

#[test]
fn they_are_held_through_retries_and_losses_and_given_back_with_the_result() {
    let mut world = begin(flow(&["a"]));
    world.hear();
    let fence = world.act(STEP).locks()[0].fence;
    report(&mut world, STEP, failure(true));
    assert!(matches!(state(&world, STEP), ActState::Delayed { .. }));
    assert_eq!(holder(&world, "a"), MINE, "a retry does not end the task");
    let ActState::Delayed { until } = state(&world, STEP) else { unreachable!() };
    world.now = until;
    apply(&mut world, &Command::Wake(windlass_core::Wakeup::Act(STEP)));
    assert_eq!(state(&world, STEP), ActState::Ready);
    let attempt = take(&mut world, STEP);
    apply(&mut world, &Command::Lose(attempt));
    assert_eq!((state(&world, STEP), world.act(STEP).locks()[0].fence), (ActState::Ready, fence));
    report(&mut world, STEP, Outcome::Succeeded(None));
    world.hear();
    assert_eq!(holder(&world, "a"), None);
}

#[test]
fn an_undo_takes_them_anew() {
    let mut world = begin(flow(&["a"]));
    world.hear();
    report(&mut world, STEP, Outcome::Succeeded(None));
    acquire(&mut world, "a");
    report(&mut world, ActKey::forward(1), failure(false));
    assert_eq!(state(&world, ActKey::rollback(0)), ActState::Awaiting(Awaited::Lock));
    release(&mut world, "a");
    assert_eq!(state(&world, ActKey::rollback(0)), ActState::Ready);
    report(&mut world, ActKey::rollback(0), Outcome::Succeeded(None));
    world.hear();
    assert!(world.task.is_ended());
    assert_eq!(holder(&world, "a"), None);
}

#[test]
fn a_step_that_is_withdrawn_waits_no_more_and_a_lock_that_comes_too_late_goes_back() {
    let mut world = begin(flow(&["a"]));
    assert_eq!(world.said.len(), 1, "the lock is on its way");
    apply(&mut world, &Command::Cancel { by: anna() });
    assert!(world.task.is_ended(), "nothing was begun");
    world.hear();
    assert_eq!(holder(&world, "a"), None);

    let mut world = World::new(flow(&["a"]), input(None));
    acquire(&mut world, "a");
    apply(&mut world, &Command::Accept { done: Vec::new(), overrides_unique: false, by: None });
    assert_eq!(world.locks[&name("a")].waiting(), 1);
    apply(&mut world, &Command::Cancel { by: anna() });
    assert_eq!(world.locks[&name("a")].waiting(), 0);
}

#[test]
fn a_pause_asks_for_no_lock_and_a_lock_that_comes_in_a_pause_is_kept() {
    let mut world = World::new(flow(&["a"]), input(Some(Timestamp(2_000_000_000))));
    apply(&mut world, &Command::Accept { done: Vec::new(), overrides_unique: false, by: None });
    apply(&mut world, &Command::Pause { by: anna() });
    world.now = Timestamp(2_000_000_000);
    apply(&mut world, &Command::Wake(windlass_core::Wakeup::Start));
    assert_eq!((state(&world, STEP), world.locks.len()), (ActState::Parked, 0));
    apply(&mut world, &Command::Resume { by: anna() });
    assert_eq!(state(&world, STEP), ActState::Awaiting(Awaited::Lock));
    apply(&mut world, &Command::Pause { by: anna() });
    world.hear();
    assert_eq!((state(&world, STEP), holder(&world, "a")), (ActState::Parked, MINE));
    apply(&mut world, &Command::Resume { by: anna() });
    assert_eq!(state(&world, STEP), ActState::Ready);
}

#[test]
fn a_lock_that_a_person_took_is_asked_for_again_with_all_the_others_before_the_next_attempt() {
    let mut world = begin(flow(&["a", "b"]));
    world.hear();
    let before = world.act(STEP).locks()[0].fence;
    world.tell_lock(&name("a"), &LockCommand::Seize { reason: "its machine is gone".into(), by: anna() });
    world.hear();
    assert!(world.act(STEP).locks()[0].seized && state(&world, STEP) == ActState::Ready, "it goes on");
    acquire(&mut world, "a");
    let attempt = take(&mut world, STEP);
    apply(&mut world, &Command::Lose(attempt));
    world.hear();
    assert_eq!((holder(&world, "a"), holder(&world, "b")), (Some(TaskId(99)), None));
    release(&mut world, "a");
    assert_eq!((state(&world, STEP), holder(&world, "b")), (ActState::Ready, MINE));
    assert!(world.act(STEP).locks()[0].fence > before);
    assert_eq!(world.act(STEP).attempt, 2);
}

/// A worker may have begun it before, and after a restart nobody knows.
#[test]
fn a_ready_step_that_asks_for_its_lock_again_is_rolled_back_when_its_task_is_cancelled() {
    let mut world = begin(flow(&["a"]));
    world.hear();
    world.tell_lock(&name("a"), &LockCommand::Seize { reason: "its machine is gone".into(), by: anna() });
    world.hear();
    acquire(&mut world, "a");
    apply(&mut world, &Command::Pause { by: anna() });
    assert_eq!(state(&world, STEP), ActState::Parked);
    apply(&mut world, &Command::Resume { by: anna() });
    assert_eq!(state(&world, STEP), ActState::Awaiting(Awaited::Lock));
    apply(&mut world, &Command::Cancel { by: anna() });
    assert!(world.task.state.steps[0].touched && !world.task.is_ended());
    release(&mut world, "a");
    assert_eq!(state(&world, ActKey::rollback(0)), ActState::Ready);
}

#[test]
fn what_gives_no_name_fails_the_step_in_words() {
    let mut bad = flow(&[]);
    let expression = Expression::compile("'a lock'").expect("it compiles");
    bad.steps[0].locks = vec![LockRef::Expression(expression)];
    let world = begin(bad);
    let failure = world.act(STEP).failure.clone().expect("it failed");
    assert!(failure.message.contains("does not give the name of a lock"), "{}", failure.message);
    assert_eq!(failure.code, windlass_core::DATA_CODE);
    assert!(world.task.is_ended());
}

#[test]
fn a_flow_may_not_ask_for_too_many() {
    let names: Vec<String> = (0..=windlass_core::LOCKS_MAX).map(|number| format!("l{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let fault = flow(&names).check().expect_err("there are too many");
    assert!(fault.message.contains("the limit is 16"), "{}", fault.message);
    assert_eq!(flow(&names[..16]).check(), Ok(()));
}

#[test]
fn a_step_is_undone_under_the_lock_it_was_done_under() {
    let mut flow = flow(&[]);
    flow.steps[0].locks = vec![LockRef::Expression(Expression::compile("'disk-' + disk").unwrap())];
    let params = windlass_core::Json::parse(r#"{"disk":"7"}"#).unwrap();
    let mut world = World::new(flow, windlass_core::Input { params, ..input(None) });
    apply(&mut world, &Command::Accept { done: Vec::new(), overrides_unique: false, by: None });
    world.hear();
    let renamed = windlass_core::Json::parse(r#"{"disk":"8"}"#).unwrap();
    let attempt = Attempt { key: STEP, number: 1, started_at: Some(world.now) };
    let report = Report { attempt, outcome: Outcome::Succeeded(Some(renamed)) };
    apply(&mut world, &Command::Report(report));
    world.hear();
    apply(&mut world, &Command::Cancel { by: None });
    world.hear();
    let undo = world.act(ActKey::rollback(0));
    assert_eq!(undo.locks()[0].name, name("disk-7"));
}

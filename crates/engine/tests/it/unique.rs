//! Unique keys: every way a task starts takes part.

use windlass_core::{
    Action, Command, Doer, During, EventKind, Expression, Flow, Input, Json, Millis, Name, OnConflict,
    StepDefinition, TaskId, Unique,
};
use windlass_engine::{Accepted, EngineError, Existing, Rerun, Submission};
use windlass_store::SubmitKey;

use crate::world::{World, failed, flow, ok};

const PARAMS: &str = r#"{"order":"o-1"}"#;

fn unique(during: During) -> Flow {
    let key = Expression::compile("order").unwrap();
    Flow {
        unique: Some(Unique { key, during, on_conflict: OnConflict::Return }),
        ..flow("charge", &["charge"], 0)
    }
}

fn start(world: &World) -> Accepted {
    world.try_submit("charge", PARAMS, None).unwrap()
}

/// A task whose only step failed.
fn failed_task(world: &World) -> TaskId {
    let id = start(world).loaded.task.id;
    fail(world, 1);
    assert_eq!(world.status(id), "RolledBack: RolledBack");
    id
}

/// Fails the step of the only task, and rolls it back.
fn fail(world: &World, session: u128) {
    let mut worker = world.worker(session);
    let attempt = worker.take();
    worker.report(&attempt.token, failed("no"));
    let attempt = worker.take();
    worker.report(&attempt.token, ok());
}

fn rerun() -> Rerun {
    Rerun {
        from: None,
        params: None,
        overrides_unique: false,
        key: None,
        fingerprint_before: None,
        by: None,
        traceparent: None,
    }
}

fn run_again(world: &World, id: TaskId, rerun: Rerun) -> Result<Accepted, EngineError> {
    world.drive(world.engine.rerun(id, rerun, world.now()))
}

fn id_of(accepted: &Accepted) -> (TaskId, Option<Existing>) {
    (accepted.loaded.task.id, accepted.existing)
}

fn overridden(world: &World, id: TaskId) -> usize {
    let history = world.drive(world.engine.events(id, 0, 100)).unwrap();
    let is_overridden = |kind: &EventKind| matches!(kind, EventKind::UniqueOverridden { .. });
    history.iter().filter(|(_, event)| is_overridden(&event.kind)).count()
}

#[test]
fn of_two_reruns_and_a_new_start_one_runs() {
    let world = World::new();
    world.apply(unique(During::Running));
    let old = failed_task(&world);
    let first = run_again(&world, old, rerun()).unwrap();
    assert_eq!(first.existing, None);
    let first = first.loaded.task.id;
    assert_eq!(id_of(&run_again(&world, old, rerun()).unwrap()), (first, Some(Existing::Unique)));
    assert_eq!(id_of(&start(&world)), (first, Some(Existing::Unique)));
    assert_eq!(world.worker(2).poll().attempts.len(), 1, "one of the three charges");
}

#[test]
fn a_rerun_waits_for_no_new_start_that_runs_already() {
    let world = World::new();
    world.apply(unique(During::Running));
    let old = failed_task(&world);
    let started = start(&world).loaded.task.id;
    assert_eq!(id_of(&run_again(&world, old, rerun()).unwrap()), (started, Some(Existing::Unique)));
    // With other parameters it is another order.
    let other = Rerun { params: Some(Json::parse(r#"{"order":"o-2"}"#).unwrap()), ..rerun() };
    assert_eq!(run_again(&world, old, other).unwrap().existing, None);
}

#[test]
fn an_operator_may_override_it_and_the_history_says_so() {
    let world = World::new();
    world.apply(unique(During::Running));
    let old = failed_task(&world);
    let first = run_again(&world, old, rerun()).unwrap().loaded.task.id;
    let second = run_again(&world, old, Rerun { overrides_unique: true, ..rerun() }).unwrap();
    assert_eq!(second.existing, None);
    let second = second.loaded.task.id;
    assert_eq!((overridden(&world, first), overridden(&world, second)), (0, 1));
    assert_eq!(id_of(&start(&world)), (second, Some(Existing::Unique)), "it has the key from now on");
    assert_eq!(world.worker(2).poll().attempts.len(), 2);
}

#[test]
fn where_nothing_is_unique_there_is_nothing_to_override() {
    let world = World::new();
    world.apply(flow("charge", &["charge"], 0));
    let old = failed_task(&world);
    let again = run_again(&world, old, Rerun { overrides_unique: true, ..rerun() }).unwrap();
    assert_eq!(overridden(&world, again.loaded.task.id), 0);
}

#[test]
fn an_ended_task_prevents_new_ones_for_its_time_but_not_its_own_rerun() {
    let world = World::new();
    world.apply(unique(During::Finished(Millis::from_secs(3600))));
    let old = failed_task(&world);
    assert_eq!(id_of(&start(&world)), (old, Some(Existing::Unique)));
    let again = run_again(&world, old, rerun()).unwrap();
    assert_eq!(again.existing, None, "the old task does not prevent its own rerun");
    let again = again.loaded.task.id;
    fail(&world, 2);
    assert_eq!(id_of(&run_again(&world, old, rerun()).unwrap()), (again, Some(Existing::Unique)));
    assert_eq!(run_again(&world, again, rerun()).unwrap().existing, None);
}

#[test]
fn the_idempotency_key_of_a_rerun_names_the_task_that_prevented_it() {
    let world = World::new();
    world.apply(unique(During::Running));
    let old = failed_task(&world);
    let started = start(&world).loaded.task.id;
    let key = Some(SubmitKey { scope: [1; 32], fingerprint: [2; 32] });
    let keyed = || Rerun { key: key.clone(), ..rerun() };
    assert_eq!(id_of(&run_again(&world, old, keyed()).unwrap()), (started, Some(Existing::Unique)));
    world.drive(world.engine.tell(started, Command::Cancel { by: None })).unwrap();
    let again = run_again(&world, old, keyed()).unwrap();
    assert_eq!(
        id_of(&again),
        (started, Some(Existing::IdempotencyKey)),
        "the first answer may have been lost"
    );
}

#[test]
fn of_a_batch_one_is_started() {
    let world = World::new();
    world.apply(unique(During::Running));
    let submission = || Submission {
        flow: Name::new("charge").unwrap(),
        version: None,
        input: Input::new(Json::parse(PARAMS).unwrap(), world.now().wall),
        key: None,
        fingerprint_before: None,
    };
    let batch = vec![submission(), submission()];
    let results = world.drive(world.engine.submit_all(batch, world.now())).unwrap();
    let existing: Vec<_> = results.iter().map(|result| result.as_ref().unwrap().existing).collect();
    assert_eq!(existing, [None, Some(Existing::Unique)]);
    assert_eq!(world.worker(1).poll().attempts.len(), 1);
}

#[test]
fn a_flow_may_ask_for_a_refusal() {
    let world = World::new();
    let mut flow = unique(During::Running);
    flow.unique.as_mut().unwrap().on_conflict = OnConflict::Fail;
    world.apply(flow);
    let key = |scope: u8| Some(SubmitKey { scope: [scope; 32], fingerprint: [1; 32] });
    let first = world.try_submit("charge", PARAMS, key(1)).unwrap().loaded.task.id;
    let conflict = EngineError::UniqueConflict { flow: Name::new("charge").unwrap(), task: first };
    assert_eq!(world.try_submit("charge", PARAMS, None).unwrap_err(), conflict);
    assert_eq!(world.try_submit("charge", PARAMS, key(2)).unwrap_err(), conflict);
    let again = world.try_submit("charge", PARAMS, key(1)).unwrap();
    assert_eq!(
        id_of(&again),
        (first, Some(Existing::IdempotencyKey)),
        "a repeated request does not conflict"
    );
    fail(&world, 1);
    let second = world.try_submit("charge", PARAMS, key(2)).unwrap();
    assert_eq!(second.existing, None, "a refused request takes no key");
    let refused = run_again(&world, first, rerun()).unwrap_err();
    let task = second.loaded.task.id;
    assert_eq!(refused, EngineError::UniqueConflict { flow: Name::new("charge").unwrap(), task });
}

/// A flow whose step runs the flow `charge`, with `retries`.
fn parent(retries: u32) -> Flow {
    let mut flow = flow("parent", &["charge"], retries);
    let action: &mut Action = &mut flow.steps[0].run;
    action.doer = Doer::Flow { name: Name::new("charge").unwrap() };
    flow.steps[0] = StepDefinition { rollback: None, ..flow.steps[0].clone() };
    flow
}

#[test]
fn a_step_does_not_start_a_child_task_beside_another_one_with_its_key() {
    let world = World::new();
    world.apply(unique(During::Running));
    world.apply(parent(0));
    let first = start(&world).loaded.task.id;
    let parent = world.try_submit("parent", PARAMS, None).unwrap().loaded.task.id;
    world.serve();
    assert_eq!(world.status(parent), "Failed: Failed");
    let message = world.task(parent).message().map(|message| message.to_string()).unwrap();
    assert!(message.contains(&first.to_string()), "{message}");
    assert_eq!(world.worker(1).poll().attempts.len(), 1, "one charge");
}

#[test]
fn a_retry_starts_the_child_task_once_the_other_one_has_ended() {
    let world = World::new();
    world.apply(unique(During::Finished(Millis(500))));
    world.apply(parent(3));
    let first = start(&world).loaded.task.id;
    let parent = world.try_submit("parent", PARAMS, None).unwrap().loaded.task.id;
    world.serve();
    assert_eq!(world.status(parent), "Running: Ready");
    let mut worker = world.worker(1);
    let charge = worker.take();
    assert_eq!(charge.id.task, first);
    worker.report(&charge.token, ok());
    world.pass(2000);
    let mut worker = world.worker(2);
    let charge = worker.take();
    assert_ne!(charge.id.task, first);
    assert_eq!(
        id_of(&start(&world)),
        (charge.id.task, Some(Existing::Unique)),
        "a child has the key as well"
    );
    worker.report(&charge.token, failed("no"));
    let undo = worker.take();
    worker.report(&undo.token, ok());
    world.serve();
    world.pass(1000);
    // The attempt before does not prevent the next one, though its time after its end is not over.
    assert_ne!(world.worker(3).take().id.task, charge.id.task);
}

#[test]
fn a_child_task_without_a_unique_key_fails_its_step() {
    let world = World::new();
    world.apply(unique(During::Running));
    world.apply(parent(0));
    let parent = world.try_submit("parent", "{}", None).unwrap().loaded.task.id;
    world.serve();
    assert_eq!(world.status(parent), "Failed: Failed");
    assert!(world.task(parent).message().is_some_and(|message| message.contains("`unique` of the flow")));
}

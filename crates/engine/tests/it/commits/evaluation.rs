//! Expressions that take long: how much of them goes into one commit, and where they are evaluated.

use std::{
    future::Future,
    pin::pin,
    sync::{Arc, Mutex},
    task::Poll,
};

use futures_executor::block_on;
use windlass_core::{
    Doer, During, Expression, Flow, Input, Json, Name, OnConflict, Rejection, StepDefinition, TaskId, Unique,
};
use windlass_engine::{Committer, Elsewhere, EngineError, Submission};
use windlass_store::TaskQuery;

use super::poll;
use crate::world::{World, flow};

/// An expression that takes most of what a single one may, over [`params`].
const LONG: &str = "l.all(a, l.all(b, a >= 0))";

fn params() -> String {
    format!(r#"{{"l":[{}]}}"#, vec!["1"; 300].join(","))
}

/// A flow of `steps` independent steps, each with a condition that takes long.
fn long(name: &str, steps: usize) -> Flow {
    let plain = flow(name, &["a"], 0);
    let step = |index: usize| StepDefinition {
        name: Name::new(&format!("s{index}")).unwrap(),
        when: Some(Expression::compile(LONG).unwrap()),
        ..plain.steps[0].clone()
    };
    Flow { steps: (0..steps).map(step).collect(), ..plain }
}

fn submission(world: &World, flow: &str) -> Submission {
    Submission {
        flow: Name::new(flow).unwrap(),
        version: None,
        input: Input::new(Json::parse(&params()).unwrap(), world.now().wall),
        key: None,
        fingerprint_before: None,
    }
}

/// The tasks of a flow that are on disk, oldest first.
fn on_disk(world: &World, flow: &str) -> Vec<TaskId> {
    let query = TaskQuery { flow: Some(Name::new(flow).unwrap()), limit: 1000, ..TaskQuery::default() };
    let mut ids: Vec<_> =
        block_on(world.engine.tasks(&query)).unwrap().items.iter().map(|loaded| loaded.task.id).collect();
    ids.reverse();
    ids
}

type Work = Box<dyn FnOnce() + Send>;

/// Work that was put elsewhere and has not begun.
#[derive(Clone, Default)]
struct Bench(Arc<Mutex<Vec<Work>>>);

impl Bench {
    fn elsewhere(&self) -> Elsewhere {
        let bench = self.clone();
        Arc::new(move |work| bench.0.lock().unwrap().push(work))
    }

    fn take(&self) -> Vec<Work> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Polls what is decided until it has to wait for something elsewhere, or is done.
fn until_waiting<T>(mut future: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    for _ in 0..10 {
        if let Poll::Ready(output) = poll(future.as_mut()) {
            return Poll::Ready(output);
        }
    }
    Poll::Pending
}

#[test]
fn what_takes_long_goes_into_several_commits_in_order_and_others_do_not_wait_for_it() {
    let world = World::new();
    world.apply(long("long", 1));
    world.apply(flow("f", &["a"], 0));
    let committer = Committer::new(world.engine.clone());
    let many = (0..30).map(|_| submission(&world, "long")).collect();
    let mut many = pin!(world.engine.submit_all(many, world.now()));
    assert!(until_waiting(many.as_mut()).is_pending());
    let mut ordinary = pin!(world.engine.submit(submission(&world, "f"), world.now()));
    assert!(until_waiting(ordinary.as_mut()).is_pending());
    let mut late = pin!(world.engine.submit(submission(&world, "long"), world.now()));
    assert!(until_waiting(late.as_mut()).is_pending());

    let mut batches = Vec::new();
    while block_on(committer.run_once(|| world.now())) > 0 {
        batches.push(on_disk(&world, "long").len());
        let is_last = batches.last() == Some(&31);
        if batches.len() == 1 {
            assert!(until_waiting(ordinary.as_mut()).is_ready(), "it has no expressions");
        }
        if !is_last {
            assert!(poll(late.as_mut()).is_pending(), "it came last");
        }
    }
    assert!(batches.len() >= 3, "{batches:?}");
    assert!(batches[0] >= 5 && batches[0] <= 15, "{batches:?}");
    assert!(batches.is_sorted() && batches.last() == Some(&31), "{batches:?}");
    let Poll::Ready(Ok(results)) = until_waiting(many) else { panic!("all are decided") };
    let accepted: Vec<TaskId> = results.into_iter().map(|result| result.unwrap().loaded.task.id).collect();
    let Poll::Ready(Ok(late)) = until_waiting(late) else { panic!("it is decided") };
    let mut expected = accepted.clone();
    expected.push(late.loaded.task.id);
    assert_eq!(on_disk(&world, "long"), expected);
    let first = on_disk(&world, "long")[..batches[0]].to_vec();
    assert_eq!(first, accepted[..batches[0]], "the first commit has the first of them");
    assert_eq!(world.engine.counts().items(), 32 + 2, "each is counted once; two flows were applied");
}

#[test]
fn tasks_whose_conditions_take_too_long_are_refused_in_several_batches() {
    let world = World::new();
    world.apply(long("bomb", 255));
    let committer = Committer::new(world.engine.clone());
    let bombs = (0..8).map(|_| submission(&world, "bomb")).collect();
    let mut bombs = pin!(world.engine.submit_all(bombs, world.now()));
    assert!(until_waiting(bombs.as_mut()).is_pending());
    let before = world.engine.counts().batches();
    while block_on(committer.run_once(|| world.now())) > 0 {}
    assert_eq!(world.engine.counts().batches() - before, 3, "three, three and two of them");
    let Poll::Ready(Ok(results)) = until_waiting(bombs) else { panic!("all are decided") };
    for result in results {
        assert_eq!(result.unwrap_err(), EngineError::Rejected(Rejection::TooMuchToEvaluate));
    }
    assert!(on_disk(&world, "bomb").is_empty());
}

#[test]
fn a_child_task_that_takes_too_long_fails_the_step_that_starts_it() {
    let world = World::new();
    world.apply(long("bomb", 255));
    let mut parent = flow("parent", &["bomb"], 0);
    parent.steps[0].run.doer = Doer::Flow { name: Name::new("bomb").unwrap() };
    parent.steps[0].rollback = None;
    world.apply(parent);
    let parent = world.try_submit("parent", &params(), None).unwrap().loaded.task.id;
    world.serve();
    assert_eq!(world.status(parent), "Failed: Failed");
    let message = world.task(parent).message().map(|message| message.to_string()).unwrap();
    assert!(message.contains("take more than 2000000 steps"), "{message}");
}

#[test]
fn only_what_may_take_long_is_decided_elsewhere() {
    let world = World::new();
    world.apply(flow("plain", &["a", "b"], 0));
    let mut short = flow("short", &["a"], 0);
    short.steps[0].when = Some(Expression::compile("size(l) > 3").unwrap());
    world.apply(short);
    world.apply(long("long", 1));
    let unique = Unique {
        key: Expression::compile("l.exists(a, a > 0) ? 'some' : 'none'").unwrap(),
        during: During::Running,
        on_conflict: OnConflict::Return,
    };
    world.apply(Flow { unique: Some(unique), ..flow("unique", &["a"], 0) });
    let bench = Bench::default();
    let committer = Committer::new(world.engine.clone()).deciding_long(bench.elsewhere());
    for name in ["plain", "short"] {
        let mut submitting = pin!(world.engine.submit(submission(&world, name), world.now()));
        assert!(until_waiting(submitting.as_mut()).is_pending());
        block_on(committer.run_once(|| world.now()));
        assert!(until_waiting(submitting).is_ready(), "{name}");
        assert!(bench.take().is_empty(), "{name} is decided where it came");
    }
    for name in ["long", "unique"] {
        let mut submitting = pin!(world.engine.submit(submission(&world, name), world.now()));
        assert!(until_waiting(submitting.as_mut()).is_pending());
        let mut committing = pin!(committer.run_once(|| world.now()));
        assert!(until_waiting(committing.as_mut()).is_pending(), "{name}: the thread that runs it is free");
        let work = bench.take();
        assert_eq!(work.len(), 1, "{name}");
        work.into_iter().for_each(|work| work());
        assert_eq!(block_on(committing), 1);
        assert!(until_waiting(submitting).is_ready(), "{name}");
    }
}

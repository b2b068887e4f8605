//! The date of the machine was set back, and the engine's wall time goes on ahead of it.

use windlass_core::{Input, Json, Millis, Name};
use windlass_engine::Submission;

use crate::world::{World, failed, flow};

#[test]
fn a_start_waits_for_its_date_and_a_retry_does_not() {
    let world = World::new();
    world.apply(flow("f", &["a"], 1));
    let now = world.now().wall;
    let input = Input {
        at: Some(now + Millis(10_000)),
        deadline: Some(Millis(60_000)),
        ..Input::new(Json::empty(), now)
    };
    let submission = Submission {
        flow: Name::new("f").unwrap(),
        version: None,
        input,
        key: None,
        fingerprint_before: None,
    };
    let scheduled = world.drive(world.engine.submit(submission, world.now())).unwrap().loaded.task.id;
    let running = world.submit("f");
    let mut worker = world.worker(1);
    let attempt = worker.take();
    assert_eq!(attempt.id.task, running);
    worker.report(&attempt.token, failed("no"));

    // An hour back: the date of the scheduled task comes an hour later.
    world.engine.is_ahead(Millis(3_600_000));
    world.pass(20_000);
    assert_eq!(world.status(scheduled), "Scheduled: Pending");
    assert_eq!(world.worker(2).take().id.attempt, 2, "the retry");
    world.be_away(3_600_000);
    assert_eq!(world.status(scheduled), "Pending: Ready", "neither its start nor its deadline came early");

    // The date has caught up.
    world.engine.is_ahead(Millis(0));
    world.pass(100);
    assert!(world.status(scheduled).starts_with("RollingBack") || world.task(scheduled).is_ended());
}

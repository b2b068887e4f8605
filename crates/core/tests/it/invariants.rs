//! The invariants see what they are there for: each case is a state that no rule makes, broken by hand.

use windlass_core::{ActKey, ActState, Ending, Event, EventKind, Pause, Phase, Task, check};

use crate::story::play;

/// What the invariants say of the step from the end of `story` to what `breaking` makes of it.
fn broken(story: &str, breaking: impl Fn(&mut Task)) -> String {
    let world = play(story);
    let mut after = world.task.clone();
    after.state.events += 1;
    let events = [Event { at: world.now, kind: EventKind::TaskAccepted }];
    assert_eq!(check(&world.task, &after, &events), Ok(()), "it is sound before it is broken");
    breaking(&mut after);
    check(&world.task, &after, &events).expect_err("an invariant is broken")
}

#[test]
fn steps_keep_their_order() {
    assert_eq!(
        broken("flow a > b\naccept", |task| task.state.step_mut(1).forward.state = ActState::Ready),
        "a step begins after its predecessors are done"
    );
    assert_eq!(
        broken("flow a > b\naccept\nok a\nfail b x", |task| task.state.step_mut(0).undo.state =
            ActState::Ready),
        "a step is rolled back after its successors that need it"
    );
    assert_eq!(
        broken("flow a > b\naccept\nok a\ncancel", |task| task.state.step_mut(1).undo.state =
            ActState::Ready),
        "only steps that need a rollback are rolled back"
    );
    assert_eq!(
        broken("flow a b\naccept\ntake a\nfail b x", |task| task.state.step_mut(1).undo.state =
            ActState::Ready),
        "a rollback starts after everything in flight has ended"
    );
}

#[test]
fn the_order_holds_through_steps_that_were_passed_over() {
    let story = "flow a > b > c\nb: when false\naccept\nok a\nfail c x";
    assert_eq!(
        broken(story, |task| task.state.step_mut(0).undo.state = ActState::Ready),
        "a step is rolled back after its successors that need it"
    );
}

#[test]
fn a_step_is_settled_after_its_members() {
    let story = "flow a b\na: each list, on_partial continue\ninput {\"list\":[1,2]}\naccept";
    let world = play(&format!("{story}\nok a[1]"));
    let settled = |done: bool| {
        let mut after = world.task.clone();
        let key = ActKey::forward(0);
        let member = EventKind::ActOverdue { key: key.of_member(2), attempt: 1 };
        let step = EventKind::ActSucceeded { key, attempt: 1, result: None };
        let kind = if done { step } else { member };
        let events = [Event { at: world.now, kind }];
        after.state.events += 1;
        after.state.step_mut(0).forward.state = ActState::Succeeded;
        check(&world.task, &after, &events)
    };
    assert_eq!(settled(true), Err("a fanned-out step is done when its members are".to_owned()));
    assert_eq!(settled(false), Err("a step is settled after its members".to_owned()));
}

#[test]
fn what_is_done_stays_done() {
    assert_eq!(
        broken("flow a > b\naccept\nok a", |task| task.state.step_mut(0).forward.failures = 1),
        "a completed or skipped execution does not change"
    );
    assert_eq!(
        broken("flow a\naccept\nlose a", |task| task.state.step_mut(0).forward.attempt = 1),
        "attempt numbers only grow"
    );
    assert_eq!(
        broken("flow a\naccept", |task| task.state.step_mut(0).forward.state = ActState::Parked),
        "only a task that is paused or waits for its exclusive queue parks attempts"
    );
    assert_eq!(broken("flow a\naccept", |task| task.state.events += 1), "every event is counted once");
}

#[test]
fn the_phase_agrees_with_the_steps() {
    let end = |task: &mut Task, ending| task.state.phase = Phase::Ended(ending);
    let settle = |task: &mut Task| task.state.step_mut(0).forward.state = ActState::Failed;
    assert_eq!(
        broken("flow a\naccept", |task| end(task, Ending::Succeeded)),
        "an ended task has nothing in flight"
    );
    assert_eq!(
        broken("flow a\naccept", |task| {
            settle(task);
            end(task, Ending::Succeeded);
        }),
        "a task succeeds when all its steps are done"
    );
    assert_eq!(
        broken("flow a\naccept", |task| {
            settle(task);
            end(task, Ending::Failed);
        }),
        "a failed task ends when every step that needs it is rolled back or skipped"
    );
    assert_eq!(
        broken("flow a\naccept", |task| task.state.phase = Phase::Scheduled),
        "nothing of a scheduled task has begun"
    );
    assert_eq!(
        broken("flow a\naccept\nfail a x", |task| task.state.phase = Phase::Forward),
        "no rollback runs in the forward phase"
    );
}

#[test]
fn every_unfinished_task_has_something_that_will_wake_it() {
    assert_eq!(
        broken("flow a\naccept", |task| task.state.step_mut(0).forward.state = ActState::Failed),
        "every unfinished task has something that will wake it"
    );
    assert_eq!(
        broken("flow a\non_failure hold\naccept\nfail a x", |task| task.state.stuck = None),
        "every unfinished task has something that will wake it"
    );
}

#[test]
fn an_ended_task_does_not_change() {
    let world = play("flow a\naccept\nok a");
    let mut after = world.task.clone();
    after.state.events += 1;
    after.state.pause = Pause::Held;
    let events = [Event { at: world.now, kind: EventKind::TaskPaused { by: None } }];
    assert_eq!(check(&world.task, &after, &events), Err("an ended task does not change".to_owned()));
}

#[test]
fn an_act_has_one_accepted_result() {
    let world = play("flow a > b\naccept");
    let mut after = world.task.clone();
    after.state.events += 2;
    let kind = EventKind::ActSucceeded { key: ActKey::forward(0), attempt: 1, result: None };
    let event = Event { at: world.now, kind };
    assert_eq!(
        check(&world.task, &after, &[event.clone(), event]),
        Err("an act has at most one accepted result".to_owned())
    );
}

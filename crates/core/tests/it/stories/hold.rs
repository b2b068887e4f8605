//! The engine holds a task because of a fault of its own.

use insta::assert_snapshot;
use windlass_core::{ActState, StuckKind};

use crate::story::{play, tell};

#[test]
fn a_held_task_waits_as_it_is_and_goes_on_when_a_person_says_so() {
    assert_snapshot!(tell("
        flow a > b
        accept
        take a
        hold a count is off
        again
        ok a
        resume
        run
    "), @"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    take a
    hold a count is off
        paused
        stuck (engine_fault): held because of a fault of the engine: a count is off
        alarm: held because of a fault of the engine: a count is off
      -> keep a#1
      -> raise engine_fault.TASK
      == Stuck: a=running
    again
        nothing changes
    ok a
        a#1 was handed out
        a#1 succeeded
        b#1 parked
      -> forget a
      == Stuck: a=succeeded b=parked
    resume
        resumed by anna
        stuck no more
        alarm over: engine_fault by anna
        b#1 ready
      -> queue m: b#1 b at 0s
      -> resolve engine_fault.TASK
      == Running: a=succeeded b=ready
    run
        b#1 was handed out
        b#1 succeeded
        ended: Succeeded
      -> forget b
      == Succeeded: a=succeeded b=succeeded
    ");
}

#[test]
fn a_stuck_task_is_stuck_again_after_the_hold() {
    assert_snapshot!(tell("
        flow a
        on_failure hold
        accept
        fail a boom
        hold a count is off
        resume
    "), @r"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    fail a boom
        a#1 was handed out
        a#1 failed for good: boom (code 1)
        alarm: step a failed and is held: boom
        stuck (held): step a failed and is held: boom
      -> forget a
      -> raise held.TASK.a
      == Stuck: a=failed
    hold a count is off
        paused
        stuck (engine_fault): held because of a fault of the engine: a count is off
        alarm: held because of a fault of the engine: a count is off
      -> raise engine_fault.TASK
      == Stuck: a=failed
    resume
        resumed by anna
        stuck no more
        alarm over: engine_fault by anna
        stuck (held): step a failed and is held: boom
      -> resolve engine_fault.TASK
      == Stuck: a=failed
    ");
}

#[test]
fn a_held_task_can_be_cancelled() {
    assert_snapshot!(tell("
        flow a > b
        accept
        ok a
        hold a count is off
        cancel
        run
        hold too late
    "), @"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    ok a
        a#1 was handed out
        a#1 succeeded
        b#1 ready
      -> forget a
      -> queue m: b#1 b at 0s
      == Running: a=succeeded b=ready
    hold a count is off
        paused
        b#1 parked
        stuck (engine_fault): held because of a fault of the engine: a count is off
        alarm: held because of a fault of the engine: a count is off
      -> forget b
      -> raise engine_fault.TASK
      == Stuck: a=succeeded b=parked
    cancel
        stuck no more
        alarm over: engine_fault by anna
        rolling back: cancelled by anna
        b#1 withdrawn, untouched
        ~a#1 ready
      -> queue m: ~a#1 una at 0s
      -> resolve engine_fault.TASK
      == RollingBack: a=succeeded ~a=ready
    run
        ~a#1 was handed out
        ~a#1 succeeded
        ended: Cancelled
      -> forget ~a
      == Cancelled: a=succeeded ~a=succeeded
    hold too late
        rejected: the task has ended
    ");
}

#[test]
fn a_held_task_that_ends_by_itself_leaves_its_alarm() {
    assert_snapshot!(tell("
        flow a
        accept
        take a
        hold a count is off
        ok a
    "), @"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    take a
    hold a count is off
        paused
        stuck (engine_fault): held because of a fault of the engine: a count is off
        alarm: held because of a fault of the engine: a count is off
      -> keep a#1
      -> raise engine_fault.TASK
      == Stuck: a=running
    ok a
        a#1 was handed out
        a#1 succeeded
        stuck no more
        ended: Succeeded
      -> forget a
      == Succeeded: a=succeeded
    ");
}

#[test]
fn a_flow_says_how_many_workers_a_step_may_take_with_it() {
    let state = |deaths_max: &str, deaths: usize| {
        let story = format!("flow a\ndeaths_max {deaths_max}\naccept\n{}", "lose a\n".repeat(deaths));
        let task = play(&story).task;
        (task.state.stuck.map(|stuck| stuck.kind), task.state.steps[0].forward.state)
    };
    assert_eq!(state("1", 1), (Some(StuckKind::Poisoned), ActState::Failed));
    assert_eq!(state("5", 4), (None, ActState::Ready));
    assert_eq!(state("5", 5), (Some(StuckKind::Poisoned), ActState::Failed));
    let story = "flow a\na: each n\ndeaths_max 1\ninput {\"n\":[1,2]}\naccept\nlose a[1]\nok a[2]";
    assert_eq!(play(story).task.state.stuck.unwrap().kind, StuckKind::Poisoned, "of items as well");
}

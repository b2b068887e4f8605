//! What nobody has any more while its task is held: workers gave it back, or never came to name it.

use insta::assert_snapshot;

use crate::story::tell;

#[test]
fn what_a_worker_gives_back_in_a_pause_is_parked_and_nothing_is_counted() {
    assert_snapshot!(tell("
        flow a > b
        a: retry 1, deadline 60s
        accept
        take a
        pause
        park a
        decline a
        park a
        park a
        + 1s
        resume
        park a
        ok a
    "), @"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    take a
    pause
        paused by anna
      -> keep a#1
      == Pausing: a=running
    park a
        rejected: nothing is due
    decline a
    park a
        a#1 parked
      -> forget a
      == Paused: a=parked
    park a
        rejected: nothing is due
    + 1s
    resume
        resumed by anna
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    park a
        rejected: nothing is due
    ok a
        a#1 succeeded
        b#1 ready
      -> forget a
      -> queue m: b#1 b at 1s
      == Running: a=succeeded b=ready
    ");
}

#[test]
fn what_is_given_back_in_a_hold_of_the_engine_is_parked() {
    assert_snapshot!(tell("
        flow a
        accept
        take a
        hold a count is off
        decline a
        park a
        resume
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
    decline a
    park a
        a#1 parked
      -> forget a
      == Stuck: a=parked
    resume
        resumed by anna
        stuck no more
        alarm over: engine_fault by anna
        a#1 ready
      -> queue m: a#1 a at 0s
      -> resolve engine_fault.TASK
      == Pending: a=ready
    ok a
        a#1 succeeded
        ended: Succeeded
      -> forget a
      == Succeeded: a=succeeded
    ");
}

#[test]
fn what_was_given_back_in_a_pause_may_have_run_and_is_undone() {
    assert_snapshot!(tell("
        flow a
        accept
        take a
        pause
        decline a
        park a
        cancel
        ok ~a
    "), @"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    take a
    pause
        paused by anna
      -> keep a#1
      == Pausing: a=running
    decline a
    park a
        a#1 parked
      -> forget a
      == Paused: a=parked
    cancel
        rolling back: cancelled by anna
        a#1 withdrawn, touched
        ~a#1 ready
      -> queue m: ~a#1 una at 0s
      == RollingBack: ~a=ready
    ok ~a
        ~a#1 was handed out
        ~a#1 succeeded
        ended: Cancelled
      -> forget ~a
      == Cancelled: ~a=succeeded
    ");
}

#[test]
fn what_is_to_stop_is_given_up_in_a_pause_and_not_kept_for_later() {
    assert_snapshot!(tell("
        flow a > b
        accept
        ok a
        take b
        cancel
        decline b
        pause
        park b
        lose b
        resume
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
    take b
    cancel
        rolling back: cancelled by anna
      -> stop b#1
      == RollingBack: a=succeeded b=running
    decline b
    pause
        paused by anna
      -> stop b#1
      == Pausing: a=succeeded b=ready
    park b
        rejected: nothing is due
    lose b
        b#1 lost
        b#1 failed for good: its worker was lost (code 1)
        ~b#1 parked
      -> forget b
      == Paused: a=succeeded b=failed ~b=parked
    resume
        resumed by anna
        ~b#1 ready
      -> queue m: ~b#1 unb at 0s
      == RollingBack: a=succeeded b=failed ~b=ready
    ");
}

#[test]
fn an_undo_that_is_given_back_in_a_pause_is_parked() {
    assert_snapshot!(tell("
        flow a
        accept
        fail a boom
        take ~a
        pause
        decline ~a
        park ~a
        resume
        ok ~a
    "), @"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    fail a boom
        a#1 was handed out
        a#1 failed for good: boom (code 1)
        rolling back: a failed
        ~a#1 ready
      -> forget a
      -> queue m: ~a#1 una at 0s
      == RollingBack: a=failed ~a=ready
    take ~a
    pause
        paused by anna
      -> keep ~a#1
      == Pausing: a=failed ~a=running
    decline ~a
    park ~a
        ~a#1 parked
      -> forget ~a
      == Paused: a=failed ~a=parked
    resume
        resumed by anna
        ~a#1 ready
      -> queue m: ~a#1 una at 0s
      == RollingBack: a=failed ~a=ready
    ok ~a
        ~a#1 succeeded
        ended: RolledBack
      -> forget ~a
      == RolledBack: a=failed ~a=succeeded
    ");
}

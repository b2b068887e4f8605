//! A person holds a task between attempts.

use insta::assert_snapshot;

use crate::story::tell;

#[test]
fn what_waits_is_parked_and_keeps_its_place() {
    assert_snapshot!(tell("
        flow a
        accept
        + 1s
        pause
        again
        + 1s
        resume
        again
        ok a
    "), @r"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    + 1s
    pause
        paused by anna
        a#1 parked
      -> forget a
      == Paused: a=parked
    again
        nothing changes
    + 1s
    resume
        resumed by anna
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    again
        nothing changes
    ok a
        a#1 was handed out
        a#1 succeeded
        ended: Succeeded
      -> forget a
      == Succeeded: a=succeeded
    ");
}

#[test]
fn pausing_becomes_paused_when_nothing_is_in_flight() {
    assert_snapshot!(tell("
        flow a > b
        accept
        take a
        pause
        ok a
        + 1s
        resume
        run
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
    ok a
        a#1 was handed out
        a#1 succeeded
        b#1 parked
      -> forget a
      == Paused: a=succeeded b=parked
    + 1s
    resume
        resumed by anna
        b#1 ready
      -> queue m: b#1 b at 0s
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
fn a_retry_that_falls_due_starts_on_resume() {
    assert_snapshot!(tell("
        flow a
        a: retry 1, backoff fixed
        accept
        take a
        pause
        fail a boom
        next
        + 5s
        resume
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
    fail a boom
        a#1 was handed out
        a#1 failed: boom; again at 664ms
      -> wait a until 664ms
      == Paused: a=delayed
    next
        at 664ms
        a#2 parked
      -> forget a
      == Paused: a=parked
    + 5s
    resume
        resumed by anna
        a#2 ready
      -> queue m: a#2 a at 664ms
      == Running: a=ready
    ");
}

#[test]
fn a_worker_lost_in_a_pause_is_replaced_on_resume() {
    assert_snapshot!(tell("
        flow a
        accept
        take a
        pause
        lose a
        resume
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
    lose a
        a#1 was handed out
        a#1 lost
        a#2 parked
      -> forget a
      == Paused: a=parked
    resume
        resumed by anna
        a#2 ready
      -> queue m: a#2 a at 0s
      == Running: a=ready
    ");
}

#[test]
fn a_final_failure_in_a_pause_turns_the_task_and_nothing_starts() {
    assert_snapshot!(tell("
        flow a > b
        accept
        ok a
        take b
        pause
        fail b boom
        resume
        take ~b
        pause
        ok ~b
        resume
        ok ~a
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
    pause
        paused by anna
      -> keep b#1
      == Pausing: a=succeeded b=running
    fail b boom
        b#1 was handed out
        b#1 failed for good: boom (code 1)
        rolling back: b failed
        ~b#1 parked
      -> forget b
      == Paused: a=succeeded b=failed ~b=parked
    resume
        resumed by anna
        ~b#1 ready
      -> queue m: ~b#1 unb at 0s
      == RollingBack: a=succeeded b=failed ~b=ready
    take ~b
    pause
        paused by anna
      -> keep ~b#1
      == Pausing: a=succeeded b=failed ~b=running
    ok ~b
        ~b#1 was handed out
        ~b#1 succeeded
        ~a#1 parked
      -> forget ~b
      == Paused: a=succeeded ~a=parked b=failed ~b=succeeded
    resume
        resumed by anna
        ~a#1 ready
      -> queue m: ~a#1 una at 0s
      == RollingBack: a=succeeded ~a=ready b=failed ~b=succeeded
    ok ~a
        ~a#1 was handed out
        ~a#1 succeeded
        ended: RolledBack
      -> forget ~a
      == RolledBack: a=succeeded ~a=succeeded b=failed ~b=succeeded
    ");
}

#[test]
fn a_report_of_a_parked_attempt_counts() {
    assert_snapshot!(tell("
        flow a > b
        accept
        take a
        decline a
        pause
        ok a
    "), @r"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    take a
    decline a
    pause
        paused by anna
        a#1 parked
      -> forget a
      == Paused: a=parked
    ok a
        a#1 succeeded
        b#1 parked
      == Paused: a=succeeded b=parked
    ");
}

#[test]
fn a_start_time_that_comes_in_a_pause_starts_nothing() {
    assert_snapshot!(tell("
        flow a
        at 10s
        accept
        pause
        next
        resume
    "), @r"
    accept
        accepted
      -> wait start until 10s
      == Scheduled:
    pause
        paused by anna
      == Paused:
    next
        at 10s
        started
        a#1 parked
      -> forget start
      == Paused: a=parked
    resume
        resumed by anna
        a#1 ready
      -> queue m: a#1 a at 10s
      == Pending: a=ready
    ");
}

#[test]
fn a_held_step_settled_in_a_pause_starts_on_resume() {
    assert_snapshot!(tell("
        flow a > b
        on_failure hold
        accept
        fail a boom
        pause
        resolve a retry
        resume
        fail a boom
        pause
        resolve a skip
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
    pause
        paused by anna
      == Stuck: a=failed
    resolve a retry
        a resolved: Retry by anna
        alarm over: held a by anna
        a#2 parked
        stuck no more
      -> resolve held.TASK.a
      == Paused: a=parked
    resume
        resumed by anna
        a#2 ready
      -> queue m: a#2 a at 0s
      == Running: a=ready
    fail a boom
        a#2 was handed out
        a#2 failed for good: boom (code 1)
        alarm: step a failed and is held: boom
        stuck (held): step a failed and is held: boom
      -> forget a
      -> raise held.TASK.a
      == Stuck: a=failed
    pause
        paused by anna
      == Stuck: a=failed
    resolve a skip
        a resolved: Skip by anna
        alarm over: held a by anna
        b#1 parked
        stuck no more
      -> resolve held.TASK.a
      == Paused: a=skipped b=parked
    resume
        resumed by anna
        b#1 ready
      -> queue m: b#1 b at 0s
      == Running: a=skipped b=ready
    ");
}

#[test]
fn a_task_whose_last_step_ends_in_a_pause_ends() {
    assert_snapshot!(tell("
        flow a
        accept
        take a
        pause
        ok a
        resume
        pause
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
    ok a
        a#1 was handed out
        a#1 succeeded
        ended: Succeeded
      -> forget a
      == Succeeded: a=succeeded
    resume
        rejected: the task has ended
    pause
        rejected: the task has ended
    ");
}

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
      -> queue m: a#1 a at 0s until 60s
      == Pending: a=ready
    take a
    pause
        paused by anna
      -> keep a#1 until 60s
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
      -> queue m: a#1 a at 0s until 60s
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

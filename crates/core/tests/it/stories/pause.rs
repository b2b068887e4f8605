//! An operator pauses a task between attempts.

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

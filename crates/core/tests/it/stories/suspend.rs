//! The server may not run a task for a time.

use insta::assert_snapshot;

use crate::story::tell;

#[test]
fn what_runs_is_stopped_and_made_again_when_the_server_may_go_on() {
    assert_snapshot!(tell("
        flow a b > c
        accept
        take a
        suspend
        again
        continue
        fail a stopped
        continue
        again
        take a
        ok a
    "), @r"
    accept
        accepted
        a#1 ready
        b#1 ready
      -> queue m: a#1 a at 0s
      -> queue m: b#1 b at 0s
      == Pending: a=ready b=ready
    take a
    suspend
        paused by a list
        b#1 parked
        suspended by a list
      -> stop a#1
      -> forget b
      == Pausing: a=running b=parked
    again
        nothing changes
    continue
        rejected: workers are still stopping attempts of the task: resume it when its status is paused
    fail a stopped
        a#1 was handed out
        a#1 stopped
        a#2 parked
      -> forget a
      == Paused: a=parked b=parked
    continue
        resumed by a list
        a#2 ready
        b#1 ready
      -> queue m: a#2 a at 0s
      -> queue m: b#1 b at 0s
      == Running: a=ready b=ready
    again
        nothing changes
    take a
    ok a
        a#2 was handed out
        a#2 succeeded
      -> forget a
      == Running: a=succeeded b=ready
    ");
}

#[test]
fn the_pause_of_an_operator_is_never_ended_by_the_server() {
    assert_snapshot!(tell("
        flow a
        accept
        pause
        suspend
        continue
        resume
    "), @r"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    pause
        paused by anna
        a#1 parked
      -> forget a
      == Paused: a=parked
    suspend
        nothing changes
    continue
        nothing changes
    resume
        resumed by anna
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    ");
    assert_snapshot!(tell("
        flow a
        accept
        take a
        pause
        suspend
        fail a stopped
        continue
    "), @r"
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
    suspend
        stopping by a list
      -> stop a#1
      == Pausing: a=running
    fail a stopped
        a#1 was handed out
        a#1 stopped
        a#2 parked
      -> forget a
      == Paused: a=parked
    continue
        nothing changes
    ");
}

#[test]
fn an_operator_takes_a_pause_over() {
    assert_snapshot!(tell("
        flow a
        accept
        take a
        suspend
        pause
        fail a stopped
        continue
        resume
    "), @r"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    take a
    suspend
        paused by a list
        suspended by a list
      -> stop a#1
      == Pausing: a=running
    pause
        paused by anna
        stopping by anna
      -> stop a#1
      == Pausing: a=running
    fail a stopped
        a#1 was handed out
        a#1 stopped
        a#2 parked
      -> forget a
      == Paused: a=parked
    continue
        nothing changes
    resume
        resumed by anna
        a#2 ready
      -> queue m: a#2 a at 0s
      == Running: a=ready
    ");
}

#[test]
fn a_fault_of_the_engine_is_not_settled_by_the_server() {
    assert_snapshot!(tell("
        flow a
        accept
        suspend
        hold a count is off
        continue
    "), @r"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    suspend
        paused by a list
        a#1 parked
        suspended by a list
      -> forget a
      == Paused: a=parked
    hold a count is off
        paused
        stuck (engine_fault): held because of a fault of the engine: a count is off
        alarm: held because of a fault of the engine: a count is off
      -> raise engine_fault.TASK
      == Stuck: a=parked
    continue
        nothing changes
    ");
}

#[test]
fn an_operator_resumes_and_cancels_a_suspended_task() {
    assert_snapshot!(tell("
        flow a
        accept
        suspend
        resume
        suspend
        cancel
        continue
    "), @r"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    suspend
        paused by a list
        a#1 parked
        suspended by a list
      -> forget a
      == Paused: a=parked
    resume
        resumed by anna
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    suspend
        paused by a list
        a#1 parked
        suspended by a list
      -> forget a
      == Paused: a=parked
    cancel
        rolling back: cancelled by anna
        a#1 withdrawn, untouched
        ended: Cancelled
      == Cancelled:
    continue
        rejected: the task has ended
    ");
}

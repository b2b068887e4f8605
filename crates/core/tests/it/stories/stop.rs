//! An operator pauses a task and stops what runs.

use insta::assert_snapshot;

use crate::story::tell;

#[test]
fn what_runs_is_stopped_and_made_again_after_the_resume_without_counting() {
    assert_snapshot!(tell("
        flow a b > c
        accept
        take a
        stop
        again
        resume
        fail a stopped
        resume
        ok a#1
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
    stop
        paused by anna
        b#1 parked
        stopping by anna
      -> stop a#1
      -> forget b
      == Pausing: a=running b=parked
    again
        nothing changes
    resume
        rejected: workers are still stopping attempts of the task: resume it when its status is paused
    fail a stopped
        a#1 was handed out
        a#1 stopped
        a#2 parked
      -> forget a
      == Paused: a=parked b=parked
    resume
        resumed by anna
        a#2 ready
        b#1 ready
      -> queue m: a#2 a at 0s
      -> queue m: b#1 b at 0s
      == Running: a=ready b=ready
    ok a#1
        rejected: another attempt has taken over
    ok a
        a#2 was handed out
        a#2 succeeded
      -> forget a
      == Running: a=succeeded b=ready
    ");
}

#[test]
fn a_success_that_arrives_is_recorded_and_a_lost_worker_counts_no_death() {
    assert_snapshot!(tell("
        flow a b > c
        deaths_max 1
        accept
        take a
        take b
        stop
        ok b
        lose a
        resume
        take a
        stop
        timeout a
    "), @r"
    accept
        accepted
        a#1 ready
        b#1 ready
      -> queue m: a#1 a at 0s
      -> queue m: b#1 b at 0s
      == Pending: a=ready b=ready
    take a
    take b
    stop
        paused by anna
        stopping by anna
      -> stop a#1
      -> stop b#1
      == Pausing: a=running b=running
    ok b
        b#1 was handed out
        b#1 succeeded
      -> forget b
      == Pausing: a=running b=succeeded
    lose a
        a#1 was handed out
        a#1 stopped
        a#2 parked
      -> forget a
      == Paused: a=parked b=succeeded
    resume
        resumed by anna
        a#2 ready
      -> queue m: a#2 a at 0s
      == Running: a=ready b=succeeded
    take a
    stop
        paused by anna
        stopping by anna
      -> stop a#2
      == Pausing: a=running b=succeeded
    timeout a
        a#2 was handed out
        a#2 stopped
        a#3 parked
      -> forget a
      == Paused: a=parked b=succeeded
    ");
}

#[test]
fn a_pause_becomes_a_stop_and_a_cancel_ends_it() {
    assert_snapshot!(tell("
        flow a > b
        accept
        ok a
        take b
        pause
        stop
        cancel
        fail b stopped
        take ~b
        stop
        final ~b stopped
        resume
    "), @r"
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
    stop
        stopping by anna
      -> stop b#1
      == Pausing: a=succeeded b=running
    cancel
        rolling back: cancelled by anna
      -> stop b#1
      == RollingBack: a=succeeded b=running
    fail b stopped
        b#1 was handed out
        b#1 failed for good: stopped (code 1)
        ~b#1 ready
      -> forget b
      -> queue m: ~b#1 unb at 0s
      == RollingBack: a=succeeded b=failed ~b=ready
    take ~b
    stop
        paused by anna
        stopping by anna
      -> stop ~b#1
      == Pausing: a=succeeded b=failed ~b=running
    final ~b stopped
        ~b#1 was handed out
        ~b#1 stopped
        ~b#2 parked
      -> forget ~b
      == Paused: a=succeeded b=failed ~b=parked
    resume
        resumed by anna
        ~b#2 ready
      -> queue m: ~b#2 unb at 0s
      == RollingBack: a=succeeded b=failed ~b=ready
    ");
}

#[test]
fn what_a_module_reports_over_a_broker_cannot_be_stopped() {
    assert_snapshot!(tell("
        flow a
        a: retry 1
        accept
        take a
        afar a
        stop
        fail a boom
        resume
    "), @r"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    take a
    afar a
    stop
        paused by anna
      -> keep a#1
      == Pausing: a=running
    fail a boom
        a#1 was handed out
        a#1 failed: boom; again at 664ms
      -> wait a until 664ms
      == Paused: a=delayed
    resume
        resumed by anna
      == Running: a=delayed
    ");
}

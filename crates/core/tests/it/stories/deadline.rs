//! A step's deadline covers all its attempts together.

use insta::assert_snapshot;

use crate::story::{events, tell};

#[test]
fn no_deadline_runs_before_an_attempt_is_taken() {
    assert_snapshot!(tell("
        flow a
        a: deadline 10s
        accept
        + 90s
        wake a
        take a
        + 9s
        ok a
    "), @r"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    + 90s
    wake a
        rejected: nothing is due
    take a
    + 9s
    ok a
        a#1 was handed out (at 90s)
        a#1 succeeded
        ended: Succeeded
      -> forget a
      == Succeeded: a=succeeded
    ");
}

#[test]
fn a_deadline_passes_while_the_attempt_after_the_first_waits_in_the_queue() {
    assert_snapshot!(tell("
        flow a
        a: deadline 10s
        accept
        + 90s
        lose a
        + 9s
        wake a
        next
        again
    "), @"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    + 90s
    lose a
        a#1 was handed out
        a#1 lost
        a#2 ready
      -> queue m: a#2 a at 0s until 100s
      == Running: a=ready
    + 9s
    wake a
        rejected: nothing is due
    next
        at 100s
        a#2 failed for good: the step's deadline passed (code 125)
        rolling back: a failed
        ~a#1 ready
      -> forget a
      -> queue m: ~a#1 una at 100s
      == RollingBack: a=failed ~a=ready
    again
        rejected: nothing is due
    ");
}

#[test]
fn when_the_first_attempt_was_taken_is_written_down_once() {
    assert_snapshot!(tell("
        flow a
        a: deadline 10s, retry 1, backoff none
        accept
        + 90s
        take a
        + 5s
        kept a
        kept a
        + 1s
        fail a boom
        next
    "), @"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    + 90s
    take a
    + 5s
    kept a
        a#1 was taken (at 90s)
      -> queue m: a#1 a at 0s until 100s
      == Running: a=running
    kept a
        rejected: nothing is due
    + 1s
    fail a boom
        a#1 was handed out (at 90s)
        a#1 failed: boom; again at 96s
        a#2 ready
      -> queue m: a#2 a at 96s until 100s
      == Running: a=ready
    next
        at 100s
        a#2 failed for good: the step's deadline passed; the last attempt failed: boom (code 125)
        rolling back: a failed
        ~a#1 ready
      -> forget a
      -> queue m: ~a#1 una at 100s
      == RollingBack: a=failed ~a=ready
    ");
}

/// The wall time runs slower than the timeout while the machine's date is behind it.
#[test]
fn a_deadline_that_ends_the_first_attempt_is_named_also_after_it_was_written_down() {
    assert_snapshot!(tell("
        flow a
        a: deadline 10s, timeout 30s, retry 1, backoff none
        accept
        + 90s
        take a
        + 5s
        kept a
        + 4s
        timeout a
    "), @"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    + 90s
    take a
    + 5s
    kept a
        a#1 was taken (at 90s)
      -> queue m: a#1 a at 0s until 100s
      == Running: a=running
    + 4s
    timeout a
        a#1 was handed out (at 90s)
        a#1 failed for good: the step's deadline passed (code 125)
        rolling back: a failed
        ~a#1 ready
      -> forget a
      -> queue m: ~a#1 una at 99s
      == RollingBack: a=failed ~a=ready
    ");
}

#[test]
fn an_attempt_that_reports_within_the_deadline_leaves_the_others_what_is_left_of_it() {
    assert_snapshot!(tell("
        flow a
        a: deadline 10s, timeout 8s, retry 3, backoff none
        accept
        + 90s
        take a
        + 7s
        timeout a
        + 2s
        take a
        next
    "), @"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    + 90s
    take a
    + 7s
    timeout a
        a#1 was handed out (at 90s)
        a#1 failed: timed out after 8s; again at 97s
        a#2 ready
      -> queue m: a#2 a at 97s until 100s
      == Running: a=ready
    + 2s
    take a
    next
        at 100s
        a#2 overdue
        rolling back: a failed
      -> stop a#2
      == RollingBack: a=running
    ");
}

#[test]
fn a_deadline_shorter_than_the_timeout_ends_the_first_attempt() {
    assert_snapshot!(tell("
        flow a
        a: deadline 10s, timeout 60s, retry 3, backoff none
        accept
        + 90s
        take a
        + 10s
        timeout a
    "), @"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    + 90s
    take a
    + 10s
    timeout a
        a#1 was handed out (at 90s)
        a#1 failed for good: the step's deadline passed (code 125)
        rolling back: a failed
        ~a#1 ready
      -> forget a
      -> queue m: ~a#1 una at 100s
      == RollingBack: a=failed ~a=ready
    ");
}

#[test]
fn an_answer_lost_on_a_broker_spends_a_retry_and_the_next_attempt_has_a_deadline_of_its_own() {
    assert_snapshot!(tell("
        flow a
        a: deadline 10s, timeout 10s, retry 1, backoff none
        accept
        afar a
        + 10s
        timeout a
        + 90s
        afar a
        + 10s
        timeout a
        run
    "), @"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    afar a
    + 10s
    timeout a
        a#1 was handed out (at 0s)
        a#1 was not answered
        a#1 failed: no answer came within 10s; again at 10s
        a#2 ready
      -> queue m: a#2 a at 10s
      == Running: a=ready
    + 90s
    afar a
    + 10s
    timeout a
        a#2 was handed out (at 100s)
        a#2 was not answered
        a#2 failed for good: no answer came within 10s (code 124)
        rolling back: a failed
        ~a#1 ready
      -> forget a
      -> queue m: ~a#1 una at 110s
      == RollingBack: a=failed ~a=ready
    run
        ~a#1 was handed out
        ~a#1 succeeded
        ended: RolledBack
      -> forget ~a
      == RolledBack: a=failed ~a=succeeded
    ");
}

#[test]
fn an_answer_lost_on_the_way_back_is_waited_for_once_more() {
    assert_snapshot!(events("
        flow a
        retry_by module
        a: deadline 10s
        ~a: deadline 10s, timeout 10s, retry 1, backoff none
        accept
        final a boom
        afar ~a
        + 5s
        kept ~a
        next
        + 1s
        timeout ~a
        ok ~a
    "), @"
    accept
        accepted
        a#1 ready
    final a boom
        a#1 was handed out
        a#1 failed for good: boom (code 65)
        rolling back: a failed
        ~a#1 ready
    afar ~a
    + 5s
    kept ~a
        ~a#1 was taken (at 0s)
    next
        at 10s
        ~a#1 overdue
    + 1s
    timeout ~a
        ~a#1 was handed out (at 0s)
        ~a#1 was not answered
        ~a#1 failed: no answer came within 10s; again at 11s
        ~a#2 ready
    ok ~a
        ~a#2 was handed out
        ~a#2 succeeded
        ended: RolledBack
      == RolledBack: a=failed ~a=succeeded
    ");
}

#[test]
fn an_answer_lost_after_the_deadline_decides_when_its_time_is_over() {
    assert_snapshot!(events("
        flow a
        a: deadline 10s, timeout 10s, retry 2, backoff none
        accept
        + 1s
        afar a
        + 6s
        fail a boom
        afar a
        next
        + 6s
        timeout a
        ok a
    "), @"
    accept
        accepted
        a#1 ready
    + 1s
    afar a
    + 6s
    fail a boom
        a#1 was handed out (at 1s)
        a#1 failed: boom; again at 7s
        a#2 ready
    afar a
    next
        at 11s
        a#2 overdue
    + 6s
    timeout a
        a#2 was handed out (at 7s)
        a#2 was not answered
        a#2 failed: no answer came within 10s; again at 17s
        a#3 ready
    ok a
        a#3 was handed out
        a#3 succeeded
        ended: Succeeded
      == Succeeded: a=succeeded
    ");
}

#[test]
fn an_answer_lost_after_the_task_turned_around_ends_the_step() {
    assert_snapshot!(events("
        flow a
        a: deadline 10s, timeout 10s, retry 2, backoff none
        accept
        afar a
        cancel
        + 10s
        timeout a
        run
    "), @"
    accept
        accepted
        a#1 ready
    afar a
    cancel
        rolling back: cancelled by anna
    + 10s
    timeout a
        a#1 was handed out (at 0s)
        a#1 failed for good: timed out after 10s (code 124)
        ~a#1 ready
    run
        ~a#1 was handed out
        ~a#1 succeeded
        ended: Cancelled
      == Cancelled: a=failed ~a=succeeded
    ");
}

#[test]
fn a_deadline_passes_before_the_next_attempt() {
    assert_snapshot!(tell("
        flow a
        a: deadline 10s
        accept
        later a 60s
        next
    "), @r"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    later a 60s
        a#1 was handed out
        a#1 asked for later: busy; again at 60s
      -> wait a until 10s
      == Running: a=delayed
    next
        at 10s
        a#1 failed for good: the step's deadline passed (code 125)
        rolling back: a failed
        ~a#1 ready
      -> forget a
      -> queue m: ~a#1 una at 10s
      == RollingBack: a=failed ~a=ready
    ");
}

#[test]
fn a_retry_that_would_come_too_late_is_not_waited_for() {
    assert_snapshot!(tell("
        flow a
        a: deadline 10s, retry 5, base 30s
        accept
        fail a boom
    "), @r"
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
    ");
}

#[test]
fn a_deadline_passes_while_a_worker_has_the_attempt_and_its_end_is_waited_for() {
    assert_snapshot!(tell("
        flow a
        a: deadline 10s, retry 5
        accept
        take a
        kept a
        next
        again
        fail a killed
        run
    "), @"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    take a
    kept a
        a#1 was taken
      -> queue m: a#1 a at 0s until 10s
      == Running: a=running
    next
        at 10s
        a#1 overdue
        rolling back: a failed
      -> stop a#1
      == RollingBack: a=running
    again
        rejected: nothing is due
    fail a killed
        a#1 was handed out (at 0s)
        a#1 failed for good: the step's deadline passed (code 125)
        ~a#1 ready
      -> forget a
      -> queue m: ~a#1 una at 10s
      == RollingBack: a=failed ~a=ready
    run
        ~a#1 was handed out
        ~a#1 succeeded
        ended: RolledBack
      -> forget ~a
      == RolledBack: a=failed ~a=succeeded
    ");
}

#[test]
fn a_success_after_the_deadline_is_recorded_and_undone() {
    assert_snapshot!(tell("
        flow a > b
        a: deadline 10s
        accept
        take a
        kept a
        next
        ok a
        run
    "), @"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    take a
    kept a
        a#1 was taken
      -> queue m: a#1 a at 0s until 10s
      == Running: a=running
    next
        at 10s
        a#1 overdue
        rolling back: a failed
      -> stop a#1
      == RollingBack: a=running
    ok a
        a#1 was handed out (at 0s)
        a#1 succeeded
        ~a#1 ready
      -> forget a
      -> queue m: ~a#1 una at 10s
      == RollingBack: a=succeeded ~a=ready
    run
        ~a#1 was handed out
        ~a#1 succeeded
        ended: RolledBack
      -> forget ~a
      == RolledBack: a=succeeded ~a=succeeded
    ");
}

#[test]
fn a_worker_lost_after_the_deadline_ends_the_step() {
    assert_snapshot!(tell("
        flow a
        a: deadline 10s, no rollback
        accept
        take a
        kept a
        next
        lose a
    "), @"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    take a
    kept a
        a#1 was taken
      -> queue m: a#1 a at 0s until 10s
      == Running: a=running
    next
        at 10s
        a#1 overdue
        rolling back: a failed
      -> stop a#1
      == RollingBack: a=running
    lose a
        a#1 was handed out (at 0s)
        a#1 lost
        a#1 failed for good: the step's deadline passed (code 125)
        ~a skipped
        ended: Failed
      -> forget a
      == Failed: a=failed ~a=skipped
    ");
}

#[test]
fn a_deadline_in_a_flow_that_holds_waits_for_the_worker_and_then_for_a_person() {
    assert_snapshot!(tell("
        flow a > b
        on_failure hold
        a: deadline 10s
        accept
        take a
        kept a
        next
        later a
        resolve a retry
        + 9s
        ok a
    "), @"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    take a
    kept a
        a#1 was taken
      -> queue m: a#1 a at 0s until 10s
      == Running: a=running
    next
        at 10s
        a#1 overdue
      -> stop a#1
      == Running: a=running
    later a
        a#1 was handed out (at 0s)
        a#1 failed for good: the step's deadline passed (code 125)
        alarm: step a failed and is held: the step's deadline passed
        stuck (held): step a failed and is held: the step's deadline passed
      -> forget a
      -> raise held.TASK.a
      == Stuck: a=failed
    resolve a retry
        a resolved: Retry by anna
        alarm over: held a by anna
        a#2 ready
        stuck no more
      -> queue m: a#2 a at 10s
      -> resolve held.TASK.a
      == Running: a=ready
    + 9s
    ok a
        a#2 was handed out
        a#2 succeeded
        b#1 ready
      -> forget a
      -> queue m: b#1 b at 19s
      == Running: a=succeeded b=ready
    ");
}

#[test]
fn a_success_after_the_deadline_counts_in_a_flow_that_holds() {
    assert_snapshot!(tell("
        flow a > b
        on_failure hold
        a: deadline 10s
        accept
        take a
        kept a
        next
        ok a
    "), @"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    take a
    kept a
        a#1 was taken
      -> queue m: a#1 a at 0s until 10s
      == Running: a=running
    next
        at 10s
        a#1 overdue
      -> stop a#1
      == Running: a=running
    ok a
        a#1 was handed out (at 0s)
        a#1 succeeded
        b#1 ready
      -> forget a
      -> queue m: b#1 b at 10s
      == Running: a=succeeded b=ready
    ");
}

#[test]
fn a_deadline_passes_on_the_way_back() {
    assert_snapshot!(tell("
        flow a b
        ~a: deadline 10s
        ~b: deadline 10s
        accept
        take a
        final b boom
        ok a
        lose ~b
        take ~a
        kept ~a
        next
        fail ~a late
        resolve a skip
        resolve b skip
    "), @r"
    accept
        accepted
        a#1 ready
        b#1 ready
      -> queue m: a#1 a at 0s
      -> queue m: b#1 b at 0s
      == Pending: a=ready b=ready
    take a
    final b boom
        b#1 was handed out
        b#1 failed for good: boom (code 65)
        rolling back: b failed
      -> stop a#1
      -> forget b
      == RollingBack: a=running b=failed
    ok a
        a#1 was handed out
        a#1 succeeded
        ~b#1 ready
        ~a#1 ready
      -> forget a
      -> queue m: ~a#1 una at 0s
      -> queue m: ~b#1 unb at 0s
      == RollingBack: a=succeeded ~a=ready b=failed ~b=ready
    lose ~b
        ~b#1 was handed out
        ~b#1 lost
        ~b#2 ready
      -> queue m: ~b#2 unb at 0s until 10s
      == RollingBack: a=succeeded ~a=ready b=failed ~b=ready
    take ~a
    kept ~a
        ~a#1 was taken
      -> queue m: ~a#1 una at 0s until 10s
      == RollingBack: a=succeeded ~a=running b=failed ~b=ready
    next
        at 10s
        ~a#1 overdue
      -> stop ~a#1
      == RollingBack: a=succeeded ~a=running b=failed ~b=ready
        ~b#2 failed for good: the step's deadline passed (code 125)
        alarm: the rollback of step b failed: the step's deadline passed
      -> forget ~b
      -> raise rollback_failed.TASK.b
      == RollingBack: a=succeeded ~a=running b=failed ~b=failed
    fail ~a late
        ~a#1 was handed out (at 0s)
        ~a#1 failed for good: the step's deadline passed (code 125)
        alarm: the rollback of step a failed: the step's deadline passed
        stuck (rollback_failed): the rollback of step a failed: the step's deadline passed
      -> forget ~a
      -> raise rollback_failed.TASK.a
      == Stuck: a=succeeded ~a=failed b=failed ~b=failed
    resolve a skip
        ~a resolved: Skip by anna
        alarm over: rollback_failed a by anna
        stuck (rollback_failed): the rollback of step b failed: the step's deadline passed
      -> resolve rollback_failed.TASK.a
      == Stuck: a=succeeded ~a=skipped b=failed ~b=failed
    resolve b skip
        ~b resolved: Skip by anna
        alarm over: rollback_failed b by anna
        stuck no more
        ended: RolledBack
      -> resolve rollback_failed.TASK.b
      == RolledBack: a=succeeded ~a=skipped b=failed ~b=skipped
    ");
}

#[test]
fn an_overdue_undo_that_kills_its_third_worker_raises_the_alarm_that_is_cleared_later() {
    assert_snapshot!(tell("
        flow a
        ~a: deadline 10s
        accept
        final a boom
        lose ~a
        lose ~a
        take ~a
        next
        lose ~a
        resolve a skip
    "), @"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    final a boom
        a#1 was handed out
        a#1 failed for good: boom (code 65)
        rolling back: a failed
        ~a#1 ready
      -> forget a
      -> queue m: ~a#1 una at 0s
      == RollingBack: a=failed ~a=ready
    lose ~a
        ~a#1 was handed out
        ~a#1 lost
        ~a#2 ready
      -> queue m: ~a#2 una at 0s until 10s
      == RollingBack: a=failed ~a=ready
    lose ~a
        ~a#2 was handed out
        ~a#2 lost
        ~a#3 ready
      -> queue m: ~a#3 una at 0s until 10s
      == RollingBack: a=failed ~a=ready
    take ~a
    next
        at 10s
        ~a#3 overdue
      -> stop ~a#3
      == RollingBack: a=failed ~a=running
    lose ~a
        ~a#3 was handed out (at 0s)
        ~a#3 lost
        ~a#3 failed for good: the step's deadline passed (code 125)
        alarm: step a is poisoned: the step's deadline passed
        stuck (poisoned): step a is poisoned: the step's deadline passed
      -> forget ~a
      -> raise poisoned.TASK.a
      == Stuck: a=failed ~a=failed
    resolve a skip
        ~a resolved: Skip by anna
        alarm over: poisoned a by anna
        stuck no more
        ended: RolledBack
      -> resolve poisoned.TASK.a
      == RolledBack: a=failed ~a=skipped
    ");
}

#[test]
fn a_deadline_that_passes_in_a_pause_counts_on_resume() {
    assert_snapshot!(tell("
        flow a
        a: deadline 10s, no rollback
        accept
        lose a
        pause
        + 20s
        wake a
        resume
        next
    "), @r"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    lose a
        a#1 was handed out
        a#1 lost
        a#2 ready
      -> queue m: a#2 a at 0s until 10s
      == Running: a=ready
    pause
        paused by anna
        a#2 parked
      -> forget a
      == Paused: a=parked
    + 20s
    wake a
        rejected: nothing is due
    resume
        resumed by anna
        a#2 ready
      -> queue m: a#2 a at 0s until 10s
      == Running: a=ready
    next
        at 20s
        a#2 failed for good: the step's deadline passed (code 125)
        rolling back: a failed
        ~a skipped
        ended: Failed
      -> forget a
      == Failed: a=failed ~a=skipped
    ");
}

#[test]
fn a_deadline_that_passes_with_the_time_to_begin_is_seen_once() {
    assert_snapshot!(events("flow a\na: deadline 8s, start_within 3s\naccept\ntake a\n+ 20s\nwake a\nwake a\nwake a"), @"
    accept
        accepted
        a#1 ready
    take a
    + 20s
    wake a
        a#1 was taken (at 0s)
        a#1 overdue
        rolling back: a failed
      == RollingBack: a=running
    wake a
        rejected: nothing is due
    wake a
        rejected: nothing is due
    ");
}

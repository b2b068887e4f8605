//! An operator cancels a task.

use insta::assert_snapshot;

use crate::story::tell;

#[test]
fn a_pending_task_ends_at_once() {
    assert_snapshot!(tell("
        flow a
        accept
        cancel
        again
    "), @r"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    cancel
        rolling back: cancelled by anna
        a#1 withdrawn, untouched
        ended: Cancelled
      -> forget a
      == Cancelled:
    again
        rejected: the task has ended
    ");
}

#[test]
fn a_scheduled_task_ends_at_once() {
    assert_snapshot!(tell("
        flow a
        at 60s
        accept
        cancel
        wake start
    "), @r"
    accept
        accepted
      -> wait start until 60s
      == Scheduled:
    cancel
        rolling back: cancelled by anna
        ended: Cancelled
      -> forget start
      == Cancelled:
    wake start
        rejected: nothing is due
    ");
}

#[test]
fn what_runs_is_waited_for_and_a_success_that_arrives_is_recorded() {
    assert_snapshot!(tell("
        flow a > b > c
        accept
        ok a
        take b
        cancel
        again
        ok b
        ok ~b
        cancel
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
    cancel
        rolling back: cancelled by anna
      -> stop b#1
      == RollingBack: a=succeeded b=running
    again
        nothing changes
    ok b
        b#1 was handed out
        b#1 succeeded
        ~b#1 ready
      -> forget b
      -> queue m: ~b#1 unb at 0s
      == RollingBack: a=succeeded b=succeeded ~b=ready
    ok ~b
        ~b#1 was handed out
        ~b#1 succeeded
        ~a#1 ready
      -> queue m: ~a#1 una at 0s
      -> forget ~b
      == RollingBack: a=succeeded ~a=ready b=succeeded ~b=succeeded
    cancel
        nothing changes
    ok ~a
        ~a#1 was handed out
        ~a#1 succeeded
        ended: Cancelled
      -> forget ~a
      == Cancelled: a=succeeded ~a=succeeded b=succeeded ~b=succeeded
    ");
}

#[test]
fn what_runs_is_waited_for_and_a_failure_changes_nothing() {
    assert_snapshot!(tell("
        flow a
        a: retry 3
        accept
        take a
        cancel
        fail a killed
        run
    "), @"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    take a
    cancel
        rolling back: cancelled by anna
      -> stop a#1
      == RollingBack: a=running
    fail a killed
        a#1 was handed out
        a#1 failed for good: killed (code 1)
        ~a#1 ready
      -> forget a
      -> queue m: ~a#1 una at 0s
      == RollingBack: a=failed ~a=ready
    run
        ~a#1 was handed out
        ~a#1 succeeded
        ended: Cancelled
      -> forget ~a
      == Cancelled: a=failed ~a=succeeded
    ");
}

#[test]
fn an_attempt_that_no_worker_had_leaves_its_step_untouched() {
    assert_snapshot!(tell("
        flow a > b
        accept
        ok a
        cancel
        ok b#1
        run
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
    cancel
        rolling back: cancelled by anna
        b#1 withdrawn, untouched
        ~a#1 ready
      -> queue m: ~a#1 una at 0s
      -> forget b
      == RollingBack: a=succeeded ~a=ready
    ok b#1
        rejected: another attempt has taken over
    run
        ~a#1 was handed out
        ~a#1 succeeded
        ended: Cancelled
      -> forget ~a
      == Cancelled: a=succeeded ~a=succeeded
    ");
}

#[test]
fn an_attempt_that_a_worker_may_have_had_leaves_its_step_touched() {
    assert_snapshot!(tell("
        flow a
        accept
        take a
        decline a
        cancel
        ok a#1
        run
    "), @r"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    take a
    decline a
    cancel
        rolling back: cancelled by anna
        a#1 withdrawn, touched
        ~a#1 ready
      -> forget a
      -> queue m: ~a#1 una at 0s
      == RollingBack: ~a=ready
    ok a#1
        rejected: another attempt has taken over
    run
        ~a#1 was handed out
        ~a#1 succeeded
        ended: Cancelled
      -> forget ~a
      == Cancelled: ~a=succeeded
    ");
}

#[test]
fn a_step_that_waits_for_its_retry_is_touched() {
    assert_snapshot!(tell("
        flow a
        a: retry 1
        accept
        fail a boom
        cancel
        run
    "), @r"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    fail a boom
        a#1 was handed out
        a#1 failed: boom; again at 664ms
      -> wait a until 664ms
      == Running: a=delayed
    cancel
        rolling back: cancelled by anna
        a#1 withdrawn, touched
        ~a#1 ready
      -> forget a
      -> queue m: ~a#1 una at 0s
      == RollingBack: ~a=ready
    run
        ~a#1 was handed out
        ~a#1 succeeded
        ended: Cancelled
      -> forget ~a
      == Cancelled: ~a=succeeded
    ");
}

#[test]
fn a_paused_task_goes_back_at_once() {
    assert_snapshot!(tell("
        flow a > b
        accept
        ok a
        pause
        cancel
        run
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
    pause
        paused by anna
        b#1 parked
      -> forget b
      == Paused: a=succeeded b=parked
    cancel
        rolling back: cancelled by anna
        b#1 withdrawn, untouched
        ~a#1 ready
      -> queue m: ~a#1 una at 0s
      == RollingBack: a=succeeded ~a=ready
    run
        ~a#1 was handed out
        ~a#1 succeeded
        ended: Cancelled
      -> forget ~a
      == Cancelled: a=succeeded ~a=succeeded
    ");
}

#[test]
fn a_stuck_task_is_undone() {
    assert_snapshot!(tell("
        flow a > b
        on_failure hold
        accept
        ok a
        fail b boom
        cancel
        run
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
    fail b boom
        b#1 was handed out
        b#1 failed for good: boom (code 1)
        alarm: step b failed and is held: boom
        stuck (held): step b failed and is held: boom
      -> forget b
      -> raise held.TASK.b
      == Stuck: a=succeeded b=failed
    cancel
        alarm over: held b by anna
        rolling back: cancelled by anna
        ~b#1 ready
        stuck no more
      -> queue m: ~b#1 unb at 0s
      -> resolve held.TASK.b
      == RollingBack: a=succeeded b=failed ~b=ready
    run
        ~b#1 was handed out
        ~b#1 succeeded
        ~a#1 ready
      -> queue m: ~a#1 una at 0s
      -> forget ~b
      == RollingBack: a=succeeded ~a=ready b=failed ~b=succeeded
        ~a#1 was handed out
        ~a#1 succeeded
        ended: Cancelled
      -> forget ~a
      == Cancelled: a=succeeded ~a=succeeded b=failed ~b=succeeded
    ");
}

#[test]
fn a_cancelled_task_whose_undo_fails_is_stuck() {
    assert_snapshot!(tell("
        flow a
        accept
        take a
        cancel
        ok a
        fail ~a locked
        cancel
        resolve a skip
    "), @"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    take a
    cancel
        rolling back: cancelled by anna
      -> stop a#1
      == RollingBack: a=running
    ok a
        a#1 was handed out
        a#1 succeeded
        ~a#1 ready
      -> forget a
      -> queue m: ~a#1 una at 0s
      == RollingBack: a=succeeded ~a=ready
    fail ~a locked
        ~a#1 was handed out
        ~a#1 failed for good: locked (code 1)
        alarm: the rollback of step a failed: locked
        stuck (rollback_failed): the rollback of step a failed: locked
      -> forget ~a
      -> raise rollback_failed.TASK.a
      == Stuck: a=succeeded ~a=failed
    cancel
        nothing changes
    resolve a skip
        ~a resolved: Skip by anna
        alarm over: rollback_failed a by anna
        stuck no more
        ended: Cancelled
      -> resolve rollback_failed.TASK.a
      == Cancelled: a=succeeded ~a=skipped
    ");
}

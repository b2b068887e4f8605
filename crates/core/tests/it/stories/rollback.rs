//! Rollback: every step that needs it is rolled back, later ones first.

use insta::assert_snapshot;

use crate::story::tell;

#[test]
fn every_touched_step_is_undone_in_reverse_the_failed_one_included() {
    assert_snapshot!(tell("
        flow a > b > c > d
        accept
        ok a
        ok b
        fail c no space
        ok ~c
        ok ~b
        ok ~a
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
    ok b
        b#1 was handed out
        b#1 succeeded
        c#1 ready
      -> forget b
      -> queue m: c#1 c at 0s
      == Running: a=succeeded b=succeeded c=ready
    fail c no space
        c#1 was handed out
        c#1 failed for good: no space (code 1)
        rolling back: c failed
        ~c#1 ready
      -> forget c
      -> queue m: ~c#1 unc at 0s
      == RollingBack: a=succeeded b=succeeded c=failed ~c=ready
    ok ~c
        ~c#1 was handed out
        ~c#1 succeeded
        ~b#1 ready
      -> queue m: ~b#1 unb at 0s
      -> forget ~c
      == RollingBack: a=succeeded b=succeeded ~b=ready c=failed ~c=succeeded
    ok ~b
        ~b#1 was handed out
        ~b#1 succeeded
        ~a#1 ready
      -> queue m: ~a#1 una at 0s
      -> forget ~b
      == RollingBack: a=succeeded ~a=ready b=succeeded ~b=succeeded c=failed ~c=succeeded
    ok ~a
        ~a#1 was handed out
        ~a#1 succeeded
        ended: RolledBack
      -> forget ~a
      == RolledBack: a=succeeded ~a=succeeded b=succeeded ~b=succeeded c=failed ~c=succeeded
    ");
}

#[test]
fn a_step_without_rollback_is_passed_over() {
    assert_snapshot!(tell("
        flow a > b > c
        b: no rollback
        accept
        ok a
        ok b
        fail c boom
        ok ~c
        ok ~a
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
    ok b
        b#1 was handed out
        b#1 succeeded
        c#1 ready
      -> forget b
      -> queue m: c#1 c at 0s
      == Running: a=succeeded b=succeeded c=ready
    fail c boom
        c#1 was handed out
        c#1 failed for good: boom (code 1)
        rolling back: c failed
        ~c#1 ready
      -> forget c
      -> queue m: ~c#1 unc at 0s
      == RollingBack: a=succeeded b=succeeded c=failed ~c=ready
    ok ~c
        ~c#1 was handed out
        ~c#1 succeeded
        ~b skipped
        ~a#1 ready
      -> queue m: ~a#1 una at 0s
      -> forget ~c
      == RollingBack: a=succeeded ~a=ready b=succeeded ~b=skipped c=failed ~c=succeeded
    ok ~a
        ~a#1 was handed out
        ~a#1 succeeded
        ended: RolledBack
      -> forget ~a
      == RolledBack: a=succeeded ~a=succeeded b=succeeded ~b=skipped c=failed ~c=succeeded
    ");
}

#[test]
fn independent_branches_are_undone_in_parallel() {
    assert_snapshot!(tell("
        flow a > b c > d
        accept
        ok a
        ok b
        ok c
        fail d boom
        ok ~d
        ok ~b
        ok ~c
        ok ~a
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
        c#1 ready
      -> forget a
      -> queue m: b#1 b at 0s
      -> queue m: c#1 c at 0s
      == Running: a=succeeded b=ready c=ready
    ok b
        b#1 was handed out
        b#1 succeeded
      -> forget b
      == Running: a=succeeded b=succeeded c=ready
    ok c
        c#1 was handed out
        c#1 succeeded
        d#1 ready
      -> forget c
      -> queue m: d#1 d at 0s
      == Running: a=succeeded b=succeeded c=succeeded d=ready
    fail d boom
        d#1 was handed out
        d#1 failed for good: boom (code 1)
        rolling back: d failed
        ~d#1 ready
      -> forget d
      -> queue m: ~d#1 und at 0s
      == RollingBack: a=succeeded b=succeeded c=succeeded d=failed ~d=ready
    ok ~d
        ~d#1 was handed out
        ~d#1 succeeded
        ~c#1 ready
        ~b#1 ready
      -> queue m: ~b#1 unb at 0s
      -> queue m: ~c#1 unc at 0s
      -> forget ~d
      == RollingBack: a=succeeded b=succeeded ~b=ready c=succeeded ~c=ready d=failed ~d=succeeded
    ok ~b
        ~b#1 was handed out
        ~b#1 succeeded
      -> forget ~b
      == RollingBack: a=succeeded b=succeeded ~b=succeeded c=succeeded ~c=ready d=failed ~d=succeeded
    ok ~c
        ~c#1 was handed out
        ~c#1 succeeded
        ~a#1 ready
      -> queue m: ~a#1 una at 0s
      -> forget ~c
      == RollingBack: a=succeeded ~a=ready b=succeeded ~b=succeeded c=succeeded ~c=succeeded d=failed ~d=succeeded
    ok ~a
        ~a#1 was handed out
        ~a#1 succeeded
        ended: RolledBack
      -> forget ~a
      == RolledBack: a=succeeded ~a=succeeded b=succeeded ~b=succeeded c=succeeded ~c=succeeded d=failed ~d=succeeded
    ");
}

#[test]
fn what_runs_beside_a_failure_is_waited_for_and_its_success_recorded() {
    assert_snapshot!(tell("
        flow a > b c d > e
        accept
        ok a
        take b
        take c
        fail c boom
        ok b
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
        c#1 ready
        d#1 ready
      -> forget a
      -> queue m: b#1 b at 0s
      -> queue m: c#1 c at 0s
      -> queue m: d#1 d at 0s
      == Running: a=succeeded b=ready c=ready d=ready
    take b
    take c
    fail c boom
        c#1 was handed out
        c#1 failed for good: boom (code 1)
        rolling back: c failed
        d#1 withdrawn, untouched
      -> stop b#1
      -> forget c
      -> forget d
      == RollingBack: a=succeeded b=running c=failed
    ok b
        b#1 was handed out
        b#1 succeeded
        ~c#1 ready
        ~b#1 ready
      -> forget b
      -> queue m: ~b#1 unb at 0s
      -> queue m: ~c#1 unc at 0s
      == RollingBack: a=succeeded b=succeeded ~b=ready c=failed ~c=ready
    run
        ~b#1 was handed out
        ~b#1 succeeded
      -> forget ~b
      == RollingBack: a=succeeded b=succeeded ~b=succeeded c=failed ~c=ready
        ~c#1 was handed out
        ~c#1 succeeded
        ~a#1 ready
      -> queue m: ~a#1 una at 0s
      -> forget ~c
      == RollingBack: a=succeeded ~a=ready b=succeeded ~b=succeeded c=failed ~c=succeeded
        ~a#1 was handed out
        ~a#1 succeeded
        ended: RolledBack
      -> forget ~a
      == RolledBack: a=succeeded ~a=succeeded b=succeeded ~b=succeeded c=failed ~c=succeeded
    ");
}

#[test]
fn what_runs_beside_a_failure_is_not_tried_again() {
    assert_snapshot!(tell("
        flow a b c d
        a: retry 3
        b: retry 3
        accept
        take a
        take b
        take c
        take d
        final d boom
        fail a stopped
        later b
        lose c
    "), @"
    accept
        accepted
        a#1 ready
        b#1 ready
        c#1 ready
        d#1 ready
      -> queue m: a#1 a at 0s
      -> queue m: b#1 b at 0s
      -> queue m: c#1 c at 0s
      -> queue m: d#1 d at 0s
      == Pending: a=ready b=ready c=ready d=ready
    take a
    take b
    take c
    take d
    final d boom
        d#1 was handed out
        d#1 failed for good: boom (code 65)
        rolling back: d failed
      -> stop a#1
      -> stop b#1
      -> stop c#1
      -> forget d
      == RollingBack: a=running b=running c=running d=failed
    fail a stopped
        a#1 was handed out
        a#1 failed for good: stopped (code 1)
      -> forget a
      == RollingBack: a=failed b=running c=running d=failed
    later b
        b#1 was handed out
        b#1 failed for good: busy (code 1)
      -> forget b
      == RollingBack: a=failed b=failed c=running d=failed
    lose c
        c#1 was handed out
        c#1 lost
        c#1 failed for good: its worker was lost (code 1)
        ~d#1 ready
        ~c#1 ready
        ~b#1 ready
        ~a#1 ready
      -> queue m: ~a#1 una at 0s
      -> queue m: ~b#1 unb at 0s
      -> forget c
      -> queue m: ~c#1 unc at 0s
      -> queue m: ~d#1 und at 0s
      == RollingBack: a=failed ~a=ready b=failed ~b=ready c=failed ~c=ready d=failed ~d=ready
    ");
}

#[test]
fn a_delayed_step_counts_as_touched_when_another_fails() {
    assert_snapshot!(tell("
        flow a b
        a: retry 3
        accept
        fail a busy
        final b boom
        run
    "), @r"
    accept
        accepted
        a#1 ready
        b#1 ready
      -> queue m: a#1 a at 0s
      -> queue m: b#1 b at 0s
      == Pending: a=ready b=ready
    fail a busy
        a#1 was handed out
        a#1 failed: busy; again at 664ms
      -> wait a until 664ms
      == Running: a=delayed b=ready
    final b boom
        b#1 was handed out
        b#1 failed for good: boom (code 65)
        rolling back: b failed
        a#1 withdrawn, touched
        ~b#1 ready
        ~a#1 ready
      -> forget a
      -> queue m: ~a#1 una at 0s
      -> forget b
      -> queue m: ~b#1 unb at 0s
      == RollingBack: ~a=ready b=failed ~b=ready
    run
        ~a#1 was handed out
        ~a#1 succeeded
      -> forget ~a
      == RollingBack: ~a=succeeded b=failed ~b=ready
        ~b#1 was handed out
        ~b#1 succeeded
        ended: RolledBack
      -> forget ~b
      == RolledBack: ~a=succeeded b=failed ~b=succeeded
    ");
}

#[test]
fn an_undo_is_retried_like_a_step() {
    assert_snapshot!(tell("
        flow a
        ~a: retry 1, backoff none
        accept
        fail a boom
        fail ~a not yet
        lose ~a
        ok ~a
        again
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
    fail ~a not yet
        ~a#1 was handed out
        ~a#1 failed: not yet; again at 0s
        ~a#2 ready
      -> queue m: ~a#2 una at 0s
      == RollingBack: a=failed ~a=ready
    lose ~a
        ~a#2 was handed out
        ~a#2 lost
        ~a#3 ready
      -> queue m: ~a#3 una at 0s
      == RollingBack: a=failed ~a=ready
    ok ~a
        ~a#3 was handed out
        ~a#3 succeeded
        ended: RolledBack
      -> forget ~a
      == RolledBack: a=failed ~a=succeeded
    again
        rejected: this attempt was reported before
    ");
}

#[test]
fn a_failed_undo_blocks_only_its_predecessors() {
    assert_snapshot!(tell("
        flow a > b c > d
        accept
        ok a
        ok b
        ok c
        fail d boom
        ok ~d
        fail ~b stays
        ok ~c
        resolve b done
        ok ~a
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
        c#1 ready
      -> forget a
      -> queue m: b#1 b at 0s
      -> queue m: c#1 c at 0s
      == Running: a=succeeded b=ready c=ready
    ok b
        b#1 was handed out
        b#1 succeeded
      -> forget b
      == Running: a=succeeded b=succeeded c=ready
    ok c
        c#1 was handed out
        c#1 succeeded
        d#1 ready
      -> forget c
      -> queue m: d#1 d at 0s
      == Running: a=succeeded b=succeeded c=succeeded d=ready
    fail d boom
        d#1 was handed out
        d#1 failed for good: boom (code 1)
        rolling back: d failed
        ~d#1 ready
      -> forget d
      -> queue m: ~d#1 und at 0s
      == RollingBack: a=succeeded b=succeeded c=succeeded d=failed ~d=ready
    ok ~d
        ~d#1 was handed out
        ~d#1 succeeded
        ~c#1 ready
        ~b#1 ready
      -> queue m: ~b#1 unb at 0s
      -> queue m: ~c#1 unc at 0s
      -> forget ~d
      == RollingBack: a=succeeded b=succeeded ~b=ready c=succeeded ~c=ready d=failed ~d=succeeded
    fail ~b stays
        ~b#1 was handed out
        ~b#1 failed for good: stays (code 1)
        alarm: the rollback of step b failed: stays
      -> forget ~b
      -> raise rollback_failed.TASK.b
      == RollingBack: a=succeeded b=succeeded ~b=failed c=succeeded ~c=ready d=failed ~d=succeeded
    ok ~c
        ~c#1 was handed out
        ~c#1 succeeded
        stuck (rollback_failed): the rollback of step b failed: stays
      -> forget ~c
      == Stuck: a=succeeded b=succeeded ~b=failed c=succeeded ~c=succeeded d=failed ~d=succeeded
    resolve b done
        ~b resolved: Done by anna
        alarm over: rollback_failed b by anna
        ~a#1 ready
        stuck no more
      -> queue m: ~a#1 una at 0s
      -> resolve rollback_failed.TASK.b
      == RollingBack: a=succeeded ~a=ready b=succeeded ~b=succeeded c=succeeded ~c=succeeded d=failed ~d=succeeded
    ok ~a
        ~a#1 was handed out
        ~a#1 succeeded
        ended: RolledBack
      -> forget ~a
      == RolledBack: a=succeeded ~a=succeeded b=succeeded ~b=succeeded c=succeeded ~c=succeeded d=failed ~d=succeeded
    ");
}

//! The step for errors: it runs once the task has failed, and gets all errors.

use insta::assert_snapshot;

use crate::story::{events, tell};

#[test]
fn it_runs_when_the_task_has_failed_and_nothing_is_in_flight() {
    assert_snapshot!(tell(r#"
        flow a b e
        e: role on_error, no rollback
        accept
        take b
        final a boom
        fail b stopped
        show ~e
        ok ~e {"told":true}
        ok ~a
        ok ~b
    "#), @r#"
    accept
        accepted
        a#1 ready
        b#1 ready
      -> queue m: a#1 a at 0s
      -> queue m: b#1 b at 0s
      == Pending: a=ready b=ready
    take b
    final a boom
        a#1 was handed out
        a#1 failed for good: boom (code 65)
        rolling back: a failed
      -> forget a
      -> stop b#1
      == RollingBack: a=failed b=running
    fail b stopped
        b#1 was handed out
        b#1 failed for good: stopped (code 1)
        ~e#1 ready
        ~b#1 ready
        ~a#1 ready
      -> queue m: ~a#1 una at 0s
      -> forget b
      -> queue m: ~b#1 unb at 0s
      -> queue m: ~e#1 e at 0s
      == RollingBack: a=failed ~a=ready b=failed ~b=ready ~e=ready
    show ~e
        {"errors":[{"step":"a","code":65,"message":"boom"},{"step":"b","code":1,"message":"stopped"}]}
    ok ~e {"told":true}
        ~e#1 was handed out
        ~e#1 succeeded {"told":true}
      -> forget ~e
      == RollingBack: a=failed ~a=ready b=failed ~b=ready ~e=succeeded
    ok ~a
        ~a#1 was handed out
        ~a#1 succeeded
      -> forget ~a
      == RollingBack: a=failed ~a=succeeded b=failed ~b=ready ~e=succeeded
    ok ~b
        ~b#1 was handed out
        ~b#1 succeeded
        ended: RolledBack
      -> forget ~b
      == RolledBack: a=failed ~a=succeeded b=failed ~b=succeeded ~e=succeeded
    "#);
}

#[test]
fn it_is_told_which_members_failed() {
    assert_snapshot!(events(r#"
        flow a e
        a: each hosts, on_partial continue
        e: role on_error, no rollback
        ~a: no rollback
        on_failure hold
        input {"hosts":[1,2]}
        accept
        final a[1] x
        ok a[2]
    "#), @r#"
    accept
        accepted
        a has 2 members
        a[1]#1 ready
        a[2]#1 ready
    final a[1] x
        a[1]#1 was handed out
        a[1]#1 failed for good: x (code 65)
    ok a[2]
        a[2]#1 was handed out
        a[2]#1 succeeded
        a#1 succeeded {"a":[null,null],"a_errors":[{"step":"a","index":0,"code":65,"message":"x"}]}
        ended: Succeeded
      == Succeeded: a=succeeded a[1]=failed a[2]=succeeded
    "#);
    assert_snapshot!(events(r#"
        flow a e
        a: each hosts, on_partial 2, no rollback
        e: role on_error, no rollback
        input {"hosts":[1,2]}
        accept
        ok a[2]
        final a[1] x
        show ~e
        ok ~e
    "#), @r#"
    accept
        accepted
        a has 2 members
        a[1]#1 ready
        a[2]#1 ready
    ok a[2]
        a[2]#1 was handed out
        a[2]#1 succeeded
    final a[1] x
        a[1]#1 was handed out
        a[1]#1 failed for good: x (code 65)
        a#1 failed for good: item 0 failed: x (code 65)
        rolling back: a failed
        ~e#1 ready
        ~a skipped
    show ~e
        {"hosts":[1,2],"errors":[{"step":"a","index":0,"code":65,"message":"x"}]}
    ok ~e
        ~e#1 was handed out
        ~e#1 succeeded
        ended: Failed
      == Failed: a=failed ~a=skipped ~e=succeeded a[1]=failed a[2]=succeeded
    "#);
}

#[test]
fn it_does_not_run_for_a_success_or_a_cancel() {
    assert_snapshot!(events("flow a e\ne: role on_error, no rollback\naccept\nok a"), @"
    accept
        accepted
        a#1 ready
    ok a
        a#1 was handed out
        a#1 succeeded
        ended: Succeeded
      == Succeeded: a=succeeded
    ");
    assert_snapshot!(events("flow a e\ne: role on_error, no rollback\naccept\ntake a\ncancel\nok a\nok ~a"), @"
    accept
        accepted
        a#1 ready
    take a
    cancel
        rolling back: cancelled by anna
    ok a
        a#1 was handed out
        a#1 succeeded
        ~a#1 ready
    ok ~a
        ~a#1 was handed out
        ~a#1 succeeded
        ended: Cancelled
      == Cancelled: a=succeeded ~a=succeeded
    ");
}

#[test]
fn it_is_told_that_the_task_was_too_late() {
    assert_snapshot!(events("flow a e\ne: role on_error, no rollback\ndeadline 5s\naccept\nnext\nshow ~e\nok ~e"), @r#"
    accept
        accepted
        a#1 ready
    next
        at 5s
        rolling back: too late
        a#1 withdrawn, untouched
        ~e#1 ready
    show ~e
        {"errors":[{"code":125,"message":"the task's deadline passed"}]}
    ok ~e
        ~e#1 was handed out
        ~e#1 succeeded
        ended: Failed
      == Failed: ~e=succeeded
    "#);
}

#[test]
fn its_own_failure_waits_for_a_person() {
    assert_snapshot!(tell("flow a e\ne: role on_error, no rollback\na: no rollback\naccept\nfinal a boom\nfinal ~e bang\nresolve e retry\nok ~e"), @"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    final a boom
        a#1 was handed out
        a#1 failed for good: boom (code 65)
        rolling back: a failed
        ~e#1 ready
        ~a skipped
      -> forget a
      -> queue m: ~e#1 e at 0s
      == RollingBack: a=failed ~a=skipped ~e=ready
    final ~e bang
        ~e#1 was handed out
        ~e#1 failed for good: bang (code 65)
        alarm: the step for errors, e, failed: bang
        stuck (rollback_failed): the step for errors, e, failed: bang
      -> forget ~e
      -> raise rollback_failed.TASK.e
      == Stuck: a=failed ~a=skipped ~e=failed
    resolve e retry
        ~e resolved: Retry by anna
        alarm over: rollback_failed e by anna
        ~e#2 ready
        stuck no more
      -> queue m: ~e#2 e at 0s
      -> resolve rollback_failed.TASK.e
      == RollingBack: a=failed ~a=skipped ~e=ready
    ok ~e
        ~e#2 was handed out
        ~e#2 succeeded
        ended: Failed
      -> forget ~e
      == Failed: a=failed ~a=skipped ~e=succeeded
    ");
}

#[test]
fn it_runs_when_a_person_gives_up() {
    assert_snapshot!(events("flow a e\ne: role on_error, no rollback\non_failure hold\naccept\nfinal a boom\nresolve a rollback\nok ~e\nok ~a"), @"
    accept
        accepted
        a#1 ready
    final a boom
        a#1 was handed out
        a#1 failed for good: boom (code 65)
        alarm: step a failed and is held: boom
        stuck (held): step a failed and is held: boom
    resolve a rollback
        a resolved: Rollback by anna
        alarm over: held a by anna
        rolling back: a given up by anna
        ~e#1 ready
        ~a#1 ready
        stuck no more
    ok ~e
        ~e#1 was handed out
        ~e#1 succeeded
    ok ~a
        ~a#1 was handed out
        ~a#1 succeeded
        ended: RolledBack
      == RolledBack: a=failed ~a=succeeded ~e=succeeded
    ");
}

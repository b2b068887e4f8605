//! Joins: steps that come after several others, and what a failure of one of those means.

use insta::assert_snapshot;

use crate::story::events;

#[test]
fn a_join_that_continues_is_told_what_failed() {
    assert_snapshot!(events(r#"
        flow a b > c
        c: on_partial continue
        accept
        final a boom
        ok b {"b":1}
        show c
        ok c
    "#), @r#"
    accept
        accepted
        a#1 ready
        b#1 ready
    final a boom
        a#1 was handed out
        a#1 failed for good: boom (code 65)
    ok b {"b":1}
        b#1 was handed out
        b#1 succeeded {"b":1}
        c#1 ready
    show c
        {"b":1,"errors":[{"step":"a","code":65,"message":"boom"}]}
    ok c
        c#1 was handed out
        c#1 succeeded
        ended: Succeeded
      == Succeeded: a=failed b=succeeded c=succeeded
    "#);
}

#[test]
fn a_join_of_at_least_so_many_begins_or_fails() {
    assert_snapshot!(events("flow a b c > d\nd: on_partial 2\naccept\nfinal a boom\nok b\nok c\nok d"), @"
    accept
        accepted
        a#1 ready
        b#1 ready
        c#1 ready
    final a boom
        a#1 was handed out
        a#1 failed for good: boom (code 65)
    ok b
        b#1 was handed out
        b#1 succeeded
    ok c
        c#1 was handed out
        c#1 succeeded
        d#1 ready
    ok d
        d#1 was handed out
        d#1 succeeded
        ended: Succeeded
      == Succeeded: a=failed b=succeeded c=succeeded d=succeeded
    ");
    assert_snapshot!(events("flow a b c > d\nd: on_partial 2\naccept\nfinal a boom\nfinal b bang\nok c\nrun"), @"
    accept
        accepted
        a#1 ready
        b#1 ready
        c#1 ready
    final a boom
        a#1 was handed out
        a#1 failed for good: boom (code 65)
    final b bang
        b#1 was handed out
        b#1 failed for good: bang (code 65)
    ok c
        c#1 was handed out
        c#1 succeeded
        d#0 failed for good: 1 of the 3 steps before it succeeded or were skipped, and at least 2 must (code 1)
        rolling back: d failed
        ~c#1 ready
        ~b#1 ready
        ~a#1 ready
    run
        ~a#1 was handed out
        ~a#1 succeeded
        ~b#1 was handed out
        ~b#1 succeeded
        ~c#1 was handed out
        ~c#1 succeeded
        ended: RolledBack
      == RolledBack: a=failed ~a=succeeded b=failed ~b=succeeded c=succeeded ~c=succeeded d=failed
    ");
}

#[test]
fn a_join_without_tolerance_fails_with_the_first() {
    assert_snapshot!(events("flow a b > c\naccept\ntake b\nfinal a boom\nfail b stopped\nrun"), @"
    accept
        accepted
        a#1 ready
        b#1 ready
    take b
    final a boom
        a#1 was handed out
        a#1 failed for good: boom (code 65)
        rolling back: a failed
    fail b stopped
        b#1 was handed out
        b#1 failed for good: stopped (code 1)
        ~b#1 ready
        ~a#1 ready
    run
        ~a#1 was handed out
        ~a#1 succeeded
        ~b#1 was handed out
        ~b#1 succeeded
        ended: RolledBack
      == RolledBack: a=failed ~a=succeeded b=failed ~b=succeeded
    ");
}

#[test]
fn what_was_tolerated_is_undone_with_the_rest_when_the_join_fails() {
    assert_snapshot!(events("flow a b > c\nc: on_partial continue\naccept\nfinal a boom\nok b\nfinal c bang\nrun"), @"
    accept
        accepted
        a#1 ready
        b#1 ready
    final a boom
        a#1 was handed out
        a#1 failed for good: boom (code 65)
    ok b
        b#1 was handed out
        b#1 succeeded
        c#1 ready
    final c bang
        c#1 was handed out
        c#1 failed for good: bang (code 65)
        rolling back: c failed
        ~c#1 ready
    run
        ~c#1 was handed out
        ~c#1 succeeded
        ~b#1 ready
        ~a#1 ready
        ~a#1 was handed out
        ~a#1 succeeded
        ~b#1 was handed out
        ~b#1 succeeded
        ended: RolledBack
      == RolledBack: a=failed ~a=succeeded b=succeeded ~b=succeeded c=failed ~c=succeeded
    ");
}

#[test]
fn a_join_waits_for_all_members_of_a_step_that_it_does_without() {
    assert_snapshot!(events(r#"
        flow a b > c
        a: each hosts
        c: on_partial continue
        input {"hosts":[1,2,3]}
        accept
        ok b
        take a[2]
        final a[1] boom
        ok a[2]
        show c
    "#), @r#"
    accept
        accepted
        a has 3 members
        a[1]#1 ready
        a[2]#1 ready
        b#1 ready
    ok b
        b#1 was handed out
        b#1 succeeded
    take a[2]
    final a[1] boom
        a[1]#1 was handed out
        a[1]#1 failed for good: boom (code 65)
    ok a[2]
        a[2]#1 was handed out
        a[2]#1 succeeded
        a#1 failed for good: item 0 failed: boom (code 65)
        c#1 ready
      == Running: a=failed b=succeeded c=ready a[1]=failed a[2]=succeeded
    show c
        {"hosts":[1,2,3],"errors":[{"step":"a","index":0,"code":65,"message":"boom"}]}
    "#);
}

#[test]
fn the_deadline_of_a_step_that_a_join_does_without_does_not_turn_the_task_around() {
    assert_snapshot!(events("flow a b > c\na: deadline 5s\nc: on_partial continue\naccept\ntake a\nkept a\nok b\nnext\nfail a stopped\nok c"), @"
    accept
        accepted
        a#1 ready
        b#1 ready
    take a
    kept a
        a#1 was taken
    ok b
        b#1 was handed out
        b#1 succeeded
    next
        at 5s
        a#1 overdue
    fail a stopped
        a#1 was handed out (at 0s)
        a#1 failed for good: the step's deadline passed (code 125)
        c#1 ready
    ok c
        c#1 was handed out
        c#1 succeeded
        ended: Succeeded
      == Succeeded: a=failed b=succeeded c=succeeded
    ");
}

#[test]
fn a_chord_is_called_back_once() {
    assert_snapshot!(events(r#"
        flow a > b
        a: each hosts, parallel 2
        input {"hosts":[1,2]}
        accept
        ok a[2]
        again
        ok a[1]
        again
        ok b
        again
    "#), @r#"
    accept
        accepted
        a has 2 members
        a[1]#1 ready
        a[2]#1 ready
    ok a[2]
        a[2]#1 was handed out
        a[2]#1 succeeded
    again
        rejected: this attempt was reported before
    ok a[1]
        a[1]#1 was handed out
        a[1]#1 succeeded
        a#1 succeeded {"a":[null,null]}
        b#1 ready
    again
        rejected: this attempt was reported before
    ok b
        b#1 was handed out
        b#1 succeeded
        ended: Succeeded
      == Succeeded: a=succeeded b=succeeded a[1]=succeeded a[2]=succeeded
    again
        rejected: this attempt was reported before
    "#);
}

//! Conditions: steps that are skipped, and those whose condition cannot be evaluated.

use insta::assert_snapshot;

use crate::story::events;

#[test]
fn a_step_is_done_when_its_condition_holds() {
    assert_snapshot!(events("flow a > b > c\nb: when size > 1\ninput {\"size\":2}\naccept\nok a\nok b\nok c"), @"
    accept
        accepted
        a#1 ready
    ok a
        a#1 was handed out
        a#1 succeeded
        b#1 ready
    ok b
        b#1 was handed out
        b#1 succeeded
        c#1 ready
    ok c
        c#1 was handed out
        c#1 succeeded
        ended: Succeeded
      == Succeeded: a=succeeded b=succeeded c=succeeded
    ");
}

#[test]
fn a_step_whose_condition_does_not_hold_is_passed_over_and_others_come_after_it() {
    assert_snapshot!(events("flow a > b > c\nb: when size > 1\ninput {\"size\":1}\naccept\nok a\nfinal c boom\nrun"), @"
    accept
        accepted
        a#1 ready
    ok a
        a#1 was handed out
        a#1 succeeded
        b skipped
        c#1 ready
    final c boom
        c#1 was handed out
        c#1 failed for good: boom (code 65)
        rolling back: c failed
        ~c#1 ready
    run
        ~c#1 was handed out
        ~c#1 succeeded
        ~a#1 ready
        ~a#1 was handed out
        ~a#1 succeeded
        ended: RolledBack
      == RolledBack: a=succeeded ~a=succeeded b=skipped c=failed ~c=succeeded
    ");
    assert_snapshot!(events("flow a\na: when false\naccept"), @"
    accept
        accepted
        a skipped
        ended: Succeeded
      == Succeeded: a=skipped
    ");
}

#[test]
fn a_task_whose_first_step_is_passed_over_has_not_begun() {
    assert_snapshot!(events("flow a > b\na: when false\naccept"), @"
    accept
        accepted
        a skipped
        b#1 ready
      == Pending: a=skipped b=ready
    ");
}

#[test]
fn a_condition_that_cannot_be_told_fails_the_step() {
    assert_snapshot!(events("flow a > b\nb: when size > 1\naccept\nok a\nrun"), @"
    accept
        accepted
        a#1 ready
    ok a
        a#1 was handed out
        a#1 succeeded
        b#0 failed for good: the expression `size > 1` cannot be evaluated: the task has no parameter `size`: where it may be missing, test with `has(params.size)` first (code 65)
        rolling back: b failed
        ~a#1 ready
    run
        ~a#1 was handed out
        ~a#1 succeeded
        ended: RolledBack
      == RolledBack: a=succeeded ~a=succeeded b=failed
    ");
    // There is nothing to roll back where nothing has begun.
    assert_snapshot!(events("flow a\na: when size > 1\naccept"), @"
    accept
        accepted
        a#0 failed for good: the expression `size > 1` cannot be evaluated: the task has no parameter `size`: where it may be missing, test with `has(params.size)` first (code 65)
        rolling back: a failed
        ended: Failed
      == Failed: a=failed
    ");
    assert_snapshot!(events("flow a\na: when size > 1\non_failure hold\naccept\nresolve a retry {\"size\":2}\nok a"), @r#"
    accept
        accepted
        a#0 failed for good: the expression `size > 1` cannot be evaluated: the task has no parameter `size`: where it may be missing, test with `has(params.size)` first (code 65)
        alarm: step a failed and is held: the expression `size > 1` cannot be evaluated: the task has no parameter `size`: where it may be missing, test with `has(params.size)` first
        stuck (held): step a failed and is held: the expression `size > 1` cannot be evaluated: the task has no parameter `size`: where it may be missing, test with `has(params.size)` first
    resolve a retry {"size":2}
        a resolved: Retry by anna
        alarm over: held a by anna
        a amended: {} to {"size":2} by anna
        a#1 ready
        stuck no more
    ok a
        a#1 was handed out
        a#1 succeeded
        ended: Succeeded
      == Succeeded: a=succeeded
    "#);
}

#[test]
fn a_condition_is_looked_at_once() {
    // The retry of an attempt does not ask again.
    assert_snapshot!(events(r#"
        flow a b > c
        c: when a == 1, retry 1, backoff none
        accept
        ok a {"a":1}
        ok b
        fail c boom
        ok c
    "#), @r#"
    accept
        accepted
        a#1 ready
        b#1 ready
    ok a {"a":1}
        a#1 was handed out
        a#1 succeeded {"a":1}
    ok b
        b#1 was handed out
        b#1 succeeded
        c#1 ready
    fail c boom
        c#1 was handed out
        c#1 failed: boom; again at 0s
        c#2 ready
    ok c
        c#2 was handed out
        c#2 succeeded
        ended: Succeeded
      == Succeeded: a=succeeded b=succeeded c=succeeded
    "#);
}

#[test]
fn a_condition_sees_the_results_of_those_before_it_alone() {
    assert_snapshot!(events("flow a > b c > d\nb: when !has(params.c)\naccept\nok a\nok c {\"c\":1}\nok b"), @r#"
    accept
        accepted
        a#1 ready
    ok a
        a#1 was handed out
        a#1 succeeded
        b#1 ready
        c#1 ready
    ok c {"c":1}
        c#1 was handed out
        c#1 succeeded {"c":1}
    ok b
        b#1 was handed out
        b#1 succeeded
        d#1 ready
      == Running: a=succeeded b=succeeded c=succeeded d=ready
    "#);
}

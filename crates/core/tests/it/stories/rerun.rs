//! New runs: what another task has done is done.

use insta::assert_snapshot;

use crate::story::events;

#[test]
fn steps_that_another_task_has_done_are_not_done_again_nor_undone() {
    assert_snapshot!(events("flow a > b > c\naccept a\nok b\nfinal c boom\nrun"), @"
    accept a
        accepted
        a resolved: Done
        b#1 ready
    ok b
        b#1 was handed out
        b#1 succeeded
        c#1 ready
    final c boom
        c#1 was handed out
        c#1 failed for good: boom (code 65)
        rolling back: c failed
        ~c#1 ready
    run
        ~c#1 was handed out
        ~c#1 succeeded
        ~b#1 ready
        ~b#1 was handed out
        ~b#1 succeeded
        ended: RolledBack
      == RolledBack: a=succeeded b=succeeded ~b=succeeded c=failed ~c=succeeded
    ");
    assert_snapshot!(events("flow a\naccept a"), @"
    accept a
        accepted
        a resolved: Done
        ended: Succeeded
      == Succeeded: a=succeeded
    ");
}

#[test]
fn what_is_done_was_done_in_an_order() {
    assert_snapshot!(events("flow a > b\naccept b\naccept z\naccept a a"), @r#"
    accept b
        rejected: step "b" cannot be done already: the steps before it are not
    accept z
        rejected: the task has no such step
    accept a a
        rejected: this attempt was reported before
    "#);
    assert_snapshot!(events("flow a e\ne: role on_error, no rollback\naccept e"), @r#"
    accept e
        rejected: step "e" cannot be done already: the steps before it are not
    "#);
}

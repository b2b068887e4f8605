//! An operator resolves a step, forward or in rollback.

use insta::assert_snapshot;
use windlass_core::{ActKey, ActState};

use crate::story::{play, tell};

#[test]
fn a_held_step_can_be_tried_again_with_all_its_retries() {
    assert_snapshot!(tell("
        flow a > b
        on_failure hold
        a: retry 1, backoff none
        accept
        fail a one
        fail a two
        resolve a retry
        again
        fail a three
        ok a
        ok b
    "), @r#"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    fail a one
        a#1 was handed out
        a#1 failed: one; again at 0s
        a#2 ready
      -> queue m: a#2 a at 0s
      == Running: a=ready
    fail a two
        a#2 was handed out
        a#2 failed for good: two (code 1)
        alarm: step a failed and is held: two
        stuck (held): step a failed and is held: two
      -> forget a
      -> raise held.TASK.a
      == Stuck: a=failed
    resolve a retry
        a resolved: Retry by anna
        alarm over: held a by anna
        a#3 ready
        stuck no more
      -> queue m: a#3 a at 0s
      -> resolve held.TASK.a
      == Running: a=ready
    again
        rejected: step "a" does not wait for a decision
    fail a three
        a#3 was handed out
        a#3 failed: three; again at 0s
        a#4 ready
      -> queue m: a#4 a at 0s
      == Running: a=ready
    ok a
        a#4 was handed out
        a#4 succeeded
        b#1 ready
      -> forget a
      -> queue m: b#1 b at 0s
      == Running: a=succeeded b=ready
    ok b
        b#1 was handed out
        b#1 succeeded
        ended: Succeeded
      -> forget b
      == Succeeded: a=succeeded b=succeeded
    "#);
}

#[test]
fn a_held_step_can_be_skipped_or_be_done_by_hand() {
    assert_snapshot!(tell(r#"
        flow a > b > c
        on_failure hold
        accept
        fail a boom
        resolve a skip
        fail b boom
        resolve b done {"disk":"d1"}
        show c
        ok c
    "#), @r#"
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
    resolve a skip
        a resolved: Skip by anna
        alarm over: held a by anna
        b#1 ready
        stuck no more
      -> queue m: b#1 b at 0s
      -> resolve held.TASK.a
      == Running: a=skipped b=ready
    fail b boom
        b#1 was handed out
        b#1 failed for good: boom (code 1)
        alarm: step b failed and is held: boom
        stuck (held): step b failed and is held: boom
      -> forget b
      -> raise held.TASK.b
      == Stuck: a=skipped b=failed
    resolve b done {"disk":"d1"}
        b resolved: Done {"disk":"d1"} by anna
        alarm over: held b by anna
        c#1 ready
        stuck no more
      -> queue m: c#1 c at 0s
      -> resolve held.TASK.b
      == Running: a=skipped b=succeeded c=ready
    show c
        {"disk":"d1"}
    ok c
        c#1 was handed out
        c#1 succeeded
        ended: Succeeded
      -> forget c
      == Succeeded: a=skipped b=succeeded c=succeeded
    "#);
}

#[test]
fn a_held_step_can_be_given_up() {
    assert_snapshot!(tell("
        flow a > b
        on_failure hold
        accept
        ok a
        fail b boom
        resolve b rollback
        again
        run
    "), @r#"
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
    resolve b rollback
        b resolved: Rollback by anna
        alarm over: held b by anna
        rolling back: b given up by anna
        ~b#1 ready
        stuck no more
      -> queue m: ~b#1 unb at 0s
      -> resolve held.TASK.b
      == RollingBack: a=succeeded b=failed ~b=ready
    again
        rejected: step "b" is being rolled back already: use retry, skip or done
    run
        ~b#1 was handed out
        ~b#1 succeeded
        ~a#1 ready
      -> queue m: ~a#1 una at 0s
      -> forget ~b
      == RollingBack: a=succeeded ~a=ready b=failed ~b=succeeded
        ~a#1 was handed out
        ~a#1 succeeded
        ended: RolledBack
      -> forget ~a
      == RolledBack: a=succeeded ~a=succeeded b=failed ~b=succeeded
    "#);
}

#[test]
fn giving_up_a_branch_waits_for_the_other() {
    assert_snapshot!(tell("
        flow a b
        on_failure hold
        accept
        take b
        fail a boom
        resolve a rollback
        ok b
        run
    "), @"
    accept
        accepted
        a#1 ready
        b#1 ready
      -> queue m: a#1 a at 0s
      -> queue m: b#1 b at 0s
      == Pending: a=ready b=ready
    take b
    fail a boom
        a#1 was handed out
        a#1 failed for good: boom (code 1)
        alarm: step a failed and is held: boom
      -> forget a
      -> raise held.TASK.a
      == Running: a=failed b=running
    resolve a rollback
        a resolved: Rollback by anna
        alarm over: held a by anna
        rolling back: a given up by anna
      -> stop b#1
      -> resolve held.TASK.a
      == RollingBack: a=failed b=running
    ok b
        b#1 was handed out
        b#1 succeeded
        ~b#1 ready
        ~a#1 ready
      -> queue m: ~a#1 una at 0s
      -> forget b
      -> queue m: ~b#1 unb at 0s
      == RollingBack: a=failed ~a=ready b=succeeded ~b=ready
    run
        ~a#1 was handed out
        ~a#1 succeeded
      -> forget ~a
      == RollingBack: a=failed ~a=succeeded b=succeeded ~b=ready
        ~b#1 was handed out
        ~b#1 succeeded
        ended: RolledBack
      -> forget ~b
      == RolledBack: a=failed ~a=succeeded b=succeeded ~b=succeeded
    ");
}

#[test]
fn a_failed_undo_can_be_tried_again() {
    assert_snapshot!(tell("
        flow a > b
        accept
        ok a
        fail b boom
        fail ~b locked
        resolve b rollback
        resolve b retry
        ok ~b
        ok ~a
    "), @r#"
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
        rolling back: b failed
        ~b#1 ready
      -> forget b
      -> queue m: ~b#1 unb at 0s
      == RollingBack: a=succeeded b=failed ~b=ready
    fail ~b locked
        ~b#1 was handed out
        ~b#1 failed for good: locked (code 1)
        alarm: the rollback of step b failed: locked
        stuck (rollback_failed): the rollback of step b failed: locked
      -> forget ~b
      -> raise rollback_failed.TASK.b
      == Stuck: a=succeeded b=failed ~b=failed
    resolve b rollback
        rejected: step "b" is being rolled back already: use retry, skip or done
    resolve b retry
        ~b resolved: Retry by anna
        alarm over: rollback_failed b by anna
        ~b#2 ready
        stuck no more
      -> queue m: ~b#2 unb at 0s
      -> resolve rollback_failed.TASK.b
      == RollingBack: a=succeeded b=failed ~b=ready
    ok ~b
        ~b#2 was handed out
        ~b#2 succeeded
        ~a#1 ready
      -> queue m: ~a#1 una at 0s
      -> forget ~b
      == RollingBack: a=succeeded ~a=ready b=failed ~b=succeeded
    ok ~a
        ~a#1 was handed out
        ~a#1 succeeded
        ended: RolledBack
      -> forget ~a
      == RolledBack: a=succeeded ~a=succeeded b=failed ~b=succeeded
    "#);
}

#[test]
fn a_failed_undo_can_be_skipped() {
    assert_snapshot!(tell("
        flow a
        accept
        fail a boom
        fail ~a locked
        resolve a skip
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
    fail ~a locked
        ~a#1 was handed out
        ~a#1 failed for good: locked (code 1)
        alarm: the rollback of step a failed: locked
        stuck (rollback_failed): the rollback of step a failed: locked
      -> forget ~a
      -> raise rollback_failed.TASK.a
      == Stuck: a=failed ~a=failed
    resolve a skip
        ~a resolved: Skip by anna
        alarm over: rollback_failed a by anna
        stuck no more
        ended: RolledBack
      -> resolve rollback_failed.TASK.a
      == RolledBack: a=failed ~a=skipped
    ");
}

#[test]
fn a_task_stuck_on_two_steps_says_which_one_is_left() {
    assert_snapshot!(tell("
        flow a b
        accept
        take a
        fail b boom
        ok a
        fail ~a no a
        fail ~b no b
        resolve a skip
        resolve b skip
    "), @"
    accept
        accepted
        a#1 ready
        b#1 ready
      -> queue m: a#1 a at 0s
      -> queue m: b#1 b at 0s
      == Pending: a=ready b=ready
    take a
    fail b boom
        b#1 was handed out
        b#1 failed for good: boom (code 1)
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
    fail ~a no a
        ~a#1 was handed out
        ~a#1 failed for good: no a (code 1)
        alarm: the rollback of step a failed: no a
      -> forget ~a
      -> raise rollback_failed.TASK.a
      == RollingBack: a=succeeded ~a=failed b=failed ~b=ready
    fail ~b no b
        ~b#1 was handed out
        ~b#1 failed for good: no b (code 1)
        alarm: the rollback of step b failed: no b
        stuck (rollback_failed): the rollback of step a failed: no a
      -> forget ~b
      -> raise rollback_failed.TASK.b
      == Stuck: a=succeeded ~a=failed b=failed ~b=failed
    resolve a skip
        ~a resolved: Skip by anna
        alarm over: rollback_failed a by anna
        stuck (rollback_failed): the rollback of step b failed: no b
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
fn only_what_waits_for_a_person_is_settled() {
    assert_snapshot!(tell("
        flow a > b
        accept
        resolve a skip
        resolve zzz skip
        ok a
        resolve a retry
        fail b boom
        resolve b done
        resolve b rollback
        run
        resolve b skip
    "), @r#"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    resolve a skip
        rejected: step "a" does not wait for a decision
    resolve zzz skip
        rejected: the task has no such step
    ok a
        a#1 was handed out
        a#1 succeeded
        b#1 ready
      -> forget a
      -> queue m: b#1 b at 0s
      == Running: a=succeeded b=ready
    resolve a retry
        rejected: step "a" does not wait for a decision
    fail b boom
        b#1 was handed out
        b#1 failed for good: boom (code 1)
        rolling back: b failed
        ~b#1 ready
      -> forget b
      -> queue m: ~b#1 unb at 0s
      == RollingBack: a=succeeded b=failed ~b=ready
    resolve b done
        rejected: step "b" does not wait for a decision
    resolve b rollback
        rejected: step "b" is being rolled back already: use retry, skip or done
    run
        ~b#1 was handed out
        ~b#1 succeeded
        ~a#1 ready
      -> queue m: ~a#1 una at 0s
      -> forget ~b
      == RollingBack: a=succeeded ~a=ready b=failed ~b=succeeded
        ~a#1 was handed out
        ~a#1 succeeded
        ended: RolledBack
      -> forget ~a
      == RolledBack: a=succeeded ~a=succeeded b=failed ~b=succeeded
    resolve b skip
        rejected: the task has ended
    "#);
}

#[test]
fn an_undo_that_kills_its_workers_waits_for_a_person() {
    assert_snapshot!(tell("
        flow a
        accept
        fail a boom
        lose ~a
        lose ~a
        lose ~a
        resolve a retry
        ok ~a
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
    lose ~a
        ~a#1 was handed out
        ~a#1 lost
        ~a#2 ready
      -> queue m: ~a#2 una at 0s
      == RollingBack: a=failed ~a=ready
    lose ~a
        ~a#2 was handed out
        ~a#2 lost
        ~a#3 ready
      -> queue m: ~a#3 una at 0s
      == RollingBack: a=failed ~a=ready
    lose ~a
        ~a#3 was handed out
        ~a#3 lost
        ~a#3 failed for good: its worker died, went silent or gave no answer 3 times while it had this step (code 1)
        alarm: step a is poisoned: its worker died, went silent or gave no answer 3 times while it had this step
        stuck (poisoned): step a is poisoned: its worker died, went silent or gave no answer 3 times while it had this step
      -> forget ~a
      -> raise poisoned.TASK.a
      == Stuck: a=failed ~a=failed
    resolve a retry
        ~a resolved: Retry by anna
        alarm over: poisoned a by anna
        ~a#4 ready
        stuck no more
      -> queue m: ~a#4 una at 0s
      -> resolve poisoned.TASK.a
      == RollingBack: a=failed ~a=ready
    ok ~a
        ~a#4 was handed out
        ~a#4 succeeded
        ended: RolledBack
      -> forget ~a
      == RolledBack: a=failed ~a=succeeded
    ");
}

#[test]
fn a_poisoned_branch_needs_no_person_any_more_when_another_fails() {
    assert_snapshot!(tell("
        flow a b
        accept
        lose a
        lose a
        lose a
        fail b boom
        run
    "), @r"
    accept
        accepted
        a#1 ready
        b#1 ready
      -> queue m: a#1 a at 0s
      -> queue m: b#1 b at 0s
      == Pending: a=ready b=ready
    lose a
        a#1 was handed out
        a#1 lost
        a#2 ready
      -> queue m: a#2 a at 0s
      == Running: a=ready b=ready
    lose a
        a#2 was handed out
        a#2 lost
        a#3 ready
      -> queue m: a#3 a at 0s
      == Running: a=ready b=ready
    lose a
        a#3 was handed out
        a#3 lost
        a#3 failed for good: its worker died, went silent or gave no answer 3 times while it had this step (code 1)
        alarm: step a is poisoned: its worker died, went silent or gave no answer 3 times while it had this step
      -> forget a
      -> raise poisoned.TASK.a
      == Running: a=failed b=ready
    fail b boom
        b#1 was handed out
        b#1 failed for good: boom (code 1)
        alarm over: poisoned a
        rolling back: b failed
        ~b#1 ready
        ~a#1 ready
      -> queue m: ~a#1 una at 0s
      -> forget b
      -> queue m: ~b#1 unb at 0s
      -> resolve poisoned.TASK.a
      == RollingBack: a=failed ~a=ready b=failed ~b=ready
    run
        ~a#1 was handed out
        ~a#1 succeeded
      -> forget ~a
      == RollingBack: a=failed ~a=succeeded b=failed ~b=ready
        ~b#1 was handed out
        ~b#1 succeeded
        ended: RolledBack
      -> forget ~b
      == RolledBack: a=failed ~a=succeeded b=failed ~b=succeeded
    ");
}

#[test]
fn a_retry_ends_the_wait_for_the_next_attempt() {
    let act = |story: &str, key: ActKey| {
        let act = play(story).task.act(key).cloned().unwrap();
        (act.state, act.attempt, act.failures)
    };
    let step = ActKey::forward(0);
    let waits = "flow a > b\na: retry 2, base 10s\naccept\nfail a x\nnext\nfail a y\n";
    assert!(matches!(act(waits, step), (ActState::Delayed { .. }, 2, 2)));
    assert_eq!(act(&format!("{waits}resolve a retry"), step), (ActState::Ready, 3, 0));
    let told = tell(&format!("{waits}resolve a skip\nresolve a retry\nresolve a retry"));
    assert_eq!(told.matches("rejected").count(), 2, "nothing else ends it, and it ends once: {told}");

    let waits =
        "flow a\na: each n, retry 1, base 10s\ninput {\"n\":[1,2]}\naccept\nfail a[1] x\nresolve a retry";
    assert_eq!(act(waits, step.of_member(1)), (ActState::Ready, 2, 0));
    assert_eq!(act(waits, step.of_member(2)), (ActState::Ready, 1, 0));
    // A step that waits for its turn was never tried.
    let told = tell("flow a > b\nb: delay 60s\naccept\nok a\nresolve b retry");
    assert_eq!(told.matches("rejected").count(), 1, "{told}");
    // Nor is a step with items that waits for its turn again, after too few items failed it.
    let waits = "flow a\na: delay 5s, each n, on_partial 2\non_failure hold\ninput {\"n\":[1]}\naccept\nnext\nresolve a retry\n";
    assert!(matches!(act(waits, step), (ActState::Delayed { .. }, 1, 0)));
    let told = tell(&format!("{waits}resolve a retry\nnext\nresolve a retry {{\"n\":[1,2]}}\nnext\nrun"));
    assert_eq!(told.matches("rejected").count(), 1, "{told}");
    assert!(told.trim_end().ends_with("== Succeeded: a=succeeded a[1]=succeeded a[2]=succeeded"), "{told}");
}

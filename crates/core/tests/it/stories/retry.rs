//! Failures that are tried again: retries, lost workers, and attempts that ask for later.

use insta::assert_snapshot;

use windlass_core::Act;

use crate::story::{play, tell};

#[test]
fn a_failure_is_tried_again_with_growing_delays() {
    assert_snapshot!(tell("
        flow a
        a: retry 2, base 10s, cap 15s
        accept
        fail a one
        + 1s
        wake a
        next
        fail a two
        next
        fail a three
    "), @r"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    fail a one
        a#1 was handed out
        a#1 failed: one; again at 8677ms
      -> wait a until 8677ms
      == Running: a=delayed
    + 1s
    wake a
        rejected: nothing is due
    next
        at 8677ms
        a#2 ready
      -> queue m: a#2 a at 8677ms
      == Running: a=ready
    fail a two
        a#2 was handed out
        a#2 failed: two; again at 22621ms
      -> wait a until 22621ms
      == Running: a=delayed
    next
        at 22621ms
        a#3 ready
      -> queue m: a#3 a at 22621ms
      == Running: a=ready
    fail a three
        a#3 was handed out
        a#3 failed for good: three (code 1)
        rolling back: a failed
        ~a#1 ready
      -> forget a
      -> queue m: ~a#1 una at 22621ms
      == RollingBack: a=failed ~a=ready
    ");
}

#[test]
fn a_failure_without_back_off_is_tried_again_at_once() {
    assert_snapshot!(tell("
        flow a
        a: retry 1, backoff none
        accept
        fail a one
        ok a
    "), @r"
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
    ok a
        a#2 was handed out
        a#2 succeeded
        ended: Succeeded
      -> forget a
      == Succeeded: a=succeeded
    ");
}

#[test]
fn a_failure_that_cannot_be_helped_is_not_tried_again() {
    assert_snapshot!(tell("
        flow a
        a: retry 5
        accept
        final a bad data
    "), @r"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    final a bad data
        a#1 was handed out
        a#1 failed for good: bad data (code 65)
        rolling back: a failed
        ~a#1 ready
      -> forget a
      -> queue m: ~a#1 una at 0s
      == RollingBack: a=failed ~a=ready
    ");
}

#[test]
fn a_module_that_retries_by_itself_is_not_multiplied() {
    assert_snapshot!(tell("
        flow a
        a: retry 5, no rollback
        retry_by module
        accept
        fail a five times
    "), @r"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    fail a five times
        a#1 was handed out
        a#1 failed for good: five times (code 1)
        rolling back: a failed
        ~a skipped
        ended: Failed
      -> forget a
      == Failed: a=failed ~a=skipped
    ");
}

#[test]
fn an_attempt_that_runs_too_long_counts_as_a_failure() {
    assert_snapshot!(tell("
        flow a
        a: timeout 30s, retry 1, backoff fixed
        accept
        take a
        + 30s
        timeout a
        ok a#1
        next
        timeout a#1
        timeout a
    "), @r"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    take a
    + 30s
    timeout a
        a#1 was handed out (at 0s)
        a#1 failed: timed out after 30s; again at 30664ms
      -> wait a until 30664ms
      == Running: a=delayed
    ok a#1
        rejected: this attempt was reported before
    next
        at 30664ms
        a#2 ready
      -> queue m: a#2 a at 30664ms
      == Running: a=ready
    timeout a#1
        rejected: another attempt has taken over
    timeout a
        a#2 was handed out
        a#2 failed for good: timed out after 30s (code 124)
        rolling back: a failed
        ~a#1 ready
      -> forget a
      -> queue m: ~a#1 una at 30664ms
      == RollingBack: a=failed ~a=ready
    ");
}

#[test]
fn a_lost_worker_costs_no_retry() {
    assert_snapshot!(tell("
        flow a
        accept
        take a
        lose a
        again
        ok a#1
        ok a
    "), @r"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    take a
    lose a
        a#1 was handed out
        a#1 lost
        a#2 ready
      -> queue m: a#2 a at 0s
      == Running: a=ready
    again
        rejected: another attempt has taken over
    ok a#1
        rejected: another attempt has taken over
    ok a
        a#2 was handed out
        a#2 succeeded
        ended: Succeeded
      -> forget a
      == Succeeded: a=succeeded
    ");
}

#[test]
fn a_step_that_kills_its_workers_is_held_as_poisoned() {
    assert_snapshot!(tell("
        flow a > b
        accept
        ok a
        lose b
        lose b
        lose b
        resolve b rollback
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
    lose b
        b#1 was handed out
        b#1 lost
        b#2 ready
      -> queue m: b#2 b at 0s
      == Running: a=succeeded b=ready
    lose b
        b#2 was handed out
        b#2 lost
        b#3 ready
      -> queue m: b#3 b at 0s
      == Running: a=succeeded b=ready
    lose b
        b#3 was handed out
        b#3 lost
        b#3 failed for good: its worker died, went silent or gave no answer 3 times while it had this step (code 1)
        alarm: step b is poisoned: its worker died, went silent or gave no answer 3 times while it had this step
        stuck (poisoned): step b is poisoned: its worker died, went silent or gave no answer 3 times while it had this step
      -> forget b
      -> raise poisoned.TASK.b
      == Stuck: a=succeeded b=failed
    resolve b rollback
        b resolved: Rollback by anna
        alarm over: poisoned b by anna
        rolling back: b given up by anna
        ~b#1 ready
        stuck no more
      -> queue m: ~b#1 unb at 0s
      -> resolve poisoned.TASK.b
      == RollingBack: a=succeeded b=failed ~b=ready
    ");
}

#[test]
fn asking_for_later_costs_no_retry() {
    assert_snapshot!(tell("
        flow a
        accept
        later a
        later a
        next
        later a 3s
        next
        ok a
    "), @r"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    later a
        a#1 was handed out
        a#1 asked for later: busy; again at 10s
      -> wait a until 10s
      == Running: a=delayed
    later a
        rejected: this attempt was reported before
    next
        at 10s
        a#2 ready
      -> queue m: a#2 a at 10s
      == Running: a=ready
    later a 3s
        a#2 was handed out
        a#2 asked for later: busy; again at 13s
      -> wait a until 13s
      == Running: a=delayed
    next
        at 13s
        a#3 ready
      -> queue m: a#3 a at 13s
      == Running: a=ready
    ok a
        a#3 was handed out
        a#3 succeeded
        ended: Succeeded
      -> forget a
      == Succeeded: a=succeeded
    ");
}

#[test]
fn asking_for_later_has_an_end() {
    let story = format!("flow a\naccept\n{}later a\n", "later a 1s\nnext\n".repeat(100));
    let told = tell(&story);
    let end = told.find("a#101 failed").expect("the hundred and first time fails");
    assert_snapshot!(&told[end..], @r"
    a#101 failed for good: asked to be tried later 100 times: busy (code 1)
        rolling back: a failed
        ~a#1 ready
      -> forget a
      -> queue m: ~a#1 una at 100s
      == RollingBack: a=failed ~a=ready
    ");
}

#[test]
fn what_is_done_after_all_is_in_no_trouble() {
    let trouble = |act: &Act| act.trouble().map(|failure| failure.message.to_string());
    let steps =
        |story: &str| play(&format!("flow a\non_failure hold\na: retry 1\naccept\n{story}")).task.state.steps;
    let boom = Some("boom".to_owned());
    assert_eq!(trouble(&steps("fail a boom")[0].forward), boom, "it is tried again");
    assert_eq!(trouble(&steps("fail a boom\nnext\nok a")[0].forward), None);
    assert_eq!(trouble(&steps("final a boom")[0].forward), boom);
    assert_eq!(trouble(&steps("final a boom\nresolve a done")[0].forward), None);
    assert_eq!(trouble(&steps("final a boom\nresolve a skip")[0].forward), boom, "why it was skipped");
    let undo = "final a boom\nresolve a rollback\nfinal ~a stuck fast";
    assert_eq!(trouble(&steps(undo)[0].undo), Some("stuck fast".to_owned()));
    assert_eq!(trouble(&steps(&format!("{undo}\nresolve a done"))[0].undo), None);
}

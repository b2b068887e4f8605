//! Steps that wait for a signal.

use insta::assert_snapshot;

use crate::story::{events, tell};

#[test]
fn a_step_waits_for_its_signal_and_returns_what_came_with_it() {
    assert_snapshot!(tell("flow a > b > c\nb: signal go\naccept\nok a\nsignal go {\"ok\":true}\nshow c\nok c"), @r#"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    ok a
        a#1 was handed out
        a#1 succeeded
        b#1 waits for a signal
      -> forget a
      == Running: a=succeeded b=ready
    signal go {"ok":true}
        b got the signal go by anna
        b#1 succeeded {"ok":true}
        c#1 ready
      -> queue m: c#1 c at 0s
      == Running: a=succeeded b=succeeded c=ready
    show c
        {"ok":true}
    ok c
        c#1 was handed out
        c#1 succeeded
        ended: Succeeded
      -> forget c
      == Succeeded: a=succeeded b=succeeded c=succeeded
    "#);
}

#[test]
fn a_signal_that_comes_early_is_kept_or_refused() {
    assert_snapshot!(events("flow a > b > c\nb: signal go\naccept\nsignal? go\nsignal go {\"n\":1}\nok a\nok c"), @r#"
    accept
        accepted
        a#1 ready
    signal? go
        rejected: no step waits for the signal "go" now: send it later, or have it kept
    signal go {"n":1}
        signal go kept by anna
    ok a
        a#1 was handed out
        a#1 succeeded
        b#1 waits for a signal
        b got the signal go by anna
        b#1 succeeded {"n":1}
        c#1 ready
    ok c
        c#1 was handed out
        c#1 succeeded
        ended: Succeeded
      == Succeeded: a=succeeded b=succeeded c=succeeded
    "#);
    assert_snapshot!(events("flow a > b\nb: signal go\naccept\nsignal stop"), @r#"
    accept
        accepted
        a#1 ready
      == Pending: a=ready
    signal stop
        rejected: no step of the task waits for a signal "stop": look at the flow for its name
    "#);
}

#[test]
fn signals_are_taken_in_their_order_each_by_one_step() {
    assert_snapshot!(events(r#"
        flow a > b > c > d
        b: signal go
        c: signal go
        accept
        signal go {"n":1}
        signal go {"n":2}
        signal go {"n":3}
        ok a
        signal? go
        ok d
    "#), @r#"
    accept
        accepted
        a#1 ready
    signal go {"n":1}
        signal go kept by anna
    signal go {"n":2}
        signal go kept by anna
    signal go {"n":3}
        signal go kept by anna
    ok a
        a#1 was handed out
        a#1 succeeded
        b#1 waits for a signal
        b got the signal go by anna
        b#1 succeeded {"n":1}
        c#1 waits for a signal
        c got the signal go by anna
        c#1 succeeded {"n":2}
        d#1 ready
    signal? go
        rejected: no step will wait for the signal "go" any more: those that do are completed or skipped
    ok d
        d#1 was handed out
        d#1 succeeded
        ended: Succeeded
      == Succeeded: a=succeeded b=succeeded c=succeeded d=succeeded
    "#);
}

#[test]
fn so_many_signals_are_kept_and_no_more() {
    let many = "signal go\n".repeat(windlass_core::SIGNALS_MAX + 1);
    let told = events(&format!("flow a > b\nb: signal go\naccept\n{many}"));
    assert_eq!(told.matches("signal go kept").count(), windlass_core::SIGNALS_MAX);
    assert!(told.contains("rejected: the task keeps 100 signals for later already"), "{told}");
}

#[test]
fn a_signal_comes_through_a_pause_and_nothing_new_begins() {
    assert_snapshot!(events("flow a > b\na: signal go\naccept\npause\nsignal go\nresume\nok b"), @"
    accept
        accepted
        a#1 waits for a signal
    pause
        paused by anna
    signal go
        a got the signal go by anna
        a#1 succeeded
        b#1 parked
    resume
        resumed by anna
        b#1 ready
    ok b
        b#1 was handed out
        b#1 succeeded
        ended: Succeeded
      == Succeeded: a=succeeded b=succeeded
    ");
}

#[test]
fn a_cancel_withdraws_what_waits_for_a_signal() {
    assert_snapshot!(tell("flow a > b\nb: signal go\naccept\nok a\ncancel\nsignal go\nrun"), @r#"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    ok a
        a#1 was handed out
        a#1 succeeded
        b#1 waits for a signal
      -> forget a
      == Running: a=succeeded b=ready
    cancel
        rolling back: cancelled by anna
        b#1 withdrawn, untouched
        ~a#1 ready
      -> queue m: ~a#1 una at 0s
      == RollingBack: a=succeeded ~a=ready
    signal go
        rejected: no step waits for the signal "go" now: send it later, or have it kept
    run
        ~a#1 was handed out
        ~a#1 succeeded
        ended: Cancelled
      -> forget ~a
      == Cancelled: a=succeeded ~a=succeeded
    "#);
}

#[test]
fn a_signal_that_does_not_come_in_time_fails_its_step() {
    assert_snapshot!(tell("flow a > b\nb: signal go, deadline 5s\naccept\nok a\nnext\nrun"), @"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    ok a
        a#1 was handed out
        a#1 succeeded
        b#1 waits for a signal
      -> forget a
      -> wait b until 5s
      == Running: a=succeeded b=ready
    next
        at 5s
        b#1 failed for good: the signal go did not come within 5s (code 125)
        rolling back: b failed
        ~a#1 ready
      -> queue m: ~a#1 una at 5s
      -> forget b
      == RollingBack: a=succeeded ~a=ready b=failed
    run
        ~a#1 was handed out
        ~a#1 succeeded
        ended: RolledBack
      -> forget ~a
      == RolledBack: a=succeeded ~a=succeeded b=failed
    ");
    assert_snapshot!(events("flow a\na: signal go, deadline 5s\non_failure hold\naccept\nnext\nresolve a retry\nsignal go"), @"
    accept
        accepted
        a#1 waits for a signal
    next
        at 5s
        a#1 failed for good: the signal go did not come within 5s (code 125)
        alarm: step a failed and is held: the signal go did not come within 5s
        stuck (held): step a failed and is held: the signal go did not come within 5s
    resolve a retry
        a resolved: Retry by anna
        alarm over: held a by anna
        a#2 waits for a signal
        stuck no more
    signal go
        a got the signal go by anna
        a#2 succeeded
        ended: Succeeded
      == Succeeded: a=succeeded
    ");
}

#[test]
fn a_signal_that_nobody_can_use_any_more_is_refused() {
    assert_snapshot!(events("flow a > b\na: signal go\naccept\nsignal go\nsignal go"), @r#"
    accept
        accepted
        a#1 waits for a signal
    signal go
        a got the signal go by anna
        a#1 succeeded
        b#1 ready
      == Running: a=succeeded b=ready
    signal go
        rejected: no step will wait for the signal "go" any more: those that do are completed or skipped
    "#);
}

//! The way forward: one step after another, in parallel, in an order.

use insta::assert_snapshot;

use crate::story::tell;

#[test]
fn a_line_runs_in_order() {
    assert_snapshot!(tell("
        flow a > b > c
        accept
        take a
        + 2s
        ok a
        ok b
        ok c
    "), @r"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    take a
    + 2s
    ok a
        a#1 was handed out (at 0s)
        a#1 succeeded
        b#1 ready
      -> forget a
      -> queue m: b#1 b at 2s
      == Running: a=succeeded b=ready
    ok b
        b#1 was handed out
        b#1 succeeded
        c#1 ready
      -> forget b
      -> queue m: c#1 c at 2s
      == Running: a=succeeded b=succeeded c=ready
    ok c
        c#1 was handed out
        c#1 succeeded
        ended: Succeeded
      -> forget c
      == Succeeded: a=succeeded b=succeeded c=succeeded
    ");
}

#[test]
fn a_diamond_runs_its_branches_in_parallel_and_joins_them() {
    assert_snapshot!(tell("
        flow a > b c > d
        accept
        ok a
        ok c
        ok b
        ok d
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
    ok c
        c#1 was handed out
        c#1 succeeded
      -> forget c
      == Running: a=succeeded b=ready c=succeeded
    ok b
        b#1 was handed out
        b#1 succeeded
        d#1 ready
      -> forget b
      -> queue m: d#1 d at 0s
      == Running: a=succeeded b=succeeded c=succeeded d=ready
    ok d
        d#1 was handed out
        d#1 succeeded
        ended: Succeeded
      -> forget d
      == Succeeded: a=succeeded b=succeeded c=succeeded d=succeeded
    ");
}

#[test]
fn a_task_with_a_start_time_waits_for_it() {
    assert_snapshot!(tell("
        flow a
        at 60s
        accept
        wake start
        next
        again
        run
    "), @r"
    accept
        accepted
      -> wait start until 60s
      == Scheduled:
    wake start
        rejected: nothing is due
    next
        at 60s
        started
        a#1 ready
      -> forget start
      -> queue m: a#1 a at 60s
      == Pending: a=ready
    again
        rejected: nothing is due
    run
        a#1 was handed out
        a#1 succeeded
        ended: Succeeded
      -> forget a
      == Succeeded: a=succeeded
    ");
}

#[test]
fn a_priority_moves_the_place_in_the_queue() {
    assert_snapshot!(tell("
        flow a
        priority 2
        accept
    "), @r"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at -120s
      == Pending: a=ready
    ");
}

#[test]
fn duplicates_and_stale_reports_change_nothing() {
    assert_snapshot!(tell("
        flow a > b
        a: retry 1
        accept
        again
        fail a boom
        again
        next
        fail a#1 boom
        ok a#1
        ok a#3
        ok a#0
        ok a
        again
        fail a#2 boom
        ok b#1
        ok zzz#1
        ok b
    "), @r"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    again
        rejected: this attempt was reported before
    fail a boom
        a#1 was handed out
        a#1 failed: boom; again at 664ms
      -> wait a until 664ms
      == Running: a=delayed
    again
        rejected: this attempt was reported before
    next
        at 664ms
        a#2 ready
      -> queue m: a#2 a at 664ms
      == Running: a=ready
    fail a#1 boom
        rejected: another attempt has taken over
    ok a#1
        rejected: another attempt has taken over
    ok a#3
        rejected: the task has no such step
    ok a#0
        rejected: the task has no such step
    ok a
        a#2 was handed out
        a#2 succeeded
        b#1 ready
      -> forget a
      -> queue m: b#1 b at 664ms
      == Running: a=succeeded b=ready
    again
        rejected: this attempt was reported before
    fail a#2 boom
        rejected: this attempt was reported before
    ok b#1
        b#1 was handed out
        b#1 succeeded
        ended: Succeeded
      -> forget b
      == Succeeded: a=succeeded b=succeeded
    ok zzz#1
        rejected: the task has no such step
    ok b
        rejected: this attempt was reported before
    ");
}

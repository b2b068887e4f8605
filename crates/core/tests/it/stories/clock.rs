//! Time: delays before a step, deadlines of tasks, and attempts that no worker takes.

use insta::assert_snapshot;

use windlass_core::{ActKey, Millis};

use crate::{
    story::{events, play, tell},
    world::{Move, START},
};

#[test]
fn a_step_waits_its_delay_once_those_before_it_are_done() {
    assert_snapshot!(tell("flow a > b\nb: delay 5s, deadline 3s\naccept\nok a\nwake b\nnext\n+ 1s\nok b"), @"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    ok a
        a#1 was handed out
        a#1 succeeded
        b begins at 5s
      -> forget a
      -> wait b until 5s
      == Running: a=succeeded b=delayed
    wake b
        rejected: nothing is due
    next
        at 5s
        b#1 ready
      -> queue m: b#1 b at 5s
      == Running: a=succeeded b=ready
    + 1s
    ok b
        b#1 was handed out
        b#1 succeeded
        ended: Succeeded
      -> forget b
      == Succeeded: a=succeeded b=succeeded
    ");
    assert_snapshot!(events("flow a\na: delay 5s, each hosts\ninput {\"hosts\":[1]}\naccept\nnext\nrun"), @r#"
    accept
        accepted
        a begins at 5s
    next
        at 5s
        a has 1 members
        a[1]#1 ready
    run
        a[1]#1 was handed out
        a[1]#1 succeeded
        a#1 succeeded {"a":[null]}
        ended: Succeeded
      == Succeeded: a=succeeded a[1]=succeeded
    "#);
}

#[test]
fn a_delay_goes_on_in_a_pause_and_ends_with_a_cancel() {
    assert_snapshot!(events("flow a\na: delay 5s\naccept\npause\nnext\nresume\nok a"), @"
    accept
        accepted
        a begins at 5s
    pause
        paused by anna
    next
        at 5s
        a#1 parked
    resume
        resumed by anna
        a#1 ready
    ok a
        a#1 was handed out
        a#1 succeeded
        ended: Succeeded
      == Succeeded: a=succeeded
    ");
    assert_snapshot!(tell("flow a\na: delay 5s\naccept\ncancel"), @"
    accept
        accepted
        a begins at 5s
      -> wait a until 5s
      == Pending: a=delayed
    cancel
        rolling back: cancelled by anna
        a#0 withdrawn, untouched
        ended: Cancelled
      -> forget a
      == Cancelled:
    ");
}

#[test]
fn a_task_that_takes_too_long_is_turned_around() {
    assert_snapshot!(tell("flow a > b\ndeadline 10s\naccept\nok a\ntake b\nnext\nfail b stopped\nrun"), @"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      -> wait deadline until 10s
      == Pending: a=ready
    ok a
        a#1 was handed out
        a#1 succeeded
        b#1 ready
      -> forget a
      -> queue m: b#1 b at 0s
      == Running: a=succeeded b=ready
    take b
    next
        at 10s
        rolling back: too late
      -> stop b#1
      -> forget deadline
      == RollingBack: a=succeeded b=running
    fail b stopped
        b#1 was handed out (at 0s)
        b#1 failed for good: stopped (code 1)
        ~b#1 ready
      -> forget b
      -> queue m: ~b#1 unb at 10s
      == RollingBack: a=succeeded b=failed ~b=ready
    run
        ~b#1 was handed out
        ~b#1 succeeded
        ~a#1 ready
      -> queue m: ~a#1 una at 10s
      -> forget ~b
      == RollingBack: a=succeeded ~a=ready b=failed ~b=succeeded
        ~a#1 was handed out
        ~a#1 succeeded
        ended: RolledBack
      -> forget ~a
      == RolledBack: a=succeeded ~a=succeeded b=failed ~b=succeeded
    ");
    assert_snapshot!(events("flow a\ndeadline 10s\naccept\nwake deadline\nok a\n+ 10s\nwake deadline"), @"
    accept
        accepted
        a#1 ready
    wake deadline
        rejected: nothing is due
    ok a
        a#1 was handed out
        a#1 succeeded
        ended: Succeeded
      == Succeeded: a=succeeded
    + 10s
    wake deadline
        rejected: nothing is due
    ");
}

#[test]
fn the_deadline_of_a_scheduled_task_counts_from_its_start() {
    assert_snapshot!(tell("flow a\ndeadline 10s\nat 60s\naccept\nnext\nnext"), @"
    accept
        accepted
      -> wait start until 60s
      -> wait deadline until 70s
      == Scheduled:
    next
        at 60s
        started
        a#1 ready
      -> forget start
      -> queue m: a#1 a at 60s
      -> wait deadline until 70s
      == Pending: a=ready
    next
        at 70s
        rolling back: too late
        a#1 withdrawn, untouched
        ended: Failed
      -> forget a
      -> forget deadline
      == Failed:
    ");
}

#[test]
fn a_task_is_too_late_also_while_it_is_paused_or_held() {
    assert_snapshot!(events("flow a > b\ndeadline 10s\naccept\nok a\npause\nnext\nresume\nrun"), @"
    accept
        accepted
        a#1 ready
    ok a
        a#1 was handed out
        a#1 succeeded
        b#1 ready
    pause
        paused by anna
        b#1 parked
    next
        at 10s
        rolling back: too late
        b#1 withdrawn, untouched
        ~a#1 parked
    resume
        resumed by anna
        ~a#1 ready
    run
        ~a#1 was handed out
        ~a#1 succeeded
        ended: RolledBack
      == RolledBack: a=succeeded ~a=succeeded
    ");
    assert_snapshot!(events("flow a\ndeadline 10s\non_failure hold\naccept\nfinal a boom\nnext\nrun"), @"
    accept
        accepted
        a#1 ready
    final a boom
        a#1 was handed out
        a#1 failed for good: boom (code 65)
        alarm: step a failed and is held: boom
        stuck (held): step a failed and is held: boom
    next
        at 10s
        alarm over: held a
        rolling back: too late
        ~a#1 ready
        stuck no more
    run
        ~a#1 was handed out
        ~a#1 succeeded
        ended: RolledBack
      == RolledBack: a=failed ~a=succeeded
    ");
}

#[test]
fn an_attempt_that_no_worker_takes_in_time_has_failed() {
    assert_snapshot!(tell("flow a\na: start_within 5s, retry 1, backoff fixed, base 1s\naccept\nnext\nnext\nnext\nrun"), @"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s until 5s
      == Pending: a=ready
    next
        at 5s
        a#1 failed: no worker took it within 5s; again at 5664ms
      -> wait a until 5664ms
      == Running: a=delayed
    next
        at 5664ms
        a#2 ready
      -> queue m: a#2 a at 5664ms until 10664ms
      == Running: a=ready
    next
        at 10664ms
        a#2 failed for good: no worker took it within 5s (code 126)
        rolling back: a failed
        ~a#1 ready
      -> forget a
      -> queue m: ~a#1 una at 10664ms
      == RollingBack: a=failed ~a=ready
    run
        ~a#1 was handed out
        ~a#1 succeeded
        ended: RolledBack
      -> forget ~a
      == RolledBack: a=failed ~a=succeeded
    ");
}

#[test]
fn an_attempt_that_was_taken_is_in_time() {
    assert_snapshot!(tell("flow a\na: start_within 5s, deadline 20s\naccept\n+ 3s\ntake a\nnext\nok a"), @"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s until 5s
      == Pending: a=ready
    + 3s
    take a
    next
        at 5s
        a#1 was taken (at 3s)
      -> queue m: a#1 a at 0s until 23s
      == Running: a=running
    ok a
        a#1 was handed out (at 3s)
        a#1 succeeded
        ended: Succeeded
      -> forget a
      == Succeeded: a=succeeded
    ");
}

#[test]
fn an_attempt_that_is_offered_is_in_time_when_somebody_takes_it() {
    assert_snapshot!(events("flow a\na: start_within 5s, retry 1, backoff fixed, base 1s\naccept\noffer a\nnext\nnext\noffer a\n+ 4s\ntake a\nnext\nok a"), @"
    accept
        accepted
        a#1 ready
    offer a
    next
        at 5s
        a#1 failed: no worker took it within 5s; again at 5664ms
    next
        at 5664ms
        a#2 ready
    offer a
    + 4s
    take a
    next
        at 10664ms
        a#2 was taken (at 5664ms)
    ok a
        a#2 was handed out (at 5664ms)
        a#2 succeeded
        ended: Succeeded
      == Succeeded: a=succeeded
    ");
}

#[test]
fn a_pause_gives_an_attempt_its_time_again() {
    assert_snapshot!(events("flow a\na: start_within 5s\naccept\npause\n+ 60s\nwake a\nresume\n+ 4s\nok a"), @"
    accept
        accepted
        a#1 ready
    pause
        paused by anna
        a#1 parked
    + 60s
    wake a
        rejected: nothing is due
    resume
        resumed by anna
        a#1 ready
    + 4s
    ok a
        a#1 was handed out
        a#1 succeeded
        ended: Succeeded
      == Succeeded: a=succeeded
    ");
}

#[test]
fn an_attempt_is_handed_out_after_it_became_ready_whatever_the_clock_says() {
    let mut world = play("flow a > b\naccept\n+ 5s\nok a");
    let (a, b) = (ActKey::forward(0), ActKey::forward(1));
    world.held.insert(b, (1, START + Millis(4000)));
    world.play(Move::Succeed(b)).unwrap().unwrap();
    assert_eq!(world.act(b).started_at, world.act(a).ended_at);
}

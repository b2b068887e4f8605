//! Fanned-out steps: one member for each element of a list, a window of them at once, results in order.

use insta::assert_snapshot;
use windlass_core::{ActKey, Direction, Rejection, Resolution};

use crate::{
    story::{events, play, tell},
    world::{Move, World, anna},
};

#[test]
fn members_begin_in_a_window_and_their_results_stand_in_the_order_of_the_list() {
    assert_snapshot!(tell(r#"
        flow a > b
        a: each hosts
        input {"hosts":["x","y","z"],"size":1}
        accept
        show a[2]
        ok a[2] {"ip":2}
        ok a[3]
        ok a[1] {"ip":1}
        show b
    "#), @r#"
    accept
        accepted
        a has 3 members
        a[1]#1 ready
        a[2]#1 ready
      -> queue m: a[1]#1 a at 0s
      -> queue m: a[2]#1 a at 0s
      == Pending: a=running a[1]=ready a[2]=ready
    show a[2]
        {"size":1,"item":"y","index":1}
    ok a[2] {"ip":2}
        a[2]#1 was handed out
        a[2]#1 succeeded {"ip":2}
        a[3]#1 ready
      -> forget a[2]
      -> queue m: a[3]#1 a at 0s
      == Running: a=running a[1]=ready a[2]=succeeded a[3]=ready
    ok a[3]
        a[3]#1 was handed out
        a[3]#1 succeeded
      -> forget a[3]
      == Running: a=running a[1]=ready a[2]=succeeded a[3]=succeeded
    ok a[1] {"ip":1}
        a[1]#1 was handed out
        a[1]#1 succeeded {"ip":1}
        a#1 succeeded {"a":[{"ip":1},{"ip":2},null]}
        b#1 ready
      -> forget a[1]
      -> queue m: b#1 b at 0s
      == Running: a=succeeded b=ready a[1]=succeeded a[2]=succeeded a[3]=succeeded
    show b
        {"hosts":["x","y","z"],"size":1,"a":[{"ip":1},{"ip":2},null]}
    "#);
}

#[test]
fn an_empty_list_is_done_at_once() {
    assert_snapshot!(events(r#"
        flow a > b
        a: each hosts
        input {"hosts":[]}
        accept
        show b
    "#), @r#"
    accept
        accepted
        a has 0 members
        a#1 succeeded {"a":[]}
        b#1 ready
      == Pending: a=succeeded b=ready
    show b
        {"hosts":[],"a":[]}
    "#);
    assert_snapshot!(events(r#"
        flow a > b
        a: each hosts, on_partial 1
        input {"hosts":[]}
        accept
    "#), @"
    accept
        accepted
        a has 0 members
        a#1 failed for good: it has 0 items, and at least 1 must succeed (code 65)
        rolling back: a failed
        ended: Failed
      == Failed: a=failed
    ");
}

#[test]
fn what_is_no_list_fails_the_step() {
    assert_snapshot!(events(r#"
        flow a > b
        b: each hosts
        input {"hosts":"x"}
        accept
        ok a
        run
    "#), @r#"
    accept
        accepted
        a#1 ready
    ok a
        a#1 was handed out
        a#1 succeeded
        b#0 failed for good: the parameter "hosts" is not a list, and `each` of the step needs one (code 65)
        rolling back: b failed
        ~a#1 ready
    run
        ~a#1 was handed out
        ~a#1 succeeded
        ended: RolledBack
      == RolledBack: a=succeeded ~a=succeeded b=failed
    "#);
    assert_snapshot!(events("flow a\na: each hosts\non_failure hold\naccept\nresolve a retry {\"hosts\":[7]}\nrun"), @r#"
    accept
        accepted
        a#0 failed for good: there is no parameter "hosts": `each` needs it as a list (code 65)
        alarm: step a failed and is held: there is no parameter "hosts": `each` needs it as a list
        stuck (held): step a failed and is held: there is no parameter "hosts": `each` needs it as a list
    resolve a retry {"hosts":[7]}
        a resolved: Retry by anna
        alarm over: held a by anna
        a amended: {} to {"hosts":[7]} by anna
        a has 1 members
        a[1]#1 ready
        stuck no more
    run
        a[1]#1 was handed out
        a[1]#1 succeeded
        a#1 succeeded {"a":[null]}
        ended: Succeeded
      == Succeeded: a=succeeded a[1]=succeeded
    "#);
}

#[test]
fn a_member_that_fails_fails_its_step_and_members_are_undone_in_reverse_in_their_window() {
    assert_snapshot!(tell(r#"
        flow a
        a: each hosts, parallel 3
        input {"hosts":["w","x","y","z"]}
        accept
        ok a[1] {"ip":1}
        take a[2]
        final a[3] boom
        fail a[2] stopped
        show ~a[1]
        ok ~a[2]
        ok ~a[3]
        ok ~a[1]
    "#), @r#"
    accept
        accepted
        a has 4 members
        a[1]#1 ready
        a[2]#1 ready
        a[3]#1 ready
      -> queue m: a[1]#1 a at 0s
      -> queue m: a[2]#1 a at 0s
      -> queue m: a[3]#1 a at 0s
      == Pending: a=running a[1]=ready a[2]=ready a[3]=ready
    ok a[1] {"ip":1}
        a[1]#1 was handed out
        a[1]#1 succeeded {"ip":1}
        a[4]#1 ready
      -> forget a[1]
      -> queue m: a[4]#1 a at 0s
      == Running: a=running a[1]=succeeded a[2]=ready a[3]=ready a[4]=ready
    take a[2]
    final a[3] boom
        a[3]#1 was handed out
        a[3]#1 failed for good: boom (code 65)
        a#1 failed for good: item 2 failed: boom (code 65)
        rolling back: a failed
        a[4]#1 withdrawn, untouched
      -> stop a[2]#1
      -> forget a[3]
      -> forget a[4]
      == RollingBack: a=failed a[1]=succeeded a[2]=running a[3]=failed
    fail a[2] stopped
        a[2]#1 was handed out
        a[2]#1 failed for good: stopped (code 1)
        ~a has 4 members
        ~a[3]#1 ready
        ~a[2]#1 ready
        ~a[1]#1 ready
      -> queue m: ~a[1]#1 una at 0s
      -> forget a[2]
      -> queue m: ~a[2]#1 una at 0s
      -> queue m: ~a[3]#1 una at 0s
      == RollingBack: a=failed ~a=running a[1]=succeeded ~a[1]=ready a[2]=failed ~a[2]=ready a[3]=failed ~a[3]=ready
    show ~a[1]
        {"item":"w","index":0}
    ok ~a[2]
        ~a[2]#1 was handed out
        ~a[2]#1 succeeded
      -> forget ~a[2]
      == RollingBack: a=failed ~a=running a[1]=succeeded ~a[1]=ready a[2]=failed ~a[2]=succeeded a[3]=failed ~a[3]=ready
    ok ~a[3]
        ~a[3]#1 was handed out
        ~a[3]#1 succeeded
      -> forget ~a[3]
      == RollingBack: a=failed ~a=running a[1]=succeeded ~a[1]=ready a[2]=failed ~a[2]=succeeded a[3]=failed ~a[3]=succeeded
    ok ~a[1]
        ~a[1]#1 was handed out
        ~a[1]#1 succeeded
        ~a#1 succeeded
        ended: RolledBack
      -> forget ~a[1]
      == RolledBack: a=failed ~a=succeeded a[1]=succeeded ~a[1]=succeeded a[2]=failed ~a[2]=succeeded a[3]=failed ~a[3]=succeeded
    "#);
}

#[test]
fn undos_have_the_same_window() {
    assert_snapshot!(events(r#"
        flow a > b
        a: each hosts
        input {"hosts":[1,2,3]}
        accept
        run
    "#), @r#"
    accept
        accepted
        a has 3 members
        a[1]#1 ready
        a[2]#1 ready
    run
        a[1]#1 was handed out
        a[1]#1 succeeded
        a[3]#1 ready
        a[2]#1 was handed out
        a[2]#1 succeeded
        a[3]#1 was handed out
        a[3]#1 succeeded
        a#1 succeeded {"a":[null,null,null]}
        b#1 ready
        b#1 was handed out
        b#1 succeeded
        ended: Succeeded
      == Succeeded: a=succeeded b=succeeded a[1]=succeeded a[2]=succeeded a[3]=succeeded
    "#);
    assert_snapshot!(events(r#"
        flow a > b
        a: each hosts
        input {"hosts":[1,2,3]}
        accept
        ok a[1]
        ok a[2]
        ok a[3]
        final b boom
        ok ~b
        ok ~a[2]
        ok ~a[3]
        ok ~a[1]
    "#), @r#"
    accept
        accepted
        a has 3 members
        a[1]#1 ready
        a[2]#1 ready
    ok a[1]
        a[1]#1 was handed out
        a[1]#1 succeeded
        a[3]#1 ready
    ok a[2]
        a[2]#1 was handed out
        a[2]#1 succeeded
    ok a[3]
        a[3]#1 was handed out
        a[3]#1 succeeded
        a#1 succeeded {"a":[null,null,null]}
        b#1 ready
    final b boom
        b#1 was handed out
        b#1 failed for good: boom (code 65)
        rolling back: b failed
        ~b#1 ready
    ok ~b
        ~b#1 was handed out
        ~b#1 succeeded
        ~a has 3 members
        ~a[3]#1 ready
        ~a[2]#1 ready
    ok ~a[2]
        ~a[2]#1 was handed out
        ~a[2]#1 succeeded
        ~a[1]#1 ready
    ok ~a[3]
        ~a[3]#1 was handed out
        ~a[3]#1 succeeded
    ok ~a[1]
        ~a[1]#1 was handed out
        ~a[1]#1 succeeded
        ~a#1 succeeded
        ended: RolledBack
      == RolledBack: a=succeeded ~a=succeeded b=failed ~b=succeeded a[1]=succeeded ~a[1]=succeeded a[2]=succeeded ~a[2]=succeeded a[3]=succeeded ~a[3]=succeeded
    "#);
}

#[test]
fn a_step_that_continues_tells_what_failed() {
    assert_snapshot!(events(r#"
        flow a > b
        a: each hosts, on_partial continue
        input {"hosts":[1,2]}
        accept
        final a[1] boom
        ok a[2] {"ip":2}
        show b
    "#), @r#"
    accept
        accepted
        a has 2 members
        a[1]#1 ready
        a[2]#1 ready
    final a[1] boom
        a[1]#1 was handed out
        a[1]#1 failed for good: boom (code 65)
    ok a[2] {"ip":2}
        a[2]#1 was handed out
        a[2]#1 succeeded {"ip":2}
        a#1 succeeded {"a":[null,{"ip":2}],"a_errors":[{"step":"a","index":0,"code":65,"message":"boom"}]}
        b#1 ready
      == Running: a=succeeded b=ready a[1]=failed a[2]=succeeded
    show b
        {"hosts":[1,2],"a":[null,{"ip":2}],"a_errors":[{"step":"a","index":0,"code":65,"message":"boom"}]}
    "#);
}

#[test]
fn at_least_so_many_must_succeed() {
    assert_snapshot!(events(r#"
        flow a
        a: each hosts, on_partial 2
        input {"hosts":[1,2,3]}
        accept
        final a[1] boom
        ok a[2]
        ok a[3]
    "#), @r#"
    accept
        accepted
        a has 3 members
        a[1]#1 ready
        a[2]#1 ready
    final a[1] boom
        a[1]#1 was handed out
        a[1]#1 failed for good: boom (code 65)
        a[3]#1 ready
    ok a[2]
        a[2]#1 was handed out
        a[2]#1 succeeded
    ok a[3]
        a[3]#1 was handed out
        a[3]#1 succeeded
        a#1 succeeded {"a":[null,null,null],"a_errors":[{"step":"a","index":0,"code":65,"message":"boom"}]}
        ended: Succeeded
      == Succeeded: a=succeeded a[1]=failed a[2]=succeeded a[3]=succeeded
    "#);
    // As soon as that cannot be any more it has failed: the others are stopped.
    assert_snapshot!(events(r#"
        flow a
        a: each hosts, on_partial 2, parallel 3
        input {"hosts":[1,2,3]}
        accept
        final a[1] boom
        take a[2]
        final a[3] bang
        ok a[2]
        run
    "#), @"
    accept
        accepted
        a has 3 members
        a[1]#1 ready
        a[2]#1 ready
        a[3]#1 ready
    final a[1] boom
        a[1]#1 was handed out
        a[1]#1 failed for good: boom (code 65)
    take a[2]
    final a[3] bang
        a[3]#1 was handed out
        a[3]#1 failed for good: bang (code 65)
        a#1 failed for good: item 0 failed: boom (and 1 more) (code 65)
        rolling back: a failed
    ok a[2]
        a[2]#1 was handed out
        a[2]#1 succeeded
        ~a has 3 members
        ~a[3]#1 ready
        ~a[2]#1 ready
        ~a[1]#1 ready
    run
        ~a[1]#1 was handed out
        ~a[1]#1 succeeded
        ~a[2]#1 was handed out
        ~a[2]#1 succeeded
        ~a[3]#1 was handed out
        ~a[3]#1 succeeded
        ~a#1 succeeded
        ended: RolledBack
      == RolledBack: a=failed ~a=succeeded a[1]=failed ~a[1]=succeeded a[2]=succeeded ~a[2]=succeeded a[3]=failed ~a[3]=succeeded
    ");
}

#[test]
fn a_held_step_lets_its_members_end_and_then_those_that_failed_are_tried_again() {
    assert_snapshot!(tell(r#"
        flow a
        a: each hosts
        on_failure hold
        input {"hosts":[1,2,3]}
        accept
        take a[1]
        final a[2] boom
        ok a[1]
        resolve a retry {"size":2}
        show a[2]
        ok a[2]
        ok a[3]
    "#), @r#"
    accept
        accepted
        a has 3 members
        a[1]#1 ready
        a[2]#1 ready
      -> queue m: a[1]#1 a at 0s
      -> queue m: a[2]#1 a at 0s
      == Pending: a=running a[1]=ready a[2]=ready
    take a[1]
    final a[2] boom
        a[2]#1 was handed out
        a[2]#1 failed for good: boom (code 65)
      -> forget a[2]
      == Running: a=running a[1]=running a[2]=failed
    ok a[1]
        a[1]#1 was handed out
        a[1]#1 succeeded
        a#1 failed for good: item 1 failed: boom (code 65)
        alarm: step a failed and is held: item 1 failed: boom
        stuck (held): step a failed and is held: item 1 failed: boom
      -> forget a[1]
      -> raise held.TASK.a
      == Stuck: a=failed a[1]=succeeded a[2]=failed
    resolve a retry {"size":2}
        a resolved: Retry by anna
        alarm over: held a by anna
        a amended: {} to {"size":2} by anna
        a[2]#2 ready
        a[3]#1 ready
        stuck no more
      -> queue m: a[2]#2 a at 0s
      -> queue m: a[3]#1 a at 0s
      -> resolve held.TASK.a
      == Running: a=running a[1]=succeeded a[2]=ready a[3]=ready
    show a[2]
        {"size":2,"item":2,"index":1}
    ok a[2]
        a[2]#2 was handed out
        a[2]#2 succeeded
      -> forget a[2]
      == Running: a=running a[1]=succeeded a[2]=succeeded a[3]=ready
    ok a[3]
        a[3]#1 was handed out
        a[3]#1 succeeded
        a#1 succeeded {"a":[null,null,null]}
        ended: Succeeded
      -> forget a[3]
      == Succeeded: a=succeeded a[1]=succeeded a[2]=succeeded a[3]=succeeded
    "#);
}

#[test]
fn a_held_step_may_be_passed_over_done_by_hand_or_given_up() {
    let held =
        "flow a > b\na: each hosts\non_failure hold\ninput {\"hosts\":[1,2]}\naccept\nfinal a[1] x\nok a[2]";
    assert_snapshot!(events(&format!("{held}\nresolve a skip\nok b")), @"
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
        a#1 failed for good: item 0 failed: x (code 65)
        alarm: step a failed and is held: item 0 failed: x
        stuck (held): step a failed and is held: item 0 failed: x
    resolve a skip
        a resolved: Skip by anna
        alarm over: held a by anna
        b#1 ready
        stuck no more
    ok b
        b#1 was handed out
        b#1 succeeded
        ended: Succeeded
      == Succeeded: a=skipped b=succeeded a[1]=failed a[2]=succeeded
    ");
    assert_snapshot!(events(&format!("{held}\nresolve a done {{\"a\":[1,2]}}\nshow b")), @r#"
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
        a#1 failed for good: item 0 failed: x (code 65)
        alarm: step a failed and is held: item 0 failed: x
        stuck (held): step a failed and is held: item 0 failed: x
    resolve a done {"a":[1,2]}
        a resolved: Done {"a":[1,2]} by anna
        alarm over: held a by anna
        b#1 ready
        stuck no more
      == Running: a=succeeded b=ready a[1]=failed a[2]=succeeded
    show b
        {"hosts":[1,2],"a":[1,2]}
    "#);
    assert_snapshot!(events(&format!("{held}\nresolve a rollback\nrun")), @"
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
        a#1 failed for good: item 0 failed: x (code 65)
        alarm: step a failed and is held: item 0 failed: x
        stuck (held): step a failed and is held: item 0 failed: x
    resolve a rollback
        a resolved: Rollback by anna
        alarm over: held a by anna
        rolling back: a given up by anna
        ~a has 2 members
        ~a[2]#1 ready
        ~a[1]#1 ready
        stuck no more
    run
        ~a[1]#1 was handed out
        ~a[1]#1 succeeded
        ~a[2]#1 was handed out
        ~a[2]#1 succeeded
        ~a#1 succeeded
        ended: RolledBack
      == RolledBack: a=failed ~a=succeeded a[1]=failed ~a[1]=succeeded a[2]=succeeded ~a[2]=succeeded
    ");
}

#[test]
fn members_keep_their_elements() {
    let mut world = play(
        "flow a\na: each hosts\non_failure hold\ninput {\"hosts\":[1,2]}\naccept\nfinal a[1] x\nok a[2]",
    );
    let params = windlass_core::Json::parse(r#"{"hosts":[3]}"#).unwrap();
    let retry =
        windlass_core::Command::Resolve { step: 0, resolution: Resolution::Retry(Some(params)), by: anna() };
    let refused = Rejection::ListInUse { step: "a".into(), list: "hosts".into() };
    assert_eq!(world.apply(&retry), Err(refused));
}

#[test]
fn too_few_elements_may_be_mended() {
    assert_snapshot!(events(r#"
        flow a
        a: each hosts, on_partial 2
        on_failure hold
        input {"hosts":[1]}
        accept
        resolve a retry {"hosts":[1,2]}
        run
    "#), @r#"
    accept
        accepted
        a has 1 members
        a#1 failed for good: it has 1 items, and at least 2 must succeed (code 65)
        alarm: step a failed and is held: it has 1 items, and at least 2 must succeed
        stuck (held): step a failed and is held: it has 1 items, and at least 2 must succeed
    resolve a retry {"hosts":[1,2]}
        a resolved: Retry by anna
        alarm over: held a by anna
        a amended: {"hosts":[1]} to {"hosts":[1,2]} by anna
        a has 2 members
        a[1]#1 ready
        a[2]#1 ready
        stuck no more
    run
        a[1]#1 was handed out
        a[1]#1 succeeded
        a[2]#1 was handed out
        a[2]#1 succeeded
        a#1 succeeded {"a":[null,null]}
        ended: Succeeded
      == Succeeded: a=succeeded a[1]=succeeded a[2]=succeeded
    "#);
}

#[test]
fn a_poisoned_member_holds_its_step() {
    assert_snapshot!(events(r#"
        flow a
        a: each hosts
        input {"hosts":[1,2,3]}
        accept
        take a[2]
        lose a[1]
        lose a[1]
        lose a[1]
        ok a[2]
        resolve a retry
        run
    "#), @r#"
    accept
        accepted
        a has 3 members
        a[1]#1 ready
        a[2]#1 ready
    take a[2]
    lose a[1]
        a[1]#1 was handed out
        a[1]#1 lost
        a[1]#2 ready
    lose a[1]
        a[1]#2 was handed out
        a[1]#2 lost
        a[1]#3 ready
    lose a[1]
        a[1]#3 was handed out
        a[1]#3 lost
        a[1]#3 failed for good: its worker died, went silent or gave no answer 3 times while it had this step (code 1)
    ok a[2]
        a[2]#1 was handed out
        a[2]#1 succeeded
        a#1 failed for good: item 0 failed: its worker died, went silent or gave no answer 3 times while it had this step (code 1)
        alarm: step a is poisoned: item 0 failed: its worker died, went silent or gave no answer 3 times while it had this step
        stuck (poisoned): step a is poisoned: item 0 failed: its worker died, went silent or gave no answer 3 times while it had this step
    resolve a retry
        a resolved: Retry by anna
        alarm over: poisoned a by anna
        a[1]#4 ready
        a[3]#1 ready
        stuck no more
    run
        a[1]#4 was handed out
        a[1]#4 succeeded
        a[3]#1 was handed out
        a[3]#1 succeeded
        a#1 succeeded {"a":[null,null,null]}
        ended: Succeeded
      == Succeeded: a=succeeded a[1]=succeeded a[2]=succeeded a[3]=succeeded
    "#);
}

#[test]
fn a_pause_parks_members_and_begins_none() {
    assert_snapshot!(tell(r#"
        flow a
        a: each hosts
        input {"hosts":[1,2,3]}
        accept
        take a[1]
        pause
        ok a[1]
        resume
        run
    "#), @r#"
    accept
        accepted
        a has 3 members
        a[1]#1 ready
        a[2]#1 ready
      -> queue m: a[1]#1 a at 0s
      -> queue m: a[2]#1 a at 0s
      == Pending: a=running a[1]=ready a[2]=ready
    take a[1]
    pause
        paused by anna
        a[2]#1 parked
      -> keep a[1]#1
      -> forget a[2]
      == Pausing: a=running a[1]=running a[2]=parked
    ok a[1]
        a[1]#1 was handed out
        a[1]#1 succeeded
        a[3]#1 parked
      -> forget a[1]
      == Paused: a=running a[1]=succeeded a[2]=parked a[3]=parked
    resume
        resumed by anna
        a[2]#1 ready
        a[3]#1 ready
      -> queue m: a[2]#1 a at 0s
      -> queue m: a[3]#1 a at 0s
      == Running: a=running a[1]=succeeded a[2]=ready a[3]=ready
    run
        a[2]#1 was handed out
        a[2]#1 succeeded
      -> forget a[2]
      == Running: a=running a[1]=succeeded a[2]=succeeded a[3]=ready
        a[3]#1 was handed out
        a[3]#1 succeeded
        a#1 succeeded {"a":[null,null,null]}
        ended: Succeeded
      -> forget a[3]
      == Succeeded: a=succeeded a[1]=succeeded a[2]=succeeded a[3]=succeeded
    "#);
}

#[test]
fn a_cancel_waits_for_members_that_workers_have() {
    assert_snapshot!(tell(r#"
        flow a > b
        a: each hosts
        input {"hosts":[1,2,3]}
        accept
        take a[1]
        cancel
        ok a[1] {"ip":1}
        show ~a[1]
        ok ~a[1]
    "#), @r#"
    accept
        accepted
        a has 3 members
        a[1]#1 ready
        a[2]#1 ready
      -> queue m: a[1]#1 a at 0s
      -> queue m: a[2]#1 a at 0s
      == Pending: a=running a[1]=ready a[2]=ready
    take a[1]
    cancel
        rolling back: cancelled by anna
        a[2]#1 withdrawn, untouched
        a#1 withdrawn, touched
      -> stop a[1]#1
      -> forget a[2]
      == RollingBack: a[1]=running
    ok a[1] {"ip":1}
        a[1]#1 was handed out
        a[1]#1 succeeded {"ip":1}
        ~a has 3 members
        ~a[1]#1 ready
      -> forget a[1]
      -> queue m: ~a[1]#1 una at 0s
      == RollingBack: ~a=running a[1]=succeeded ~a[1]=ready
    show ~a[1]
        {"item":1,"index":0}
    ok ~a[1]
        ~a[1]#1 was handed out
        ~a[1]#1 succeeded
        ~a#1 succeeded
        ended: Cancelled
      -> forget ~a[1]
      == Cancelled: ~a=succeeded a[1]=succeeded ~a[1]=succeeded
    "#);
    // No item needs rollback where no worker had any.
    assert_snapshot!(events("flow a\na: each hosts\ninput {\"hosts\":[1,2,3]}\naccept\ncancel"), @"
    accept
        accepted
        a has 3 members
        a[1]#1 ready
        a[2]#1 ready
    cancel
        rolling back: cancelled by anna
        a[1]#1 withdrawn, untouched
        a[2]#1 withdrawn, untouched
        a#1 withdrawn, untouched
        ended: Cancelled
      == Cancelled:
    ");
}

#[test]
fn a_deadline_is_that_of_each_member_from_its_first_attempt() {
    assert_snapshot!(events(r#"
        flow a > b
        a: each hosts, parallel 1, deadline 5s, on_partial continue
        input {"hosts":[1,2]}
        accept
        take a[1]
        kept a[1]
        next
        fail a[1] stopped
        + 1s
        ok a[2]
    "#), @r#"
    accept
        accepted
        a has 2 members
        a[1]#1 ready
    take a[1]
    kept a[1]
        a[1]#1 was taken
    next
        at 5s
        a[1]#1 overdue
    fail a[1] stopped
        a[1]#1 was handed out (at 0s)
        a[1]#1 failed for good: the step's deadline passed (code 125)
        a[2]#1 ready
    + 1s
    ok a[2]
        a[2]#1 was handed out
        a[2]#1 succeeded
        a#1 succeeded {"a":[null,null],"a_errors":[{"step":"a","index":0,"code":125,"message":"the step's deadline passed"}]}
        b#1 ready
      == Running: a=succeeded b=ready a[1]=failed a[2]=succeeded
    "#);
}

#[test]
fn members_are_retried_each_by_itself() {
    assert_snapshot!(events(r#"
        flow a
        a: each hosts, retry 1, backoff fixed, base 1s
        input {"hosts":[1,2,3]}
        accept
        fail a[1] boom
        ok a[2]
        next
        ok a[1]
        later a[3] 2s
        next
        ok a[3]
    "#), @r#"
    accept
        accepted
        a has 3 members
        a[1]#1 ready
        a[2]#1 ready
    fail a[1] boom
        a[1]#1 was handed out
        a[1]#1 failed: boom; again at 566ms
    ok a[2]
        a[2]#1 was handed out
        a[2]#1 succeeded
        a[3]#1 ready
    next
        at 566ms
        a[1]#2 ready
    ok a[1]
        a[1]#2 was handed out
        a[1]#2 succeeded
    later a[3] 2s
        a[3]#1 was handed out
        a[3]#1 asked for later: busy; again at 2566ms
    next
        at 2566ms
        a[3]#2 ready
    ok a[3]
        a[3]#2 was handed out
        a[3]#2 succeeded
        a#1 succeeded {"a":[null,null,null]}
        ended: Succeeded
      == Succeeded: a=succeeded a[1]=succeeded a[2]=succeeded a[3]=succeeded
    "#);
}

#[test]
fn members_count_under_keys_of_their_own_and_so_do_their_undos() {
    assert_snapshot!(tell(r#"
        flow a
        a: each hosts, key item
        input {"hosts":["x","y"]}
        accept
        ok a[1]
        final a[2] boom
    "#), @"
    accept
        accepted
        a has 2 members
        a[1] counts under x
        a[1]#1 ready
        a[2] counts under y
        a[2]#1 ready
      -> queue m: a[1]#1 a at 0s
      -> queue m: a[2]#1 a at 0s
      == Pending: a=running a[1]=ready a[2]=ready
    ok a[1]
        a[1]#1 was handed out
        a[1]#1 succeeded
      -> forget a[1]
      == Running: a=running a[1]=succeeded a[2]=ready
    final a[2] boom
        a[2]#1 was handed out
        a[2]#1 failed for good: boom (code 65)
        a#1 failed for good: item 1 failed: boom (code 65)
        rolling back: a failed
        ~a has 2 members
        ~a[2]#1 ready
        ~a[1]#1 ready
      -> queue m: ~a[1]#1 una at 0s
      -> forget a[2]
      -> queue m: ~a[2]#1 una at 0s
      == RollingBack: a=failed ~a=running a[1]=succeeded ~a[1]=ready a[2]=failed ~a[2]=ready
    ");
    let world = play("flow a\na: each hosts, key item\ninput {\"hosts\":[\"x\"]}\naccept\nfinal a[1] x");
    let waiting = windlass_core::waits(&world.task);
    let ready = waiting[0].ready.as_ref().unwrap();
    assert_eq!((ready.command.as_str(), ready.fairness.as_deref()), ("una", Some("x")));
}

#[test]
fn a_member_whose_key_is_nothing_fails_before_it_begins_and_can_be_tried_again() {
    assert_snapshot!(events(r#"
        flow a
        a: each hosts, key zone
        on_failure hold
        input {"hosts":[1,2]}
        accept
        resolve a retry {"zone":"n"}
        run
    "#), @r#"
    accept
        accepted
        a has 2 members
        a[1]#0 failed for good: the expression `zone` cannot be evaluated: the task has no parameter `zone`: where it may be missing, test with `has(params.zone)` first (code 65)
        a#1 failed for good: item 0 failed: the expression `zone` cannot be evaluated: the task has no parameter `zone`: where it may be missing, test with `has(params.zone)` first (code 65)
        alarm: step a failed and is held: item 0 failed: the expression `zone` cannot be evaluated: the task has no parameter `zone`: where it may be missing, test with `has(params.zone)` first
        stuck (held): step a failed and is held: item 0 failed: the expression `zone` cannot be evaluated: the task has no parameter `zone`: where it may be missing, test with `has(params.zone)` first
    resolve a retry {"zone":"n"}
        a resolved: Retry by anna
        alarm over: held a by anna
        a amended: {} to {"zone":"n"} by anna
        a[1] counts under n
        a[1]#1 ready
        a[2] counts under n
        a[2]#1 ready
        stuck no more
    run
        a[1]#1 was handed out
        a[1]#1 succeeded
        a[2]#1 was handed out
        a[2]#1 succeeded
        a#1 succeeded {"a":[null,null]}
        ended: Succeeded
      == Succeeded: a=succeeded a[1]=succeeded a[2]=succeeded
    "#);
    assert_snapshot!(events("flow a\na: each hosts, key zone\ninput {\"hosts\":[1,2]}\naccept"), @"
    accept
        accepted
        a has 2 members
        a[1]#0 failed for good: the expression `zone` cannot be evaluated: the task has no parameter `zone`: where it may be missing, test with `has(params.zone)` first (code 65)
        a#1 failed for good: item 0 failed: the expression `zone` cannot be evaluated: the task has no parameter `zone`: where it may be missing, test with `has(params.zone)` first (code 65)
        rolling back: a failed
        ended: Failed
      == Failed: a=failed a[1]=failed
    ");
}

#[test]
fn undos_of_members_that_fail_are_tried_again() {
    assert_snapshot!(events(r#"
        flow a
        a: each hosts
        input {"hosts":[1,2,3]}
        accept
        ok a[1]
        ok a[2]
        final a[3] boom
        final ~a[3] no
        final ~a[2] no
        ok ~a[1]
        resolve a retry
        ok ~a[2]
        ok ~a[3]
    "#), @"
    accept
        accepted
        a has 3 members
        a[1]#1 ready
        a[2]#1 ready
    ok a[1]
        a[1]#1 was handed out
        a[1]#1 succeeded
        a[3]#1 ready
    ok a[2]
        a[2]#1 was handed out
        a[2]#1 succeeded
    final a[3] boom
        a[3]#1 was handed out
        a[3]#1 failed for good: boom (code 65)
        a#1 failed for good: item 2 failed: boom (code 65)
        rolling back: a failed
        ~a has 3 members
        ~a[3]#1 ready
        ~a[2]#1 ready
    final ~a[3] no
        ~a[3]#1 was handed out
        ~a[3]#1 failed for good: no (code 65)
        ~a[1]#1 ready
    final ~a[2] no
        ~a[2]#1 was handed out
        ~a[2]#1 failed for good: no (code 65)
    ok ~a[1]
        ~a[1]#1 was handed out
        ~a[1]#1 succeeded
        ~a#1 failed for good: item 1 failed: no (and 1 more) (code 65)
        alarm: the rollback of step a failed: item 1 failed: no (and 1 more)
        stuck (rollback_failed): the rollback of step a failed: item 1 failed: no (and 1 more)
    resolve a retry
        ~a resolved: Retry by anna
        alarm over: rollback_failed a by anna
        ~a[2]#2 ready
        ~a[3]#2 ready
        stuck no more
    ok ~a[2]
        ~a[2]#2 was handed out
        ~a[2]#2 succeeded
    ok ~a[3]
        ~a[3]#2 was handed out
        ~a[3]#2 succeeded
        ~a#1 succeeded
        ended: RolledBack
      == RolledBack: a=failed ~a=succeeded a[1]=succeeded ~a[1]=succeeded a[2]=succeeded ~a[2]=succeeded a[3]=failed ~a[3]=succeeded
    ");
}

#[test]
fn a_fan_whose_members_have_nothing_to_undo_ends_as_failed() {
    let world = play("flow a\na: each hosts\ninput {\"hosts\":[1]}\n~a: no rollback\naccept\nfinal a[1] x");
    assert_eq!(world.task.act(ActKey::rollback(0)).unwrap().attempt, 0);
    assert_eq!(world.task.state.phase, windlass_core::Phase::Ended(windlass_core::Ending::Failed));
}

/// How many members of each step are under way.
fn open(world: &World) -> Vec<usize> {
    let members = world.task.state.steps.iter().filter_map(|step| step.members.as_deref());
    members.map(|members| members.side(Direction::Forward).open.size()).collect()
}

#[test]
fn members_of_all_steps_together_are_a_thousand_at_once() {
    let list = vec!["0"; 700].join(",");
    let mut world = play(&format!(
        "flow a b c\na: each l, parallel 1000\nb: each l, parallel 1000\nc: each l, parallel 1000\ninput {{\"l\":[{list}]}}\naccept"
    ));
    assert_eq!(open(&world), [700, 300, 1], "each goes on");
    for member in 1..=400 {
        let member = ActKey::forward(0).of_member(member);
        world.play(Move::Take(member));
        world.play(Move::Succeed(member)).unwrap().unwrap();
    }
    assert_eq!(open(&world), [300, 699, 1]);
}

#[test]
fn what_names_a_member_is_little_and_read_for_each_of_them() {
    let big = "x".repeat(100_000);
    let input = format!("{{\"l\":[1,2],\"big\":\"{big}\",\"small\":\"s\"}}");
    let keys = |key: &str| {
        let world = play(&format!("flow a\na: each l, key {key}\ninput {input}\naccept"));
        let member = world.act(ActKey::forward(0).of_member(1)).clone();
        (member.fairness().map(str::to_owned), member.failure.map(|failure| failure.message))
    };
    assert_eq!(keys("small + string(item)"), (Some("s1".to_owned()), None));
    let (key, failure) = keys("string(size(big))");
    assert_eq!(key, None);
    assert!(failure.as_deref().is_some_and(|text| text.contains("more than 1000 steps")), "{failure:?}");
    let alone = play(&format!("flow a\na: key string(size(big))\ninput {input}\naccept"));
    assert_eq!(alone.act(ActKey::forward(0)).fairness(), Some("100000"));
}

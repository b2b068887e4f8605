//! Secret parameters are references, from wherever parameters come.

use insta::assert_snapshot;

use crate::story::events;

#[test]
fn a_task_begins_with_references_alone() {
    assert_snapshot!(events(r#"
        flow a
        secret password
        input {"password":"hunter2"}
        accept
    "#), @r#"
    accept
        rejected: the parameter `password` is `secret` in the flow, and its value is not a reference: use "secret://NAME", which workers replace by the value
    "#);
    assert_snapshot!(events(r#"
        flow a
        secret password
        input {"db":[{"password":"secret://db"}]}
        accept
        show a
    "#), @r#"
    accept
        accepted
        a#1 ready
      == Pending: a=ready
    show a
        {"db":[{"password":"secret://db"}]}
    "#);
}

#[test]
fn a_result_with_a_plain_secret_is_dropped_and_its_step_rolled_back() {
    assert_snapshot!(events(r#"
        flow a > b
        secret password
        a: retry 3
        b: retry 3
        accept
        ok a {"password":"secret://db"}
        ok b {"db":{"password":"hunter2"}}
        ok ~b {"password":"hunter2"}
    "#), @r#"
    accept
        accepted
        a#1 ready
    ok a {"password":"secret://db"}
        a#1 was handed out
        a#1 succeeded {"password":"secret://db"}
        b#1 ready
    ok b {"db":{"password":"hunter2"}}
        b#1 was handed out
        b#1 failed for good: the result was dropped: the parameter `password` is `secret` in the flow, and its value is not a reference: use "secret://NAME", which workers replace by the value (code 65)
        rolling back: b failed
        ~b#1 ready
    ok ~b {"password":"hunter2"}
        ~b#1 was handed out
        ~b#1 failed for good: the result was dropped: the parameter `password` is `secret` in the flow, and its value is not a reference: use "secret://NAME", which workers replace by the value (code 65)
        alarm: the rollback of step b failed: the result was dropped: the parameter `password` is `secret` in the flow, and its value is not a reference: use "secret://NAME", which workers replace by the value
        stuck (rollback_failed): the rollback of step b failed: the result was dropped: the parameter `password` is `secret` in the flow, and its value is not a reference: use "secret://NAME", which workers replace by the value
      == Stuck: a=succeeded b=failed ~b=failed
    "#);
}

#[test]
fn an_item_a_child_task_and_a_signal_give_references_too() {
    assert_snapshot!(events(r#"
        flow a
        secret password
        a: each list, on_partial 1
        input {"list":[1,2]}
        accept
        ok a[1] {"password":"hunter2"}
        ok a[2] {"password":"secret://db"}
    "#), @r#"
    accept
        accepted
        a has 2 members
        a[1]#1 ready
        a[2]#1 ready
    ok a[1] {"password":"hunter2"}
        a[1]#1 was handed out
        a[1]#1 failed for good: the result was dropped: the parameter `password` is `secret` in the flow, and its value is not a reference: use "secret://NAME", which workers replace by the value (code 65)
    ok a[2] {"password":"secret://db"}
        a[2]#1 was handed out
        a[2]#1 succeeded {"password":"secret://db"}
        a#1 succeeded {"a":[null,{"password":"secret://db"}],"a_errors":[{"step":"a","index":0,"code":65,"message":"the result was dropped: the parameter `password` is `secret` in the flow, and its value is not a reference: use \"secret://NAME\", which workers replace by the value"}]}
        ended: Succeeded
      == Succeeded: a=succeeded a[1]=failed a[2]=succeeded
    "#);
    // The child task had its effects: it is rolled back before its step fails, so nothing of it stays when an operator
    // lets the step be tried again.
    assert_snapshot!(events(r#"
        flow a
        secret password
        on_failure hold
        a: runs sub
        accept
        child a ok {"password":"hunter2"}
        child a fail rolled back with its parent
        resolve a retry
        child a ok {"password":"secret://db"}
    "#), @r#"
    accept
        accepted
        a#1 waits for a child
    child a ok {"password":"hunter2"}
        a#1 rolls back its child: the result was dropped: the parameter `password` is `secret` in the flow, and its value is not a reference: use "secret://NAME", which workers replace by the value
    child a fail rolled back with its parent
        a#1 failed for good: the result was dropped: the parameter `password` is `secret` in the flow, and its value is not a reference: use "secret://NAME", which workers replace by the value (code 65)
        alarm: step a failed and is held: the result was dropped: the parameter `password` is `secret` in the flow, and its value is not a reference: use "secret://NAME", which workers replace by the value
        stuck (held): step a failed and is held: the result was dropped: the parameter `password` is `secret` in the flow, and its value is not a reference: use "secret://NAME", which workers replace by the value
    resolve a retry
        a resolved: Retry by anna
        alarm over: held a by anna
        a#2 waits for a child
        stuck no more
    child a ok {"password":"secret://db"}
        a#2 succeeded {"password":"secret://db"}
        ended: Succeeded
      == Succeeded: a=succeeded
    "#);
    assert_snapshot!(events(r#"
        flow a > b
        secret password
        b: signal go
        accept
        signal go {"password":"hunter2"}
        signal go {"password":"secret://db"}
        ok a
    "#), @r#"
    accept
        accepted
        a#1 ready
    signal go {"password":"hunter2"}
        rejected: the parameter `password` is `secret` in the flow, and its value is not a reference: use "secret://NAME", which workers replace by the value
    signal go {"password":"secret://db"}
        signal go kept by anna
    ok a
        a#1 was handed out
        a#1 succeeded
        b#1 waits for a signal
        b got the signal go by anna
        b#1 succeeded {"password":"secret://db"}
        ended: Succeeded
      == Succeeded: a=succeeded b=succeeded
    "#);
}

#[test]
fn an_operator_gives_references_too() {
    assert_snapshot!(events(r#"
        flow a
        secret password
        on_failure hold
        accept
        final a no
        resolve a retry {"password":"hunter2"}
        resolve a done {"password":"hunter2"}
        resolve a retry {"password":"secret://db"}
        show a
    "#), @r#"
    accept
        accepted
        a#1 ready
    final a no
        a#1 was handed out
        a#1 failed for good: no (code 65)
        alarm: step a failed and is held: no
        stuck (held): step a failed and is held: no
    resolve a retry {"password":"hunter2"}
        rejected: the parameter `password` is `secret` in the flow, and its value is not a reference: use "secret://NAME", which workers replace by the value
    resolve a done {"password":"hunter2"}
        rejected: the parameter `password` is `secret` in the flow, and its value is not a reference: use "secret://NAME", which workers replace by the value
    resolve a retry {"password":"secret://db"}
        a resolved: Retry by anna
        alarm over: held a by anna
        a amended: {} to {"password":"secret://db"} by anna
        a#2 ready
        stuck no more
      == Running: a=ready
    show a
        {"password":"secret://db"}
    "#);
}

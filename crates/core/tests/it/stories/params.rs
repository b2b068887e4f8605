//! What an act is given.

use insta::assert_snapshot;

use crate::story::{play, tell};

#[test]
fn the_flows_then_the_callers_then_the_results_of_ancestors_in_definition_order() {
    assert_snapshot!(tell(r#"
        flow a > b c > d
        params {"zone":"north","size":1}
        input {"size":2,"name":"n"}
        accept
        show a
        ok a {"host":"h1"}
        ok c {"size":30,"c":true}
        show b
        ok b {"size":20,"b":{"x":[1, 2.50]}}
        show d
    "#), @r#"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    show a
        {"zone":"north","size":2,"name":"n"}
    ok a {"host":"h1"}
        a#1 was handed out
        a#1 succeeded {"host":"h1"}
        b#1 ready
        c#1 ready
      -> forget a
      -> queue m: b#1 b at 0s
      -> queue m: c#1 c at 0s
      == Running: a=succeeded b=ready c=ready
    ok c {"size":30,"c":true}
        c#1 was handed out
        c#1 succeeded {"size":30,"c":true}
      -> forget c
      == Running: a=succeeded b=ready c=succeeded
    show b
        {"zone":"north","size":2,"name":"n","host":"h1"}
    ok b {"size":20,"b":{"x":[1, 2.50]}}
        b#1 was handed out
        b#1 succeeded {"size":20,"b":{"x":[1, 2.50]}}
        d#1 ready
      -> forget b
      -> queue m: d#1 d at 0s
      == Running: a=succeeded b=succeeded c=succeeded d=ready
    show d
        {"zone":"north","size":30,"name":"n","host":"h1","b":{"x":[1, 2.50]},"c":true}
    "#);
}

#[test]
fn in_a_classic_flow_undos_see_everything_so_far_and_their_results_are_merged() {
    assert_snapshot!(tell(r#"
        flow a > b c
        rollback_params shared
        accept
        ok a {"a":1}
        take c
        ok b {"b":2}
        final c boom
        show ~b
        ok ~b {"b":null,"freed":true}
        show ~c
        ok ~c {}
        show ~a
    "#), @r#"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    ok a {"a":1}
        a#1 was handed out
        a#1 succeeded {"a":1}
        b#1 ready
        c#1 ready
      -> forget a
      -> queue m: b#1 b at 0s
      -> queue m: c#1 c at 0s
      == Running: a=succeeded b=ready c=ready
    take c
    ok b {"b":2}
        b#1 was handed out
        b#1 succeeded {"b":2}
      -> forget b
      == Running: a=succeeded b=succeeded c=running
    final c boom
        c#1 was handed out
        c#1 failed for good: boom (code 65)
        rolling back: c failed
        ~c#1 ready
        ~b#1 ready
      -> queue m: ~b#1 unb at 0s
      -> forget c
      -> queue m: ~c#1 unc at 0s
      == RollingBack: a=succeeded b=succeeded ~b=ready c=failed ~c=ready
    show ~b
        {"a":1,"b":2}
    ok ~b {"b":null,"freed":true}
        ~b#1 was handed out
        ~b#1 succeeded {"b":null,"freed":true}
      -> forget ~b
      == RollingBack: a=succeeded b=succeeded ~b=succeeded c=failed ~c=ready
    show ~c
        {"a":1,"b":null,"freed":true}
    ok ~c {}
        ~c#1 was handed out
        ~c#1 succeeded
        ~a#1 ready
      -> queue m: ~a#1 una at 0s
      -> forget ~c
      == RollingBack: a=succeeded ~a=ready b=succeeded ~b=succeeded c=failed ~c=succeeded
    show ~a
        {"a":1,"b":null,"freed":true}
    "#);
}

#[test]
fn the_outcome_is_everything_merged() {
    let world = play(
        r#"
        flow a > b
        input {"x":0}
        accept
        ok a {"x":1}
        ok b {"y":2}
    "#,
    );
    assert_eq!(world.task.outcome().as_str(), r#"{"x":1,"y":2}"#);
}

#[test]
fn the_message_says_why_a_task_is_as_it_is() {
    let message = |story: &str| play(story).task.message();
    assert_eq!(message("flow a\naccept"), None);
    assert_eq!(message("flow a\naccept\nfail a no space").unwrap(), "step a failed: no space");
    assert_eq!(message("flow a\naccept\ncancel").unwrap(), "cancelled by anna");
    assert_eq!(
        message("flow a\naccept\nfail a no space\nfail ~a locked").unwrap(),
        "the rollback of step a failed: locked"
    );
    assert_eq!(
        message("flow a\non_failure hold\naccept\nfail a no space\nresolve a rollback").unwrap(),
        "step a failed: no space"
    );
}

#[test]
fn the_cursor_is_the_furthest_touched_step() {
    let cursor = |story: &str| play(story).task.cursor();
    assert_eq!(cursor("flow a > b > c\naccept"), 0);
    assert_eq!(cursor("flow a > b > c\naccept\nok a"), 1);
    assert_eq!(cursor("flow a > b > c\naccept\nok a\ncancel"), 0);
}

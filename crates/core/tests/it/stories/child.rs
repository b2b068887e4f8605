//! Steps that run a flow as a task of their own, and tasks that are such children.

use insta::assert_snapshot;
use windlass_core::{
    CHILD_PARAMS_BYTES_MAX, CHILD_RESULT_BYTES_MAX, Command, DEPTH_MAX, Ending, Json, Outcome, Phase,
};

use crate::story::{events, play, tell};

#[test]
fn a_step_starts_a_task_and_takes_its_result() {
    assert_snapshot!(tell("flow a > b > c\nb: runs copy\npriority 3\ninput {\"from\":\"x\"}\naccept\nok a {\"n\":1}\nchild b ok {\"copied\":7}\nshow c\nok c"), @r#"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at -180s
      == Pending: a=ready
    ok a {"n":1}
        a#1 was handed out
        a#1 succeeded {"n":1}
        b#1 waits for a child
      -> forget a
      -> start copy for b#1 {"from":"x","n":1}
      == Running: a=succeeded b=running
    child b ok {"copied":7}
        b#1 succeeded {"copied":7}
        c#1 ready
      -> queue m: c#1 c at -180s
      == Running: a=succeeded b=succeeded c=ready
    show c
        {"from":"x","n":1,"copied":7}
    ok c
        c#1 was handed out
        c#1 succeeded
        ended: Succeeded
      -> forget c
      == Succeeded: a=succeeded b=succeeded c=succeeded
    "#);
}

#[test]
fn a_task_that_fails_fails_the_step_and_has_undone_itself() {
    assert_snapshot!(events("flow a > b > c\nb: runs copy\naccept\nok a\nchild b fail no space\nok ~a"), @"
    accept
        accepted
        a#1 ready
    ok a
        a#1 was handed out
        a#1 succeeded
        b#1 waits for a child
    child b fail no space
        b#1 failed for good: no space (code 1)
        rolling back: b failed
        ~b skipped
        ~a#1 ready
    ok ~a
        ~a#1 was handed out
        ~a#1 succeeded
        ended: RolledBack
      == RolledBack: a=succeeded ~a=succeeded b=failed ~b=skipped
    ");
}

#[test]
fn a_retry_starts_another_task() {
    assert_snapshot!(tell("flow a > b\na: runs copy, retry 1, timeout 60s, deadline 90s\naccept\nchild a fail no space\nnext\nchild a ok\nok b"), @"
    accept
        accepted
        a#1 waits for a child
      -> start copy for a#1 {} until 60s
      == Running: a=running
    child a fail no space
        a#1 failed: no space; again at 664ms
      -> wait a until 664ms
      == Running: a=delayed
    next
        at 664ms
        a#2 waits for a child
      -> forget a
      -> start copy for a#2 {} until 60664ms
      == Running: a=running
    child a ok
        a#2 succeeded
        b#1 ready
      -> queue m: b#1 b at 664ms
      == Running: a=succeeded b=ready
    ok b
        b#1 was handed out
        b#1 succeeded
        ended: Succeeded
      -> forget b
      == Succeeded: a=succeeded b=succeeded
    ");
    assert_snapshot!(events("flow a > b\na: runs copy, retry 1\naccept\nchild a final no such file"), @"
    accept
        accepted
        a#1 waits for a child
    child a final no such file
        a#1 failed for good: no such file (code 65)
        rolling back: a failed
        ~a skipped
        ended: Failed
      == Failed: a=failed ~a=skipped
    ");
}

#[test]
fn a_task_that_turns_around_stops_those_it_started_and_undoes_those_that_are_done() {
    assert_snapshot!(tell("flow a > b c > d\nb: runs copy\nc: runs send\naccept\nok a\nchild b ok\ncancel\nchild c final cancelled\nchild b fail undone\nok ~a"), @"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    ok a
        a#1 was handed out
        a#1 succeeded
        b#1 waits for a child
        c#1 waits for a child
      -> forget a
      -> start copy for b#1 {}
      -> start send for c#1 {}
      == Running: a=succeeded b=running c=running
    child b ok
        b#1 succeeded
      == Running: a=succeeded b=succeeded c=running
    cancel
        rolling back: cancelled by anna
      -> cancel the task of c#1
      == RollingBack: a=succeeded b=succeeded c=running
    child c final cancelled
        c#1 failed for good: cancelled (code 65)
        ~c skipped
        ~b#1 waits for a child
      -> roll back the task of ~b#1
      == RollingBack: a=succeeded b=succeeded ~b=running c=failed ~c=skipped
    child b fail undone
        ~b#1 succeeded
        ~a#1 ready
      -> queue m: ~a#1 una at 0s
      == RollingBack: a=succeeded ~a=ready b=succeeded ~b=succeeded c=failed ~c=skipped
    ok ~a
        ~a#1 was handed out
        ~a#1 succeeded
        ended: Cancelled
      -> forget ~a
      == Cancelled: a=succeeded ~a=succeeded b=succeeded ~b=succeeded c=failed ~c=skipped
    ");
    // A result that arrives nevertheless is recorded, and then rolled back.
    assert_snapshot!(events("flow a b\nb: runs copy\naccept\nfail a x\nchild b ok {\"n\":1}\nchild b fail undone\nok ~a"), @r#"
    accept
        accepted
        a#1 ready
        b#1 waits for a child
    fail a x
        a#1 was handed out
        a#1 failed for good: x (code 1)
        rolling back: a failed
    child b ok {"n":1}
        b#1 succeeded {"n":1}
        ~b#1 waits for a child
        ~a#1 ready
    child b fail undone
        ~b#1 succeeded
    ok ~a
        ~a#1 was handed out
        ~a#1 succeeded
        ended: RolledBack
      == RolledBack: a=failed ~a=succeeded b=succeeded ~b=succeeded
    "#);
}

#[test]
fn an_undo_waits_for_a_person_where_its_task_is_gone() {
    assert_snapshot!(events("flow a > b\na: runs copy\naccept\nchild a ok\nfail b x\nok ~b\nchild ~a gone\nresolve a retry\nchild ~a gone\nresolve a done"), @"
    accept
        accepted
        a#1 waits for a child
    child a ok
        a#1 succeeded
        b#1 ready
    fail b x
        b#1 was handed out
        b#1 failed for good: x (code 1)
        rolling back: b failed
        ~b#1 ready
    ok ~b
        ~b#1 was handed out
        ~b#1 succeeded
        ~a#1 waits for a child
    child ~a gone
        ~a#1 failed for good: task 00003b9a-ca00-7c66-8410-9deb0da0e205, which ran the step, was deleted and cannot roll back: roll the step back by hand, then resolve it as done (code 65)
        alarm: the rollback of step a failed: task 00003b9a-ca00-7c66-8410-9deb0da0e205, which ran the step, was deleted and cannot roll back: roll the step back by hand, then resolve it as done
        stuck (rollback_failed): the rollback of step a failed: task 00003b9a-ca00-7c66-8410-9deb0da0e205, which ran the step, was deleted and cannot roll back: roll the step back by hand, then resolve it as done
    resolve a retry
        ~a resolved: Retry by anna
        alarm over: rollback_failed a by anna
        ~a#2 waits for a child
        stuck no more
    child ~a gone
        ~a#2 failed for good: task 00003b9a-ca00-7c66-8410-9deb0da0e205, which ran the step, was deleted and cannot roll back: roll the step back by hand, then resolve it as done (code 65)
        alarm: the rollback of step a failed: task 00003b9a-ca00-7c66-8410-9deb0da0e205, which ran the step, was deleted and cannot roll back: roll the step back by hand, then resolve it as done
        stuck (rollback_failed): the rollback of step a failed: task 00003b9a-ca00-7c66-8410-9deb0da0e205, which ran the step, was deleted and cannot roll back: roll the step back by hand, then resolve it as done
    resolve a done
        ~a resolved: Done by anna
        alarm over: rollback_failed a by anna
        stuck no more
        ended: RolledBack
      == RolledBack: a=succeeded ~a=succeeded b=failed ~b=succeeded
    ");
}

#[test]
fn what_was_done_by_hand_no_task_undoes() {
    assert_snapshot!(events("flow a > b\na: runs copy\non_failure hold\naccept\nchild a fail x\nresolve a done\nfail b x\nresolve b rollback\nok ~b"), @"
    accept
        accepted
        a#1 waits for a child
    child a fail x
        a#1 failed for good: x (code 1)
        alarm: step a failed and is held: x
        stuck (held): step a failed and is held: x
    resolve a done
        a resolved: Done by anna
        alarm over: held a by anna
        b#1 ready
        stuck no more
    fail b x
        b#1 was handed out
        b#1 failed for good: x (code 1)
        alarm: step b failed and is held: x
        stuck (held): step b failed and is held: x
    resolve b rollback
        b resolved: Rollback by anna
        alarm over: held b by anna
        rolling back: b given up by anna
        ~b#1 ready
        stuck no more
    ok ~b
        ~b#1 was handed out
        ~b#1 succeeded
        ~a skipped
        ended: RolledBack
      == RolledBack: a=succeeded ~a=skipped b=failed ~b=succeeded
    ");
}

#[test]
fn a_pause_starts_no_task_and_lets_those_end_that_are_under_way() {
    assert_snapshot!(tell("flow a > b c\na: runs copy\nb: runs send\naccept\npause\nchild a ok\nresume"), @"
    accept
        accepted
        a#1 waits for a child
      -> start copy for a#1 {}
      == Running: a=running
    pause
        paused by anna
      == Pausing: a=running
    child a ok
        a#1 succeeded
        b#1 parked
        c#1 parked
      == Paused: a=succeeded b=parked c=parked
    resume
        resumed by anna
        b#1 waits for a child
        c#1 ready
      -> queue m: c#1 c at 0s
      -> start send for b#1 {}
      == Running: a=succeeded b=running c=ready
    ");
}

#[test]
fn members_have_a_task_each() {
    assert_snapshot!(tell("flow a > b\na: runs copy, each files\ninput {\"files\":[\"x\",\"y\",\"z\"]}\naccept\nchild a[2] ok {\"n\":2}\nchild a[1] fail broken\nchild a[3] final cancelled\nchild ~a[2] fail undone"), @r#"
    accept
        accepted
        a has 3 members
        a[1]#1 waits for a child
        a[2]#1 waits for a child
      -> start copy for a[1]#1 {"item":"x","index":0}
      -> start copy for a[2]#1 {"item":"y","index":1}
      == Running: a=running a[1]=running a[2]=running
    child a[2] ok {"n":2}
        a[2]#1 succeeded {"n":2}
        a[3]#1 waits for a child
      -> start copy for a[3]#1 {"item":"z","index":2}
      == Running: a=running a[1]=running a[2]=succeeded a[3]=running
    child a[1] fail broken
        a[1]#1 failed for good: broken (code 1)
        a#1 failed for good: item 0 failed: broken (code 1)
        rolling back: a failed
      -> cancel the task of a[3]#1
      == RollingBack: a=failed a[1]=failed a[2]=succeeded a[3]=running
    child a[3] final cancelled
        a[3]#1 failed for good: cancelled (code 65)
        ~a has 3 members
        ~a[3] skipped
        ~a[2]#1 waits for a child
        ~a[1] skipped
      -> roll back the task of ~a[2]#1
      == RollingBack: a=failed ~a=running a[1]=failed ~a[1]=skipped a[2]=succeeded ~a[2]=running a[3]=failed ~a[3]=skipped
    child ~a[2] fail undone
        ~a[2]#1 succeeded
        ~a#1 succeeded
        ended: RolledBack
      == RolledBack: a=failed ~a=succeeded a[1]=failed ~a[1]=skipped a[2]=succeeded ~a[2]=succeeded a[3]=failed ~a[3]=skipped
    "#);
}

#[test]
fn a_step_leaves_its_time_to_its_task() {
    let world = play("flow a\na: runs copy, timeout 3s, deadline 5s\naccept");
    assert!(world.waits.is_empty(), "a child minds the time");
}

#[test]
fn a_child_tells_what_its_steps_returned_and_is_undone_when_its_parent_is() {
    assert_snapshot!(tell("flow a > b\nbelow 1\ninput {\"from\":\"x\"}\naccept\nok a {\"n\":1}\nok b {\"m\":2}\nundone\nagain\nok ~b\nok ~a\nundone\ncancelled"), @r#"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    ok a {"n":1}
        a#1 was handed out
        a#1 succeeded {"n":1}
        b#1 ready
      -> forget a
      -> queue m: b#1 b at 0s
      == Running: a=succeeded b=ready
    ok b {"m":2}
        b#1 was handed out
        b#1 succeeded {"m":2}
        ended: Succeeded
      -> forget b
      -> to the parent: done {"n":1,"m":2}
      == Succeeded: a=succeeded b=succeeded
    undone
        rolling back: wanted by its parent
        ~b#1 ready
      -> queue m: ~b#1 unb at 0s
      == RollingBack: a=succeeded b=succeeded ~b=ready
    again
        rejected: nothing is due
    ok ~b
        ~b#1 was handed out
        ~b#1 succeeded
        ~a#1 ready
      -> queue m: ~a#1 una at 0s
      -> forget ~b
      == RollingBack: a=succeeded ~a=ready b=succeeded ~b=succeeded
    ok ~a
        ~a#1 was handed out
        ~a#1 succeeded
        ended: RolledBack
      -> forget ~a
      -> to the parent: task TASK of the flow story was rolled back: its parent task started rolling back (code 1, retryable false)
      == RolledBack: a=succeeded ~a=succeeded b=succeeded ~b=succeeded
    undone
        rejected: nothing is due
    cancelled
        rejected: nothing is due
    "#);
}

#[test]
fn a_child_that_fails_tells_why() {
    assert_snapshot!(tell("flow a > b\nbelow 1\naccept\nok a\nfinal b no such file\nok ~b\nok ~a"), @"
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
    final b no such file
        b#1 was handed out
        b#1 failed for good: no such file (code 65)
        rolling back: b failed
        ~b#1 ready
      -> forget b
      -> queue m: ~b#1 unb at 0s
      == RollingBack: a=succeeded b=failed ~b=ready
    ok ~b
        ~b#1 was handed out
        ~b#1 succeeded
        ~a#1 ready
      -> queue m: ~a#1 una at 0s
      -> forget ~b
      == RollingBack: a=succeeded ~a=ready b=failed ~b=succeeded
    ok ~a
        ~a#1 was handed out
        ~a#1 succeeded
        ended: RolledBack
      -> forget ~a
      -> to the parent: task TASK of the flow story was rolled back: step b failed: no such file (code 65, retryable false)
      == RolledBack: a=succeeded ~a=succeeded b=failed ~b=succeeded
    ");
    assert_snapshot!(tell("flow a\nbelow 1\ndeadline 5s\naccept\nnext"), @"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      -> wait deadline until 5s
      == Pending: a=ready
    next
        at 5s
        rolling back: too late
        a#1 withdrawn, untouched
        ended: Failed
      -> forget a
      -> forget deadline
      -> to the parent: task TASK of the flow story failed: the task's deadline passed (code 125, retryable true)
      == Failed:
    ");
    assert_snapshot!(tell("flow a > b\nbelow 1\naccept\nok a\npause\ncancelled\nok ~a"), @"
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
    pause
        paused by anna
        b#1 parked
      -> forget b
      == Paused: a=succeeded b=parked
    cancelled
        rolling back: wanted by its parent
        b#1 withdrawn, untouched
        ~a#1 ready
      -> queue m: ~a#1 una at 0s
      == RollingBack: a=succeeded ~a=ready
    ok ~a
        ~a#1 was handed out
        ~a#1 succeeded
        ended: Cancelled
      -> forget ~a
      -> to the parent: task TASK of the flow story was cancelled: its parent task started rolling back (code 1, retryable false)
      == Cancelled: a=succeeded ~a=succeeded
    ");
}

#[test]
fn only_a_child_that_succeeded_goes_back_and_only_for_its_parent() {
    for story in ["flow a\naccept\nok a", "flow a\nbelow 1\naccept\nfail a x\nok ~a"] {
        let mut world = play(story);
        assert!(world.apply(&Command::UndoForParent).is_err(), "{story}");
    }
    let mut world = play("flow a\na: no rollback\nbelow 1\naccept\nok a");
    world.apply(&Command::UndoForParent).expect("it starts rolling back");
    // There was nothing to roll back, and nothing is left of it either.
    assert_eq!(world.task.state.phase, Phase::Ended(Ending::RolledBack));
}

#[test]
fn tasks_stand_below_one_another_only_so_deep() {
    let deep = |depth: u32| play(&format!("flow a\na: runs copy\nbelow {depth}\naccept")).task;
    assert_eq!(deep(DEPTH_MAX - 2).state.phase, Phase::Forward);
    let failed = deep(DEPTH_MAX - 1);
    assert_eq!(failed.state.phase, Phase::Ended(Ending::Failed));
    assert_snapshot!(failed.message().unwrap(), @"step a failed: child tasks are nested too deeply: the limit is 8. A flow runs itself, or the chain of flows is too long");
}

#[test]
fn what_goes_from_task_to_task_has_a_size() {
    let large = |bytes: usize| format!("{{\"x\":\"{}\"}}", "y".repeat(bytes));
    let fits = CHILD_PARAMS_BYTES_MAX - large(0).len();
    for (bytes, phase) in [(fits, Phase::Forward), (fits + 1, Phase::Ended(Ending::Failed))] {
        let world = play(&format!("flow a\na: runs copy\ninput {}\naccept", large(bytes)));
        assert_eq!(world.task.state.phase, phase);
    }
    let fits = CHILD_RESULT_BYTES_MAX - large(0).len();
    for (bytes, phase) in [(fits, Phase::Ended(Ending::Succeeded)), (fits + 1, Phase::Backward)] {
        let mut world = play("flow a\nbelow 1\naccept\ntake a");
        let key = windlass_core::ActKey::forward(0);
        let command = world.report(key, Outcome::Succeeded(Some(Json::parse(&large(bytes)).unwrap())));
        world.apply(&command).expect("it is accepted");
        assert_eq!(world.task.state.phase, phase);
    }
    assert_snapshot!(tell(&format!("flow a\nbelow 1\naccept\nok a {}\nok ~a", large(fits + 1))).replace(&"y".repeat(fits + 1), ""), @r#"
    accept
        accepted
        a#1 ready
      -> queue m: a#1 a at 0s
      == Pending: a=ready
    ok a {"x":""}
        a#1 was handed out
        a#1 succeeded {"x":""}
        rolling back: 262145 bytes of results
        ~a#1 ready
      -> forget a
      -> queue m: ~a#1 una at 0s
      == RollingBack: a=succeeded ~a=ready
    ok ~a
        ~a#1 was handed out
        ~a#1 succeeded
        ended: RolledBack
      -> forget ~a
      -> to the parent: task TASK of the flow story was rolled back: its results are 262145 bytes together, and a step takes at most 262144: return less, or a reference (code 65, retryable false)
      == RolledBack: a=succeeded ~a=succeeded
    "#);
}

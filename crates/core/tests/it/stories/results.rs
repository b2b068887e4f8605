//! Results of steps under the names of their steps.

use std::sync::Arc;

use windlass_core::{ActKey, ActState, Expression, Flow, Json, Task};

use crate::story::play;

fn results(task: &Task, step: &str) -> Option<String> {
    let key = ActKey::forward(task.flow.step_index(step).unwrap());
    let results = task.results_for(key).map(|results| results.to_string());
    assert_eq!(
        task.results_for(ActKey { direction: windlass_core::Direction::Rollback, ..key })
            .map(|results| results.to_string()),
        results
    );
    results
}

#[test]
fn a_step_is_given_what_its_ancestors_returned_and_nobody_else() {
    let task = play(
        r#"
        flow a > vm disk > net > c
        accept
        ok a
        ok disk {"id":"disk-9"}
        ok vm {"id":"vm-1","results":7}
        ok net {"id":"net-3"}
    "#,
    )
    .task;
    assert_eq!(results(&task, "vm"), None, "a returned nothing, disk is not an ancestor");
    assert_eq!(results(&task, "net").unwrap(), r#"{"vm":{"id":"vm-1","results":7},"disk":{"id":"disk-9"}}"#);
    let all = r#"{"vm":{"id":"vm-1","results":7},"disk":{"id":"disk-9"},"net":{"id":"net-3"}}"#;
    assert_eq!(results(&task, "c").unwrap(), all);
}

#[test]
fn items_are_a_list_under_the_name_of_their_step() {
    let task = play(
        r#"
        flow copy > c
        copy: each files, on_partial continue
        input {"files":["x","y"]}
        accept
        ok copy[1] {"id":"one"}
        final copy[2] boom
    "#,
    )
    .task;
    assert_eq!(results(&task, "copy"), None);
    assert_eq!(results(&task, "c").unwrap(), r#"{"copy":[{"id":"one"},null]}"#);
}

#[test]
fn the_step_for_errors_is_given_those_of_all_steps() {
    let task = play(
        r#"
        flow a b e
        e: role on_error, no rollback
        accept
        ok a {"n":1}
        final b boom
        ok ~b {"n":2}
        ok ~a {"n":3}
    "#,
    )
    .task;
    let key = ActKey::rollback(task.flow.step_index("e").unwrap());
    assert_eq!(task.results_for(key).unwrap().as_str(), r#"{"a":{"n":1}}"#);
}

#[test]
fn expressions_read_results_by_name() {
    let task = play(
        r#"
        flow vm-1 > disk > b > c > d
        b: when results['vm-1'].id == 'v' && results.disk.id == 'd'
        c: when has(results.b)
        d: key results.disk.id + results.disk.id
        accept
        ok vm-1 {"id":"v","results":{"disk":{"id":"x"}}}
        ok disk {"id":"d"}
        ok b
    "#,
    )
    .task;
    let act = |step: &str| task.act(ActKey::forward(task.flow.step_index(step).unwrap())).unwrap();
    assert_eq!(act("b").state, ActState::Succeeded, "{:?}", act("b").failure);
    assert_eq!(act("c").state, ActState::Skipped, "{:?}", act("c").failure);
    assert_eq!(act("d").fairness(), Some("dd"), "{:?}", act("d").failure);
}

#[test]
fn items_are_named_by_results_as_well() {
    let task = play(
        r#"
        flow a > copy
        copy: each files, key results.a.host + item
        input {"files":["x","y"]}
        accept
        ok a {"host":"h-"}
    "#,
    )
    .task;
    let copy = task.flow.step_index("copy").unwrap();
    let keys = [1, 2].map(|member| task.act(ActKey::forward(copy).of_member(member)).unwrap().fairness());
    assert_eq!(keys, [Some("h-x"), Some("h-y")]);
}

fn with_when(when: &str) -> Flow {
    let mut flow = (*play("flow a b > c\naccept").task.flow).clone();
    flow.steps[2].when = Some(Expression::compile(when).unwrap());
    flow
}

#[test]
fn a_flow_reads_only_results_that_are_there() {
    for good in [
        "results.a.n > 1",
        "results['b'].n > 1",
        "params.results.x > 1",
        "results == 1",
        "[1].exists(results, results > 0)",
    ] {
        assert_eq!(with_when(good).check(), Ok(()), "{good}");
    }
    for (bad, why) in [
        (
            "results.x.n > 1",
            "a step \"x\", which is not in the flow; a parameter called `results` is `params.results`",
        ),
        (
            "results['c'].n > 1",
            "the result of \"c\", which need not be done before this step: add it to `after`",
        ),
    ] {
        let fault = with_when(bad).check().unwrap_err();
        assert!(fault.message.ends_with(why), "{fault}");
        assert_eq!(fault.step, Some(2));
    }
}

#[test]
fn in_a_flow_stored_before_it_may_be_a_parameter() {
    let world = play("flow a b > c\ninput {\"results\":{\"x\":1}}\naccept");
    let mut task = world.task;
    task.flow = Arc::new(with_when("results.x == 1"));
    let done = Json::parse(r#"{"n":1}"#).unwrap();
    for step in 0..2 {
        let attempt = windlass_core::Attempt { key: ActKey::forward(step), number: 1, started_at: None };
        let outcome = windlass_core::Outcome::Succeeded(Some(done.clone()));
        let command = windlass_core::Command::Report(windlass_core::Report { attempt, outcome });
        let context = windlass_core::Context::at(windlass_core::Timestamp(2_000_000_000_000));
        task = windlass_core::apply(&task, &command, &context).unwrap().task;
    }
    assert_eq!(task.state.steps[2].forward.state, ActState::Ready);
}

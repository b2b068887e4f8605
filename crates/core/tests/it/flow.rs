//! Which flows can run, and why the others are refused.

use windlass_core::{Doer, Flow, Millis, Name, RETRIES_MAX, Role, SECRET_PARAMS_MAX, SPAN_MAX, STEPS_MAX};

use crate::story::flow;

/// Why a flow is refused after `change`, and the step that it is about.
fn told(groups: &str, change: impl Fn(&mut Flow)) -> (Option<usize>, String) {
    let mut flow = flow(groups);
    change(&mut flow);
    let fault = flow.check().expect_err("the flow cannot run");
    (fault.step, fault.message)
}

#[test]
fn sound_flows_pass() {
    assert_eq!(flow("a > b c > d").check(), Ok(()));
    let most: Vec<String> = (0..STEPS_MAX).map(|index| format!("s{index}")).collect();
    assert_eq!(flow(&most.join(" > ")).check(), Ok(()));
}

#[test]
fn a_flow_has_steps_but_not_too_many() {
    assert_eq!(told("a", |flow| flow.steps.clear()), (None, "a flow needs at least one step".to_owned()));
    let many: Vec<String> = (0..=STEPS_MAX).map(|index| format!("s{index}")).collect();
    let (_, message) = told(&many.join(" > "), |_| {});
    assert_eq!(message, "the flow has 257 steps; the most is 256");
}

#[test]
fn steps_have_names_of_their_own() {
    let (step, message) = told("a > b", |flow| flow.steps[1].name = Name::new("a").unwrap());
    assert_eq!(step, Some(1));
    assert_eq!(message, "step \"a\" is there twice, as step 1 and step 2: give each a name of its own");
}

#[test]
fn steps_wait_for_steps_that_are_there_and_not_for_themselves() {
    let (step, message) = told("a > b", |flow| flow.steps[1].after = vec![5]);
    assert_eq!((step, &*message), (Some(1), "step \"b\" is after step 5, which is not there"));
    let (step, message) = told("a > b > c", |flow| flow.steps[1].after = vec![0, 2]);
    let cycle = "step \"b\" waits for itself through its `after`: break the cycle";
    assert_eq!((step, &*message), (Some(1), cycle));
}

#[test]
fn secret_parameters_are_references_in_the_flow_too() {
    let secret = |names: &[&str]| names.iter().map(|name| Name::new(name).unwrap()).collect();
    let (_, message) = told("a", |flow| {
        flow.secret = secret(&["user", "password"]);
        flow.params = Some(r#"{"user":"secret://user","password":"hunter2"}"#.into());
    });
    assert!(message.starts_with("`params`: the parameter `password` is `secret`"), "{message}");
    assert!(!message.contains("hunter2"), "{message}");
    let (_, message) = told("a", |flow| flow.secret = secret(&["a", "b", "a"]));
    assert_eq!(message, "`secret` has the name a twice");
    let (_, message) = told("a", |flow| {
        flow.secret = (0..=SECRET_PARAMS_MAX).map(|index| Name::new(&format!("p{index}")).unwrap()).collect();
    });
    assert_eq!(message, "`secret` has 65 names; the limit is 64");
}

#[test]
fn lengths_of_time_and_retries_are_bounded() {
    let too_long = SPAN_MAX.0 + 1;
    type Set = fn(&mut Flow, u64);
    let cases: [(&str, Set); 4] = [
        ("timeout", |flow, ms| flow.steps[0].run.timeout = Millis(ms)),
        ("deadline", |flow, ms| flow.steps[0].run.deadline = Some(Millis(ms))),
        ("retry.base", |flow, ms| flow.steps[0].run.retry.base = Millis(ms)),
        ("retry.cap", |flow, ms| flow.steps[0].run.retry.cap = Millis(ms)),
    ];
    for (name, set) in cases {
        let (_, message) = told("a", |flow| set(flow, too_long));
        assert_eq!(message, format!("step \"a\": `{name}` is longer than 366 days"));
        let mut longest = flow("a");
        set(&mut longest, SPAN_MAX.0);
        assert_eq!(longest.check(), Ok(()));
    }
    assert!(told("a", |flow| flow.steps[0].run.timeout = Millis(0)).1.contains("timeout of 0"));
    assert!(told("a", |flow| flow.steps[0].run.deadline = Some(Millis(0))).1.contains("deadline of 0"));
    let (_, message) = told("a", |flow| flow.steps[0].run.retry.max = RETRIES_MAX + 1);
    assert_eq!(message, "step \"a\": `retry` is more than 1000000");
}

#[test]
fn a_step_that_runs_a_flow_leaves_its_undo_and_its_start_to_it() {
    let runs = |flow: &mut Flow| {
        (flow.steps[0].run.doer, flow.steps[0].rollback) =
            (Doer::Flow { name: Name::new("copy").unwrap() }, None);
    };
    let mut sound = flow("a");
    runs(&mut sound);
    assert_eq!(sound.check(), Ok(()));
    let (_, message) = told("a b", |flow| {
        runs(flow);
        flow.steps[0].rollback = flow.steps[1].rollback.clone();
    });
    assert!(message.contains("leave `rollback` out"), "{message}");
    let (_, message) = told("a", |flow| {
        runs(flow);
        flow.steps[0].run.start_within = Some(Millis(1));
    });
    assert!(message.contains("`timeout` says how long the task may take"), "{message}");
}

#[test]
fn the_step_for_errors_has_no_other_place() {
    let on_error = |flow: &mut Flow, step: usize| {
        (flow.steps[step].role, flow.steps[step].rollback) = (Role::OnError, None);
    };
    let mut sound = flow("a b");
    on_error(&mut sound, 1);
    assert_eq!(sound.check(), Ok(()));
    let (step, message) = told("a b", |flow| {
        on_error(flow, 1);
        flow.steps[1].delay = Some(Millis(1));
    });
    let unfit = "step \"b\": `delay` means nothing for the step for errors, which runs once the task has failed: leave it out";
    assert_eq!((step, &*message), (Some(1), unfit));
    let (step, message) = told("a > b", |flow| on_error(flow, 0));
    let after = "step \"b\" is after \"a\", the step for errors: nothing comes after that";
    assert_eq!((step, &*message), (Some(1), after));
    let (step, message) = told("a b c", |flow| {
        on_error(flow, 1);
        on_error(flow, 2);
    });
    let twice = "step \"c\": there is another step for errors: do it in one";
    assert_eq!((step, &*message), (Some(2), twice));
}

#[test]
fn ancestors_are_found_through_others() {
    let flow = flow("a > b c > d > e");
    assert_eq!(flow.ancestors(0), [false; 5]);
    assert_eq!(flow.ancestors(1), [true, false, false, false, false]);
    assert_eq!(flow.ancestors(4), [true, true, true, true, false]);
    assert_eq!(flow.successors(0).collect::<Vec<_>>(), [1, 2]);
}

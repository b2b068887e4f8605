//! The messages for invalid conditions, keys, fan-outs, joins and signals.

use super::{
    Format,
    refusals::{refusals, step, step_refusals},
};

#[test]
fn expressions_are_compiled_when_they_are_read() {
    let deep = format!("when: '{}1 > 0{}'", "(".repeat(40), ")".repeat(40));
    let long = format!("when: 'size > {}'", "1".repeat(1_100));
    let key_of_nothing = "wait: x\n    key: region".to_owned();
    insta::assert_snapshot!(step_refusals([
        "when: size >",
        "when: 'size > 3 &&\n\n      && x'",
        "when: now() > 3",
        "when: true",
        "when: [size]",
        &deep,
        &long,
        "key: region +",
        "locks: [licence, { expression: host + }]",
    ]), @r#"
    5:11: `when`: it ends where a value should be (column 7 of the expression)
    5:11: `when`: a value should be here (line 2, column 1 of the expression)
    5:11: `when`: there is no `now`: the same parameters must always give the same answer (column 1 of the expression)
    5:11: `when` must be a string: put it in quotes, as in "true"
    5:11: `when` is a list, and must be a string
    5:11: `when`: it nests deeper than 32 levels: write it in a simpler way (column 33 of the expression)
    5:11: `when`: it is 1107 bytes long, and at most 1024 are possible: let a step find out what is to be known, and look at its result
    5:10: `key`: it ends where a value should be (column 9 of the expression)
    5:36: `expression`: it ends where a value should be (column 7 of the expression)
    "#);
    insta::assert_snapshot!(refusals(Format::Yaml, [
        "flow: f\nkey: region +\nsteps: [{ name: a, run: m.c }]\n",
        "flow: f\nunique: order_id +\nsteps: [{ name: a, run: m.c }]\n",
        "flow: f\nunique: { key: order_id + }\nsteps: [{ name: a, run: m.c }]\n",
        &step(&key_of_nothing).replace("run: m.c\n    ", ""),
    ]), @"
    2:6: `key`: it ends where a value should be (column 9 of the expression)
    2:9: `unique`: it ends where a value should be (column 11 of the expression)
    2:16: `key`: it ends where a value should be (column 11 of the expression)
    5:10: `key` is for limits on what workers do, and no worker does this step: leave it out
    ");
}

#[test]
fn keys_of_graphs_must_make_sense_together() {
    insta::assert_snapshot!(step_refusals([
        "parallel: 3",
        "each: hosts\n    parallel: 0",
        "each: hosts\n    parallel: 1001",
        "each: hosts\n    parallel: -1",
        "each: ''",
        "each: [1, 2]",
        "on_partial: continue",
        "each: hosts\n    on_partial: 0",
        "each: hosts\n    on_partial: 10001",
        "each: hosts\n    on_partial: most",
        "each: hosts\n    on_partial: [3]",
        "delay: 400d",
        "delay: -1s",
        "start_within: 0",
        "locks: licence",
        "locks: [a b]",
        "locks: [[a]]",
        "locks: [a, a]",
        "wait: approved",
        "rollback: flow.g",
    ]), @r#"
    5:15: `parallel` is for a step with `each`: name the parameter with the list, as in `each: hosts`
    6:15: step "a": `parallel` must be from 1 to 1000
    6:15: step "a": `parallel` must be from 1 to 1000
    6:15: `parallel`: -1 is negative: write 0 or more
    5:11: `each` is "": write the name of the parameter with the list, of 1 to 128 bytes
    5:11: `each` is a list, and must be a string
    5:17: step "a": `on_partial` is for a step with `each`, or for one that is `after` several others
    6:17: step "a": `on_partial: 0` asks for nothing: write `continue`
    6:17: step "a": `on_partial` is more than the 10000 items a step may have
    6:17: `on_partial` is "most", and must be fail, continue, or the number that must succeed
    6:17: `on_partial` is a list, and must be fail, continue, or the number that must succeed
    5:12: `delay` is too long: the limit is 366 days
    5:12: `delay`: "-1s" is negative: a duration is 0 or more
    5:19: a start_within of 0 would fail every attempt: give it a length, or leave it out
    5:12: `locks` is a string, and must be a list of names, such as [licence, {expression: "'host-' + host"}]
    5:13: `locks`: invalid name "a b": use 1 to 128 of A-Z a-z 0-9 _ . - and begin with a letter or digit
    5:13: `locks[0]` is a list, and must be a string
    5:16: `locks` names the same lock twice: remove one
    5:11: a step has `run` or `wait`, and this one has both: make two steps of it
    5:15: "flow.g" is a flow, and this must be a command of a module
    "#);
    let waiting = [
        "wait: a b",
        "wait: approved\n    rollback: m.u",
        "wait: approved\n    each: hosts",
        "wait: approved\n    retry: 3",
        "wait: approved\n    start_within: 3s",
        "wait: approved\n    timeout: 5s\n    deadline: 5s",
        "wait: approved\n    timeout: 0",
        "when: x",
        "run: flow.f\n    rollback: m.wipe",
        "run: flow.f\n    start_within: 3s",
        "run: flow.f\n    key: owner",
        "run: flow.f\n    timeout: 0",
    ];
    let texts = waiting.map(|keys| step(keys).replace("run: m.c\n    ", ""));
    insta::assert_snapshot!(refusals(Format::Yaml, texts.iter().map(String::as_str)), @r#"
    4:11: `wait`: invalid name "a b": use 1 to 128 of A-Z a-z 0-9 _ . - and begin with a letter or digit
    5:15: step "a": a step that waits for a signal cannot have `rollback`: it waits, and there is nothing to roll back
    5:11: step "a": a step that waits for a signal cannot have `each`: a signal does not say for which item it is
    5:12: a step that waits for a signal cannot have this `retry`: there is nothing to try again
    5:19: a step that waits for a signal cannot have this `start_within`: no worker takes it: `timeout` says how long it waits
    6:15: a step that waits for a signal cannot have this `deadline`: it is the same as its `timeout`
    5:14: a timeout of 0 would fail every attempt: give it a length, or leave it out
    3:5: a step needs `run`: write MODULE.COMMAND, such as mysql.init_instance; or `wait`: the signal it waits for; or `device`: the device that does it
    5:15: step "a": a child task is rolled back by its own flow: leave `rollback` out, or do it in that flow
    5:19: a step that runs a flow cannot have this `start_within`: no worker takes it; `timeout` says how long the task may take
    5:10: `key` is for limits on what workers do, and no worker does this step: leave it out
    5:14: a timeout of 0 would fail every attempt: give it a length, or leave it out
    "#);
    insta::assert_snapshot!(refusals(Format::Yaml, [
        "flow: f\nsteps:\n  - { name: a, run: m.c }\n  - { name: b, run: m.c }\n  \
            - { name: c, run: m.c, after: [a, b], on_partial: 3 }\n",
        "flow: f\non_error: m.c\nsteps:\n  - { name: on_error, run: m.c }\n",
        "flow: f\non_error: m.c\nsteps:\n  - { name: a, run: m.c, after: [on_error] }\n",
        "flow: f\non_error: clean\nsteps: [{ name: a, run: m.c }]\n",
        "flow: f\non_error: flow.g\nsteps: [{ name: a, run: m.c }]\n",
        "flow: f\non_error: { run: m.c, retry: { max: 1, cap: 400d } }\nsteps: [{ name: a, run: m.c }]\n",
        "flow: f\non_error: m.c\nsteps: []\n",
        "flow: f\ndeadline: 0\nsteps: [{ name: a, run: m.c }]\n",
        "flow: f\ndeadline: 400d\nsteps: [{ name: a, run: m.c }]\n",
        "flow: f\nretention: 0\nsteps: [{ name: a, run: m.c }]\n",
        "flow: f\nretention: 400d\nsteps: [{ name: a, run: m.c }]\n",
        "flow: f\nunique: [a]\nsteps: [{ name: a, run: m.c }]\n",
        "flow: f\nunique: { while: running }\nsteps: [{ name: a, run: m.c }]\n",
        "flow: f\nunique: { key: a, while: ended }\nsteps: [{ name: a, run: m.c }]\n",
        "flow: f\nunique: { key: a, while: finished }\nsteps: [{ name: a, run: m.c }]\n",
        "flow: f\nunique: { key: a, for: 1h }\nsteps: [{ name: a, run: m.c }]\n",
        "flow: f\nunique: { key: a, while: finished, for: 0s }\nsteps: [{ name: a, run: m.c }]\n",
        "flow: f\nunique: { key: a, on_conflict: replace }\nsteps: [{ name: a, run: m.c }]\n",
    ]), @r#"
    5:53: step "c": `on_partial: 3` is more than the 2 steps before it
    4:13: `on_error` is the name of the flow's step for errors: give this step another name
    4:34: no step can run after `on_error`: it runs once the task has failed
    2:11: "clean" names no command: write MODULE.COMMAND, such as mysql.init_instance
    2:11: "flow.g" is a flow, and this must be a command of a module
    2:45: `cap` is too long: the limit is 366 days
    3:8: a flow needs a step beside `on_error`
    2:11: a deadline of 0 would fail every task: give it a length, or leave it out
    2:11: `deadline` is too long: the limit is 366 days
    2:12: a retention of 0 would delete every task at its end: give it a length, or leave it out
    2:12: `retention` is too long: the limit is 366 days
    2:9: `unique` is a list, and must be an expression, or a map with `key`
    2:9: `unique` needs `key`: an expression that has the same value for duplicate tasks
    2:26: `while` is "ended", and must be pending, running or finished
    2:26: `while: finished` needs `for`: how long after its end, as in `for: 1h`
    2:24: `for` counts from a task's end: write `while: finished` beside it, or leave it out
    2:41: a `for` of 0 has no effect: give it a length, or leave it out
    2:32: `on_conflict` is "replace", and must be return or fail
    "#);
}

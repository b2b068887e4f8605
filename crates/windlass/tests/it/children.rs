//! Child tasks as users meet them: what they return, what they get, and what is shown of them.

use serde_json::Value;

use super::site::{Site, text, until};

const FLOWS: &str = "
flow: copy
steps:
  - { name: fetch, run: m.echo, rollback: m.echo }
  - { name: store, run: m.echo, rollback: m.echo }
---
flow: parent
steps:
  - { name: copy, run: flow.copy }
  - { name: last, run: m.told }
---
flow: parent_of_bad
steps:
  - { name: child, run: flow.bad, retry: { max: 1, base: 10ms } }
---
flow: turns_around
steps:
  - { name: copy, run: flow.copy }
  - { name: last, run: m.fail }
---
flow: slow
steps:
  - { name: wait, run: m.gate, rollback: m.echo }
---
flow: parent_of_slow
steps:
  - { name: slow, run: flow.slow }
---
flow: parent_of_lonely
steps:
  - { name: lonely, run: flow.lonely }
---
flow: parent_of_stuck
steps:
  - { name: stuck, run: flow.stuck }
";

fn site() -> Site {
    let site = Site::with_worker();
    site.apply(FLOWS);
    site
}

/// The tasks of a flow, the newest first.
fn tasks(site: &Site, flow: &str) -> Vec<Value> {
    site.json(&["task", "list", "--flow", flow])["items"].as_array().unwrap().clone()
}

fn statuses(tasks: &[Value]) -> Vec<&str> {
    tasks.iter().map(|task| task["status"].as_str().unwrap()).collect()
}

/// Runs a task of `flow` to where it stands still; returns what is shown of it then.
fn run(site: &Site, flow: &str) -> Value {
    let id = site.start_task(flow);
    site.run(&["task", "wait", &id]);
    site.json(&["task", "show", &id])
}

#[test]
fn what_a_child_returns_is_the_result_of_the_step() {
    let site = site();
    let task = run(&site, "parent");
    assert_eq!(task["status"], "succeeded", "{task}");
    assert_eq!(task["steps"][0]["result"]["ran"], "store", "what the child's last step returned");
    assert_eq!(
        task["steps"][1]["result"]["stdin"]["params"]["ran"], "store",
        "and what comes after it gets that"
    );

    let children = tasks(&site, "copy");
    let (child, id) = (&children[0], task["id"].as_str().unwrap());
    assert_eq!((&task["steps"][0]["child"], &child["parent"]["task"]), (&child["id"], &task["id"]));
    let shown = text(&site.run(&["task", "show", child["id"].as_str().unwrap()]).stdout);
    assert!(shown.contains(&format!("parent    {id}")), "{shown}");
}

#[test]
fn a_child_that_fails_fails_the_step_and_a_retry_has_another_child() {
    let site = site();
    let task = run(&site, "parent_of_bad");
    let children = tasks(&site, "bad");
    assert_eq!(statuses(&children), ["rolled_back", "rolled_back"], "one for each attempt");
    let last = children[0]["id"].as_str().unwrap();
    let message = format!("task {last} of the flow bad was rolled back: step two failed: no space left");
    assert_eq!(task["steps"][0]["message"], message.as_str());
    assert_eq!(task["message"], format!("step child failed: {message}"));
    assert_eq!((&task["steps"][0]["code"], &task["steps"][0]["attempts"]), (&7.into(), &2.into()));
    let events = text(&site.run(&["task", "events", task["id"].as_str().unwrap()]).stdout);
    assert!(children.iter().all(|child| events.contains(child["id"].as_str().unwrap())), "{events}");
}

#[test]
fn a_cancel_goes_down_to_the_child() {
    let site = site();
    let id = site.start_task("parent_of_slow");
    let running = || tasks(&site, "slow").into_iter().find(|child| child["status"] == "running");
    until("the child runs", running);
    assert_eq!(site.run(&["task", "cancel", &id]).status.code(), Some(0));
    assert_eq!(site.run(&["task", "wait", &id]).status.code(), Some(10));
    assert_eq!(statuses(&tasks(&site, "slow")), ["cancelled"]);
    assert_eq!(site.json(&["task", "show", &id])["status"], "cancelled");
}

#[test]
fn a_rollback_goes_down_to_a_child_that_had_succeeded() {
    let site = site();
    let task = run(&site, "turns_around");
    assert_eq!(
        (&task["status"], &task["message"]),
        (&"rolled_back".into(), &"step last failed: no space left".into())
    );
    assert_eq!(task["steps"][0]["status"], "rolled_back");
    let children = tasks(&site, "copy");
    assert_eq!(statuses(&children), ["rolled_back"]);
    let events = text(&site.run(&["task", "events", children[0]["id"].as_str().unwrap()]).stdout);
    let place = |kind: &str, step: &str| {
        let is_it = |line: &&str| line.contains(kind) && line.contains(step);
        events
            .lines()
            .position(|line| is_it(&line))
            .unwrap_or_else(|| panic!("no {kind} of {step}: {events}"))
    };
    assert!(place("step.succeeded", "store") < place("rollback.succeeded", "store"), "{events}");
    assert!(place("rollback.succeeded", "store") < place("rollback.succeeded", "fetch"), "{events}");
}

#[test]
fn why_ends_with_what_the_child_waits_for() {
    let site = site();
    let id = site.start_task("parent_of_lonely");
    let why = until("the child waits", || {
        let why = site.json(&["task", "why", &id]);
        (why["reason"] == "child" && why["sentence"].as_str()?.contains("nobody")).then_some(why)
    });
    let child = tasks(&site, "lonely")[0]["id"].as_str().unwrap().to_owned();
    assert!(why["sentence"].as_str().unwrap().contains(&child), "{why}");
    let shown = text(&site.run(&["task", "show", &id]).stdout);
    assert!(shown.contains(&child), "it is shown what the step waits for: {shown}");

    // One that is stuck holds up the other, and an operator resolves it where it is.
    let id = site.start_task("parent_of_stuck");
    let stuck = until("the child is stuck", || {
        tasks(&site, "stuck").into_iter().find(|child| child["status"] == "stuck")
    });
    let why = site.json(&["task", "why", &id]);
    assert!(why["sentence"].as_str().unwrap().contains(stuck["id"].as_str().unwrap()), "{why}");
    let child = stuck["id"].as_str().unwrap();
    assert_eq!(site.run(&["task", "resolve", child, "one", "skip"]).status.code(), Some(0));
    assert_eq!(site.run(&["task", "wait", &id]).status.code(), Some(10));
}

#[test]
fn flows_that_start_themselves_are_refused_and_a_chain_of_nine_fails() {
    let site = site();
    std::fs::write(site.path("loop.yaml"), "flow: loop\nsteps:\n  - { name: again, run: flow.loop }\n")
        .unwrap();
    let output = site.run(&["flow", "apply", &site.path("loop.yaml")]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = text(&output.stderr);
    assert!(said.contains("would start itself for ever: loop → loop"), "{said}");
    assert_eq!(site.run(&["flow", "show", "loop"]).status.code(), Some(3), "nothing was stored");

    // Each is applied before the one it runs, so that none of them could be refused.
    let flow = |depth| {
        let run = if depth == 9 { "m.echo".to_owned() } else { format!("flow.depth{}", depth + 1) };
        format!("flow: depth{depth}\nsteps:\n  - {{ name: one, run: {run} }}\n")
    };
    (1..=9).for_each(|depth| site.apply(&flow(depth)));
    assert_eq!(run(&site, "depth2")["status"], "succeeded");
    let task = run(&site, "depth1");
    assert_eq!(task["status"], "failed", "{task}");
    let message = task["message"].as_str().unwrap();
    assert!(message.contains("8"), "{message}");
    assert_eq!(tasks(&site, "depth9").len(), 1, "only that of the shorter chain was started");
    std::fs::write(site.path("depth1.yaml"), flow(1)).unwrap();
    let output = site.run(&["flow", "apply", &site.path("depth1.yaml")]);
    assert!(text(&output.stderr).contains("the limit is 8"), "now it can be seen: {output:?}");
}

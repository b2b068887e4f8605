//! Workflows that the Rust client puts together, on a real server with a real worker.

use serde_json::{Value, json};
use windlass_client::{
    Client,
    api::{Payload, Span, Task, TaskStatus},
    workflow::{Workflow, chain, chord, delay, group, step},
};

use super::site::Site;

/// Runs a workflow to its end.
fn run(site: &Site, workflow: Workflow) -> Task {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let task = runtime.block_on(async {
        let client = Client::new(&site.url).unwrap();
        let task = client.submit(&workflow.into_task()).await.unwrap();
        client.wait(&task.id).await.unwrap()
    });
    assert_eq!(task.status, TaskStatus::Succeeded, "{task:?}");
    task
}

fn parsed(payload: Option<&Payload>) -> Value {
    serde_json::from_str(payload.unwrap().get()).unwrap()
}

fn echo(name: &str) -> Workflow {
    step(name, "m.echo")
}

#[test]
fn chains_groups_chords_and_delays_run() {
    let site = Site::with_worker();
    let task = run(&site, chain([echo("a"), echo("b")]));
    assert!(task.steps[0].ended_at <= task.steps[1].started_at, "{task:?}");
    assert_eq!(parsed(task.result.as_ref())["ran"], "b");

    let task = run(&site, group([echo("a"), echo("b")]));
    assert_eq!(task.steps.iter().filter(|step| step.attempts == 1).count(), 2);

    let task = run(&site, chord(group([echo("a"), echo("b"), echo("c")]), echo("join")));
    assert!(task.steps[..3].iter().all(|step| step.ended_at <= task.steps[3].started_at), "{task:?}");
    assert_eq!(parsed(task.steps[3].result.as_ref()), json!({ "ran": "join" }));

    let task = run(&site, delay(Span::from_ms(300), echo("late")));
    // By the server's clock, whose milliseconds it was counted in.
    let waited = task.steps[0].started_at.unwrap().duration_since(task.created_at);
    assert!(waited.as_millis() >= 300, "{waited:?}");

    let flows = site.json(&["flow", "list"]);
    let names: Vec<&str> =
        flows["items"].as_array().unwrap().iter().map(|flow| flow["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"good") && !names.iter().any(|name| name.starts_with("adhoc-")), "{names:?}");
    let all = super::site::text(&site.run(&["flow", "list", "--all"]).stdout);
    assert_eq!(all.lines().filter(|line| line.starts_with("adhoc-")).count(), 4, "{all}");
}

#[test]
fn several_tasks_are_waited_for_and_the_worst_of_them_is_the_exit_code() {
    let site = Site::with_worker();
    let (good, bad) = (site.start_task("good"), site.start_task("bad"));
    let output = site.run(&["task", "wait", &good, &bad]);
    assert_eq!(output.status.code(), Some(10), "{output:?}");
    let lines = super::site::text(&output.stdout);
    assert!(
        lines.contains(&format!("{good}  succeeded")) && lines.contains(&format!("{bad}  rolled_back")),
        "{lines}"
    );
    let both = site.json(&["task", "wait", &good, &bad]);
    assert_eq!(both["items"][1]["status"], "rolled_back");
    assert_eq!(site.json(&["task", "wait", &good])["status"], "succeeded");
    let nobody = "00000000-0000-7000-8000-000000000000";
    assert_eq!(site.run(&["task", "wait", &good, nobody]).status.code(), Some(3));
    let again = site.run(&["task", "rerun", &bad, "--from", "one"]);
    assert_eq!(again.status.code(), Some(0), "{again:?}");
    let refused = site.run(&["task", "rerun", &bad, "--from", "two"]);
    assert_eq!(refused.status.code(), Some(4), "its first step was rolled back");
    assert_eq!(site.run(&["task", "rerun", &bad]).status.code(), Some(0), "it begins at its first step");
}

const APPROVED: &str = "
flow: approved
steps:
  - { name: each, run: m.echo, each: files, parallel: 2 }
  - { name: approve, wait: approved }
  - { name: last, run: m.echo }
";

#[test]
fn members_are_shown_and_a_signal_lets_a_task_go_on() {
    let site = Site::with_worker();
    std::fs::write(site.path("approved.yaml"), APPROVED).unwrap();
    assert_eq!(site.run(&["flow", "apply", &site.path("approved.yaml")]).status.code(), Some(0));
    let task = site.json(&["task", "start", "approved", "-p", "files=[\"a\",\"b\",\"c\"]"]);
    let id = task["id"].as_str().unwrap();
    // It is kept where the step does not wait yet.
    let output = site.run(&["task", "signal", id, "approved", "-p", "limit=3"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(site.run(&["task", "wait", id]).status.code(), Some(0));
    assert_eq!(site.json(&["task", "show", id])["result"]["limit"], 3);
    let page = super::site::text(&site.run(&["task", "show", id]).stdout);
    assert!(page.contains("3 of 3 items done"), "{page}");
    let members = super::site::text(&site.run(&["task", "show", id, "--items", "each"]).stdout);
    assert_eq!(members.lines().filter(|line| line.contains("succeeded")).count(), 3, "{members}");
    let events = super::site::text(&site.run(&["task", "events", id]).stdout);
    assert!(events.lines().any(|line| line.contains("signal") && line.contains("by ops")), "{events}");
    assert_eq!(site.run(&["task", "signal", id, "approved"]).status.code(), Some(4), "it has ended");
    assert_eq!(site.run(&["task", "show", id, "--items", "last"]).status.code(), Some(3));
}

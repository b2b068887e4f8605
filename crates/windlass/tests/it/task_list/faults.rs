//! Crashes, values that cannot be used, and addresses that do not answer.

use serde_json::{Value, json};
use windlass_testkit::Proxy;

use super::stage::{List, Stage, value};
use crate::site::until;

#[test]
fn a_marked_entry_whose_task_was_not_submitted_is_submitted_at_the_start() {
    let Some(list) = List::new("crashed-list") else { return };
    let mut stage = Stage::new(list, "");
    list.put(1, "gate");
    let mark = until("it is taken", || list.entry("task_0001")?.json().get("windlassTask").cloned());
    let first = mark["task"].as_str().unwrap().to_owned();
    stage.kill();
    // As it was left by a server that was killed after the compare-and-set.
    let left = |n: u32, store: &Value, task: &str| {
        let mut value = value(n, "note");
        value["taskTaken"] = json!("true");
        value["windlassTask"] = json!({ "store": store, "task": task, "run": 1 });
        list.put_text(&format!("task_{n:04}"), &value.to_string());
    };
    let (lost, foreign) = ("01900000-0000-7000-8000-000000000002", "01900000-0000-7000-8000-000000000003");
    left(2, &mark["store"], lost);
    left(3, &json!("another store"), foreign);
    let theirs = list.entry("task_0003").unwrap();
    stage.start();
    until("the lost one is done", || list.entry("task_0002").is_none().then_some(()));
    assert_eq!(stage.site.json(&["task", "show", lost])["status"], "succeeded");
    stage.site.open_gate();
    until("the first one is done", || list.entry("task_0001").is_none().then_some(()));
    assert_eq!(stage.site.json(&["task", "show", &first])["status"], "succeeded");
    assert_eq!(stage.tasks().len(), 2, "none twice, and none of another store");
    assert_eq!(list.entry("task_0003"), Some(theirs));
    assert_eq!(stage.done_by("windlass"), [2]);
}

#[test]
fn a_repeated_put_of_a_taken_entry_starts_no_second_task() {
    let Some(list) = List::new("repeated-list") else { return };
    let stage = Stage::new(list, "");
    list.put(1, "gate");
    let is_taken = || list.entry("task_0001").filter(|entry| entry.json()["taskTaken"] == "true");
    until("it is taken", is_taken);
    list.put(1, "gate");
    until("it is taken again", is_taken);
    stage.site.open_gate();
    list.is_empty();
    assert_eq!(stage.tasks().len(), 1);
}

#[test]
fn broken_values_are_left_alone_and_reported_once_and_others_go_on() {
    let Some(list) = List::new("broken-list") else { return };
    let mut stage = Stage::new(list, "");
    list.put_text("task_0000", "{\"taskId\": ");
    list.put_text("task_0001", &value(1, "unknown").to_string());
    let mut nothing = value(2, "note");
    nothing.as_object_mut().unwrap().remove("taskPara");
    list.put_text("task_0002", &nothing.to_string());
    let before = list.entries();
    list.put(9, "note");
    until("the good one is done", || (stage.done_by("windlass") == [9]).then_some(()));
    let complaint = |stage: &Stage| {
        until("all are reported", || {
            let alarms = stage.alarms();
            let message = alarms.first()?["message"].as_str()?.to_owned();
            let has_all = (0..3).all(|n| message.contains(&format!("broken-list/task_000{n}: ")));
            (alarms.len() == 1 && alarms[0]["kind"] == "message_refused" && has_all)
                .then(|| alarms[0].clone())
        })
    };
    let alarm = complaint(&stage);
    let message = alarm["message"].as_str().unwrap();
    assert!(message.contains("not a JSON object") && message.contains("no flow is configured"), "{message}");
    assert!(message.contains("nothing at /taskPara"), "{message}");
    // More tasks, and another server, do not report it again.
    list.put(10, "note");
    until("another one is done", || (stage.done_by("windlass") == [9, 10]).then_some(()));
    stage.restart();
    list.put(11, "note");
    until("another one is done", || (stage.done_by("windlass") == [9, 10, 11]).then_some(()));
    assert_eq!(complaint(&stage)["raised_at"], alarm["raised_at"]);
    until("only these are left", || (list.entries() == before).then_some(()));
    for n in 0..3 {
        list.put(n, "note");
    }
    list.is_empty();
    until("the alarm is over", || stage.alarms().is_empty().then_some(()));
    // Several tasks of a list without a leader key run at once.
    let mut done = stage.done_by("windlass");
    done.sort_unstable();
    assert_eq!(done, [0, 1, 2, 9, 10, 11]);
}

#[test]
fn when_an_address_fails_the_next_one_is_asked() {
    let Some(list) = List::new("failing-list") else { return };
    let first = Proxy::start(list.consul.port()).unwrap();
    let addresses = format!("127.0.0.1:{},127.0.0.1:{}", first.port(), list.consul.port());
    let rest = format!("leader = \"{}\"\nlease = \"4s\"", list.leader_key());
    let stage = Stage::at(list, &addresses, &rest);
    list.put(1, "note");
    list.is_empty();
    first.cut();
    list.put(2, "note");
    list.is_empty();
    assert_eq!(stage.done_by("windlass"), [1, 2]);
    assert!(stage.alarms().is_empty(), "{:?}", stage.alarms());
}

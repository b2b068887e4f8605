//! What becomes of entries: while their tasks run, and when these have ended.

use serde_json::json;

use super::stage::{List, Stage, value};
use crate::site::until;

#[test]
fn a_taken_entry_keeps_its_fields_and_the_form_of_task_taken() {
    let Some(list) = List::new("taken-list") else { return };
    let stage = Stage::new(list, "");
    let mut value = value(1, "gate");
    value["by"] = json!({ "team": [1.5, "x"] });
    for (name, before, after) in
        [("text", json!("false"), json!("true")), ("boolean", json!(false), json!(true))]
    {
        value["taskTaken"] = before;
        list.put_text(name, &value.to_string());
        let taken =
            until("it is taken", || list.entry(name).filter(|entry| entry.text.contains("windlassTask")));
        let mut fields = taken.json();
        let mark = fields.as_object_mut().unwrap().remove("windlassTask").unwrap();
        value["taskTaken"] = after;
        assert_eq!((&fields, taken.flags), (&value, 42));
        let task = stage.site.json(&["task", "show", mark["task"].as_str().unwrap()]);
        assert_eq!((&task["flow"], &task["labels"]["taskId"]), (&json!("gate"), &json!("1")));
        assert_eq!(task["params"], json!({ "n": 1 }));
    }
    stage.site.open_gate();
    list.is_empty();
}

#[test]
fn entries_are_taken_in_the_order_of_their_times() {
    let Some(list) = List::new("ordered-list") else { return };
    let numbers = [5, 3, 9, 1, 7];
    for n in numbers {
        // The order of the keys is another one.
        list.put_text(&format!("task_{:04}", 1000 - n), &value(n, "note").to_string());
    }
    let stage = Stage::new(list, "window = 1");
    list.is_empty();
    assert_eq!(stage.done_by("windlass"), [1, 3, 5, 7, 9]);
}

#[test]
fn a_failure_is_written_back_and_the_entry_can_be_put_back() {
    let Some(list) = List::new("failed-list") else { return };
    let mut stage = Stage::new(list, "when_ended = \"write_back\"");
    list.put(1, "fail");
    list.put(2, "note");
    let failed = |times: usize| {
        until("the failure is written back", || {
            let entry = list.entry("task_0001").filter(|entry| entry.text.contains("taskError"))?;
            (runs_of(&entry.json()) == times).then_some(entry)
        })
    };
    let entry = failed(1);
    let fields = entry.json();
    assert_eq!((&fields["taskStatus"], &fields["taskTaken"]), (&json!("rolled_back"), &json!("true")));
    assert!(fields["taskError"].as_str().unwrap().contains("no space left"), "{fields}");
    until("the other one is deleted", || list.entry("task_0002").is_none().then_some(()));
    stage.restart();
    list.put(3, "note");
    until("another one is done", || (stage.done_by("windlass") == [2, 3]).then_some(()));
    assert_eq!(list.entry("task_0001"), Some(entry), "it is settled once");
    let mut again = fields;
    again["taskTaken"] = json!("false");
    list.put_text("task_0001", &again.to_string());
    failed(2);
    assert_eq!(stage.tasks().len(), 4);
}

/// How often the task of an entry was run.
fn runs_of(value: &serde_json::Value) -> usize {
    usize::try_from(value["windlassTask"]["run"].as_u64().unwrap_or(0)).unwrap()
}

#[test]
fn an_ended_entry_is_moved_with_its_outcome_also_by_a_later_server() {
    let Some(list) = List::new("moved-list") else { return };
    let mut stage = Stage::new(list, "when_ended = \"move\"\ndone_prefix = \"moved-done/\"");
    list.put(1, "gate");
    until("it is taken", || list.entry("task_0001").filter(|entry| entry.text.contains("windlassTask")));
    // The task ends while nobody looks.
    let task = stage.tasks()[0]["id"].as_str().unwrap().to_owned();
    stage.restart();
    stage.site.open_gate();
    list.put(2, "fail");
    list.is_empty();
    let done = list.entries_of("moved-done");
    let keys: Vec<_> = done.iter().map(|entry| (entry.key.as_str(), entry.flags)).collect();
    assert_eq!(keys, [("task_0001", 42), ("task_0002", 42)]);
    assert_eq!(done[0].json()["taskStatus"], "succeeded");
    assert_eq!(done[0].json()["windlassTask"]["task"], json!(task));
    assert!(done[1].json()["taskError"].as_str().unwrap().contains("no space left"));
}

#[test]
fn what_somebody_writes_while_the_task_runs_is_not_lost() {
    let Some(list) = List::new("changed-list") else { return };
    let stage = Stage::new(list, "when_ended = \"move\"\ndone_prefix = \"changed-done/\"");
    list.put(1, "gate");
    let taken =
        until("it is taken", || list.entry("task_0001").filter(|entry| entry.text.contains("windlassTask")));
    let mut noted = taken.json();
    noted["remark"] = json!("look at this");
    list.put_text("task_0001", &noted.to_string());
    stage.site.open_gate();
    list.is_empty();
    assert_eq!(list.entries_of("changed-done")[0].json()["remark"], "look at this");
}

//! What happens to a broker, and what comes of it.

use windlass_testkit::Redis;

use super::{Far, Way};
use crate::site::{text, until};

#[test]
fn what_a_broker_has_lost_is_sent_again() {
    let Some(redis) = Redis::start().unwrap() else { return };
    let mut far = Far::start(&redis.url(), None);
    let ids: Vec<String> = (0..20).map(|index| far.start_task("create", &format!("index={index}"))).collect();
    let offered = || redis.ask(&["XLEN", &far.queue]).unwrap() == "20";
    until("all first steps are offered", || offered().then_some(()));
    let queues = far.site.json(&["queue", "list"]);
    let queue = queues["items"].as_array().unwrap().iter().find(|queue| queue["name"] == "far").unwrap();
    assert_eq!((&queue["ready"], &queue["running"], &queue["workers"]), (&20.into(), &0.into(), &0.into()));
    redis.ask(&["FLUSHALL"]).unwrap();
    far.start_workers(Way::Exchange);
    assert!(far.wait(&ids).iter().all(|task| task["status"] == "succeeded"));
    let ran = far.ran();
    assert_eq!(ran.len(), 60);
    assert!(ran.values().all(|times| *times == 1), "{ran:?}");
}

#[test]
fn a_broker_that_is_away_holds_up_its_own_queues_only() {
    let Some(redis) = Redis::start().unwrap() else { return };
    let mut far = Far::start(&redis.url(), None);
    far.start_workers(Way::Exchange);
    redis.kill().unwrap();
    let id = far.start_task("create", "index=1");
    let near = far.start_task("near", "index=2");
    assert_eq!(far.wait(&[near])[0]["status"], "succeeded", "what is not on the broker goes on");
    let raised = |id: &str| {
        until("the alarm is raised", || {
            let alarms = far.site.json(&["alarm", "list"]);
            alarms["items"].as_array()?.iter().find(|alarm| alarm["id"] == id).cloned()
        })
    };
    let alarm = raised("broker_away.far");
    let answers = raised(&format!("broker_away:{}-results@127.0.0.1:{}.0", far.queue, redis.port()));
    let message = answers["message"].as_str().unwrap();
    assert!(message.starts_with("cannot read results of modules from the queue"), "{message}");
    assert!(alarm.get("task").is_none(), "it is about no task: {alarm}");
    let why = far.site.json(&["task", "why", &id]);
    assert_eq!(why["reason"], "offered", "{why}");
    assert!(why["sentence"].as_str().unwrap().contains("cannot be offered"), "{why}");
    redis.restart().unwrap();
    assert_eq!(far.wait(&[id])[0]["status"], "succeeded");
    until("the alarm is resolved", || {
        let alarms = far.site.json(&["alarm", "list"]);
        alarms["items"].as_array()?.is_empty().then_some(())
    });
}

#[test]
fn a_worker_that_dies_with_a_step_is_replaced() {
    let Some(redis) = Redis::shared().unwrap() else { return };
    let mut far = Far::start(&redis.url(), None);
    far.site.apply("{ flow: gated, steps: [ { name: gate, run: far.gate } ] }");
    let mut worker = far.far_worker(Way::Exchange);
    let id = far.start_task("gated", "index=1");
    until("it has begun", || (!far.ran().is_empty()).then_some(()));
    worker.kill().unwrap();
    worker.wait().unwrap();
    // The gate stays closed until here, so the killed worker cannot have finished the command.
    far.site.open_gate_of("far");
    far.start_far_worker(Way::Exchange);
    let task = &far.wait(std::slice::from_ref(&id))[0];
    assert_eq!(task["status"], "succeeded", "{task}");
    assert_eq!(far.ran().get(&format!("{id} gate")), Some(&2), "once for each worker");
}

#[test]
fn what_is_no_answer_changes_nothing_and_is_put_aside() {
    let Some(redis) = Redis::shared().unwrap() else { return };
    let mut far = Far::start(&redis.url(), None);
    let id = far.start_task("create", "index=1");
    let results = format!("{}-results", far.queue);
    let forged = format!(
        r#"{{"TaskId":"{id}","Cursor":0,"Type":0,"Event":"succeeded","Token":"{}"}}"#,
        "A".repeat(68)
    );
    for body in ["{", &forged] {
        redis.ask(&["XADD", &results, "*", "body", body]).unwrap();
    }
    let dead = format!("{results}-dead");
    let entry = until("it is put aside", || {
        let entry = redis.ask(&["XRANGE", &dead, "-", "+"]).unwrap();
        entry.contains("it is not a result of a module").then_some(entry)
    });
    assert!(!entry.contains(&id), "what is readable and forged is heard and refused: {entry}");
    let alarm = &far.site.json(&["alarm", "list"])["items"][0];
    assert_eq!(alarm["kind"], "message_refused", "{alarm}");
    assert!(alarm["message"].as_str().unwrap().contains("is not a valid result"), "{alarm}");
    assert_eq!(far.site.json(&["task", "show", &id])["steps"][0]["status"], "ready");
    // The server's own queue publishers are no workers to anybody who looks for one.
    let near = far.start_task("near", "index=2");
    let why = far.site.json(&["task", "why", &near]);
    assert!(why["sentence"].as_str().unwrap().contains("no worker is connected"), "{why}");
    far.start_workers(Way::OneWay);
    assert_eq!(far.wait(&[id])[0]["status"], "succeeded");
}

#[test]
fn what_nobody_takes_in_time_has_failed_and_does_not_run() {
    let Some(redis) = Redis::shared().unwrap() else { return };
    let mut far = Far::start(&redis.url(), None);
    far.site.apply("{ flow: soon, steps: [ { name: wait, run: far.wait, start_within: 1s } ] }");
    let late = far.start_task("soon", "index=1");
    let task = &far.wait(std::slice::from_ref(&late))[0];
    assert_eq!((&task["status"], &task["steps"][0]["code"]), (&"failed".into(), &126.into()), "{task}");
    assert_ne!(redis.ask(&["XLEN", &far.queue]).unwrap(), "0", "its message is there still");
    let id = far.start_task("slow", "index=2");
    far.start_workers(Way::Exchange);
    assert_eq!(far.wait(std::slice::from_ref(&id))[0]["status"], "succeeded");
    until("all messages are done", || (redis.ask(&["XLEN", &far.queue]).unwrap() == "0").then_some(()));
    assert_eq!(far.ran(), [(format!("{id} wait"), 1)].into());
}

#[test]
fn a_cancelled_task_takes_its_step_back_from_the_broker() {
    let Some(redis) = Redis::shared().unwrap() else { return };
    let mut far = Far::start(&redis.url(), None);
    let (paused, cancelled) = (far.start_task("slow", "index=1"), far.start_task("slow", "index=2"));
    until("both are offered", || (redis.ask(&["XLEN", &far.queue]).unwrap() == "2").then_some(()));
    for (command, id) in [("pause", &paused), ("cancel", &cancelled)] {
        let output = far.site.run(&["task", command, id]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
    until("it is paused", || (far.site.json(&["task", "show", &paused])["status"] == "paused").then_some(()));
    assert_eq!(far.wait(std::slice::from_ref(&cancelled))[0]["status"], "cancelled");
    // Their messages are on the broker still.
    far.start_workers(Way::Exchange);
    until("the worker has read them", || (redis.ask(&["XLEN", &far.queue]).unwrap() == "0").then_some(()));
    assert!(far.ran().is_empty(), "and ran none: {:?}", far.ran());
    assert_eq!(far.site.run(&["task", "resume", &paused]).status.code(), Some(0));
    assert_eq!(far.wait(&[paused])[0]["status"], "succeeded");
}

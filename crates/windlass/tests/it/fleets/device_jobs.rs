//! Jobs of devices over a real Mosquitto. The devices are programs of another author: `mosquitto_sub` and `mosquitto_pub`.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::Child,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;
use windlass_testkit::Mosquitto;

use crate::site::{Site, store, text, until};

const DEVICES: &str = "
devices:
  - name: pump-1
    presence: { topic: pump-1/status }
  - name: valve-1
  - name: echo-1
    echoes_attempt: true
";

/// Two jobs, of two devices.
const FLOW: &str = "
flow: irrigate
steps:
  - name: open
    device: valve-1
    topic: valve-1/run
    args: { position: 100 }
    timeout: 20s
    settle: 100ms
    retry: 2
  - name: pump
    device: { expression: \"'pump-' + string(pump)\" }
    topic: { expression: \"'pump-' + string(pump) + '/run'\" }
    args: { expression: \"{'litres': litres}\" }
    timeout: 20s
";

/// One job, with a settle time that no test waits for.
const WATER: &str = "
flow: water
steps:
  - name: water
    device: { expression: device }
    topic: { expression: \"device + '/run'\" }
    timeout: 6s
    settle: 10m
    retry: 1
";

/// What was published to devices: the topics and the payloads.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<(String, Value)>>>);

impl Heard {
    /// Waits for the message with this index.
    fn wait(&self, index: usize) -> (String, Value) {
        until("a job is published", || self.0.lock().unwrap().get(index).cloned())
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

struct Field {
    site: Site,
    broker: Mosquitto,
    heard: Heard,
    subscriber: Child,
    store: String,
    config: String,
}

impl Field {
    /// A server, a broker, and somebody who listens to the topics of devices. `None` without Mosquitto.
    fn start() -> Option<Self> {
        Self::start_with("")
    }

    /// The same with these settings of devices.
    fn start_with(settings: &str) -> Option<Self> {
        let broker = Mosquitto::start().unwrap()?;
        let dir = TempDir::new().unwrap();
        let config = dir.path().join("windlass.toml");
        fs::write(&config, format!("[devices]\nbroker = \"{}\"\n{settings}\n", broker.url())).unwrap();
        let (config, store) = (config.display().to_string(), store(dir.path()));
        let (subscriber, heard) = listen(&broker);
        let site = Site::open(dir, &store, &[("WINDLASS_CONFIG", &config)]);
        let field = Self { site, broker, heard, subscriber, store, config };
        let file = field.site.path("devices.yaml");
        fs::write(&file, DEVICES).unwrap();
        let applied = field.site.run(&["device", "apply", &file]);
        assert!(applied.status.success(), "{applied:?}");
        field.site.apply(&format!("{FLOW}---{WATER}"));
        Some(field)
    }

    /// Waits until the server has subscribed. A broker discards earlier messages that are not retained.
    fn wait_until_heard(&self) {
        until("the server has subscribed", || {
            self.broker.publish("probe", "", false).unwrap();
            let found = self.site.json(&["device", "messages", "--topic", "probe"]);
            (found["items"] != json!([])).then_some(())
        });
    }

    fn start_task(&self, params: &str) -> String {
        self.start_flow("irrigate", params)
    }

    fn start_flow(&self, flow: &str, params: &str) -> String {
        let started = self.site.json(&["task", "start", flow, "--params", params]);
        started["id"].as_str().unwrap().to_owned()
    }

    /// The alarm about this device, once it is there; resolved or not.
    fn wait_for_alarm(&self, id: &str, state: &str) -> Value {
        until(&format!("the alarm {id} is {state}"), || {
            let alarms = self.site.json(&["alarm", "list", "--all"]);
            let alarms = alarms["items"].as_array().unwrap().clone();
            alarms.into_iter().find(|alarm| alarm["id"] == id && alarm["state"] == state)
        })
    }

    /// A device answers the job that it got with this message.
    fn answer(&self, topic: &str, device: &str, job: &Value, more: Value) {
        let mut answer = json!({ "uuid": job["uuid"], "device": device, "success": true });
        answer.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.broker.publish(topic, &answer.to_string(), false).unwrap();
    }

    fn wait_for(&self, task: &str, status: &str) -> Value {
        until(&format!("the task is {status}"), || {
            let task = self.site.json(&["task", "show", task]);
            (task["status"] == status).then_some(task)
        })
    }

    /// What happened to a device, oldest first.
    fn jobs(&self, device: &str) -> Vec<String> {
        let log = self.site.json(&["device", "log", device]);
        let entries = log["items"].as_array().unwrap().iter().rev();
        entries.filter_map(|entry| Some(entry["data"]["what"].as_str()?.to_owned())).collect()
    }
}

impl Drop for Field {
    fn drop(&mut self) {
        // It may have ended with the broker.
        let _ = self.subscriber.kill();
        let _ = self.subscriber.wait();
    }
}

/// Collects what is published to devices.
fn listen(broker: &Mosquitto) -> (Child, Heard) {
    let mut subscriber = broker.subscribe(&["+/run"]).unwrap();
    let lines = BufReader::new(subscriber.stdout.take().unwrap()).lines();
    let heard = Heard::default();
    let (noted, listens) = (heard.clone(), Arc::new(AtomicBool::new(false)));
    let is_there = listens.clone();
    thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let (topic, payload) = line.split_once(' ').unwrap();
            if topic == "probe/run" {
                is_there.store(true, Ordering::Relaxed);
                continue;
            }
            noted.0.lock().unwrap().push((topic.to_owned(), serde_json::from_str(payload).unwrap()));
        }
    });
    // A message that comes back shows that it listens.
    until("the subscriber listens", || {
        broker.publish("probe/run", "{}", false).unwrap();
        listens.load(Ordering::Relaxed).then_some(())
    });
    (subscriber, heard)
}

#[test]
fn devices_work_through_a_task_and_through_their_queue() {
    let Some(field) = Field::start() else { return };
    field.broker.publish("pump-1/status", "online", true).unwrap();
    let first = field.start_task(r#"{"pump":1,"litres":5}"#);
    let (topic, job) = field.heard.wait(0);
    assert_eq!(topic, "valve-1/run");
    assert_eq!(job, json!({ "position": 100, "uuid": first, "attempt": 1 }));
    // Another task wants the same device, and waits for it.
    let second = field.start_task(r#"{"pump":1,"litres":6}"#);
    let classic = until("the second task waits", || {
        let shown = field.site.get("/v1/devices/valve-1?view=classic");
        shown.contains(&second).then_some(shown)
    });
    assert!(classic.contains(r#""locked":true"#), "{classic}");
    // Answers that are about something else change nothing.
    field.answer("valve-1/done", "pump-1", &job, json!({}));
    field.answer("valve-1/done", "valve-1", &json!({ "uuid": second }), json!({}));
    field.answer("valve-1/done", "valve-1", &job, json!({ "attempt": 7 }));
    field.broker.publish("valve-1/done", "no JSON", false).unwrap();
    field.answer("valve-1/done", "valve-1", &job, json!({ "attempt": 1, "result": { "opened": true } }));
    // The device goes to the task that waited; the first task goes on with its next job.
    let mut next = [field.heard.wait(1), field.heard.wait(2)];
    next.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(
        next[0],
        ("pump-1/run".to_owned(), json!({ "litres": 5, "uuid": first, "attempt": 4_000_001 }))
    );
    assert_eq!(next[1].1["uuid"], second);
    assert_eq!(field.heard.len(), 3);
    field.answer("site/pump/done", "pump-1", &next[0].1, json!({}));
    let ended = field.wait_for(&first, "succeeded");
    assert_eq!(ended["steps"][0]["result"], json!({ "opened": true }), "{ended}");
    // The same answer again is late.
    field.answer("valve-1/done", "valve-1", &job, json!({ "attempt": 1 }));
    until("the late answer is logged", || {
        let jobs = field.jobs("valve-1");
        (jobs.iter().filter(|what| *what == "ignored").count() >= 3).then_some(())
    });
    assert_eq!(field.jobs("pump-1"), ["ignored", "published", "succeeded"]);
    field.answer("valve-1/done", "valve-1", &next[1].1, json!({}));
    let (_, job) = field.heard.wait(3);
    assert_eq!(job, json!({ "litres": 6, "uuid": second, "attempt": 4_000_001 }));
}

#[test]
fn a_failed_job_is_retried_and_a_device_that_is_offline_gets_its_job_later() {
    let Some(field) = Field::start() else { return };
    let task = field.start_task(r#"{"pump":1,"litres":5}"#);
    let (_, job) = field.heard.wait(0);
    field.answer("valve-1/done", "valve-1", &job, json!({ "success": false, "error": "stuck" }));
    let (_, job) = field.heard.wait(1);
    assert_eq!((&job["attempt"], &job["uuid"]), (&json!(2), &json!(task)));
    // An answer about the attempt before does not count.
    field.answer("valve-1/done", "valve-1", &job, json!({ "attempt": 1 }));
    // Of answers that are heard at once, those that count are logged first.
    until("it is ignored", || field.jobs("valve-1").contains(&"ignored".to_owned()).then_some(()));
    field.answer("valve-1/done", "valve-1", &job, json!({ "attempt": 2 }));
    until("the valve is done", || {
        let jobs = field.jobs("valve-1");
        (jobs == ["published", "failed", "published", "ignored", "succeeded"]).then_some(())
    });
    // The pump was never heard.
    assert_eq!(field.heard.len(), 2);
    let shown = until("the pump is locked", || {
        Some(field.site.json(&["device", "show", "pump-1"])).filter(|shown| shown["locked"] == true)
    });
    assert_eq!(shown["online"], json!(false), "{shown}");
    field.broker.publish("pump-1/status", "online", true).unwrap();
    let (_, job) = field.heard.wait(2);
    field.answer("pump-1/done", "pump-1", &job, json!({}));
    field.wait_for(&task, "succeeded");
    field.broker.publish("pump-1/status", "offline", true).unwrap();
    until("it is offline", || {
        (field.site.json(&["device", "show", "pump-1"])["online"] == false).then_some(())
    });
}

#[test]
fn nothing_is_lost_when_the_server_and_the_broker_die() {
    let Some(mut field) = Field::start() else { return };
    field.broker.publish("pump-1/status", "online", true).unwrap();
    let task = field.start_task(r#"{"pump":1,"litres":5}"#);
    let (_, job) = field.heard.wait(0);
    // The server dies while the device works, and the answer comes before it is back.
    let mut server = field.site.children.remove(0);
    server.kill().unwrap();
    server.wait().unwrap();
    field.answer("valve-1/done", "valve-1", &job, json!({}));
    let (store, config) = (field.store.clone(), field.config.clone());
    field.site.restart_with(&store, &[("WINDLASS_CONFIG", &config)]);
    let answered = field.heard.wait(1);
    assert_eq!(answered.0, "pump-1/run");
    // The broker dies while the device works. Its disk has all that it confirmed.
    field.broker.save().unwrap();
    field.broker.kill().unwrap();
    field.broker.restart().unwrap();
    until("the answer counts", || {
        field.answer("pump-1/done", "pump-1", &answered.1, json!({}));
        let shown = field.site.json(&["task", "show", &task]);
        (shown["status"] == "succeeded").then_some(())
    });
}

/// And it comes back without what it had stored.
#[test]
fn a_broker_that_is_away_raises_an_alarm_and_its_jobs_wait() {
    let Some(field) = Field::start() else { return };
    field.broker.kill().unwrap();
    let task = field.start_task(r#"{"pump":1,"litres":5}"#);
    let alarms = || field.site.json(&["alarm", "list"])["items"].as_array().unwrap().clone();
    let alarm =
        until("the alarm is raised", || alarms().into_iter().find(|alarm| alarm["kind"] == "broker_away"));
    assert!(alarm["message"].as_str().unwrap().contains("devices cannot be reached"), "{alarm}");
    field.broker.wipe().unwrap();
    field.broker.restart().unwrap();
    until("the job is published", || (field.jobs("valve-1") == ["published"]).then_some(()));
    let job = json!({ "uuid": task });
    field.answer("valve-1/done", "valve-1", &job, json!({}));
    field.broker.publish("pump-1/status", "online", true).unwrap();
    until("the next job is published", || (field.jobs("pump-1") == ["published"]).then_some(()));
    field.answer("pump-1/done", "pump-1", &job, json!({}));
    field.wait_for(&task, "succeeded");
    until("the alarm is resolved", || alarms().is_empty().then_some(()));
}

#[test]
fn a_device_that_nobody_declared_fails_its_step_and_says_so() {
    let Some(field) = Field::start() else { return };
    field
        .site
        .apply("flow: unknown\nsteps: [{ name: go, device: robot-9, topic: robot-9/run, timeout: 5s }]\n");
    let started = field.site.json(&["task", "start", "unknown"]);
    let task = field.wait_for(started["id"].as_str().unwrap(), "failed");
    assert!(task.to_string().contains("robot-9: declare it with `windlass device apply`"), "{task}");
    let refused = field.site.run(&["device", "show", "robot-9"]);
    assert!(text(&refused.stderr).contains("robot-9"), "{refused:?}");
}

const TRIGGERS: &str = "
trigger: alarm
mqtt: { topic: site/+/alarm, id: string(payload.id) }
flows:
  - flow: react
    map: { site: 'levels[1]', text: payload.text, topic: topic }
  - flow: note
---
trigger: button
mqtt: { topic: 'button/#' }
flows: [{ flow: note, map: { payload: payload } }]
";

#[test]
fn a_message_of_a_device_fires_a_trigger_and_one_with_a_known_id_starts_nothing() {
    let Some(mut field) = Field::start() else { return };
    field.wait_until_heard();
    field.site.apply("flow: react\nsteps: [{ name: one, run: nobody.serves }]\n");
    field.site.apply("flow: note\nsteps: [{ name: one, run: nobody.serves }]\n");
    let file = field.site.path("triggers.yaml");
    fs::write(&file, TRIGGERS).unwrap();
    let applied = field.site.run(&["trigger", "apply", &file]);
    assert!(applied.status.success(), "{applied:?}");
    assert!(!text(&applied.stdout).contains("note:"), "the server has devices: {applied:?}");
    let tasks = |site: &Site, trigger: &str, count: usize| {
        until(&format!("{trigger} has started {count} tasks"), || {
            let tasks = site.json(&["task", "list", "--label", &format!("trigger={trigger}")]);
            let tasks = tasks["items"].as_array().unwrap().clone();
            (tasks.len() == count).then_some(tasks)
        })
    };
    let history = |site: &Site, count: usize| {
        until(&format!("the history has {count} entries"), || {
            let history = site.json(&["trigger", "history", "alarm"]);
            let entries = history["items"].as_array().unwrap().clone();
            (entries.len() >= count).then_some(entries)
        })
    };
    // It fires when it is published, and not when the broker sends it again to a new subscriber.
    field.broker.publish("button/kept", "kept", true).unwrap();
    assert_eq!(tasks(&field.site, "button", 1)[0]["params"], json!({ "payload": "kept" }));
    let alarm = r#"{"id":1,"text":"fire"}"#;
    field.broker.publish("site/7/alarm", alarm, false).unwrap();
    let started = tasks(&field.site, "alarm", 2);
    let react = started.iter().find(|task| task["flow"] == "react").unwrap();
    assert_eq!(react["params"], json!({ "site": "7", "text": "fire", "topic": "site/7/alarm" }));
    let note = started.iter().find(|task| task["flow"] == "note").unwrap();
    assert_eq!(note["params"], json!({ "id": 1, "text": "fire" }), "without `map` the payload");
    // The server commits the entry after the tasks. A server that is killed in between never writes the entry. The entry also
    // shows that the server has acknowledged the message of `button`, which would fire again: this trigger computes no id.
    history(&field.site, 1);
    // The server dies; what comes meanwhile fires as well, and what came before does not fire again.
    let mut server = field.site.children.remove(0);
    server.kill().unwrap();
    server.wait().unwrap();
    field.broker.publish("site/7/alarm", alarm, false).unwrap();
    field.broker.publish("site/8/alarm", r#"{"id":2,"text":"smoke"}"#, false).unwrap();
    field.broker.publish("button/a", "pressed", false).unwrap();
    let (store, config) = (field.store.clone(), field.config.clone());
    field.site.restart_with(&store, &[("WINDLASS_CONFIG", &config)]);
    let buttons = tasks(&field.site, "button", 2);
    assert!(buttons.iter().any(|task| task["params"] == json!({ "payload": "pressed" })), "{buttons:?}");
    tasks(&field.site, "alarm", 4);
    // A message whose id cannot be computed starts nothing, and says so.
    field.broker.publish("site/9/alarm", "no JSON", false).unwrap();
    let raised = until("an alarm is raised", || {
        let alarms = field.site.json(&["alarm", "list"])["items"].as_array().unwrap().clone();
        alarms.into_iter().find(|alarm| alarm["kind"] == "trigger_failed")
    });
    let message = raised["message"].as_str().unwrap();
    assert!(
        message.contains("for a message on site/9/alarm: ") && message.contains("`mqtt.id`"),
        "{message}"
    );
    let entries = history(&field.site, 3);
    assert_eq!(entries.len(), 3, "{entries:?}");
    assert!(entries.iter().all(|entry| entry["cause"] == "message"), "{entries:?}");
    // A paused one hears nothing.
    field.site.json(&["trigger", "pause", "button"]);
    field.broker.publish("button/a", "again", false).unwrap();
    field.broker.publish("site/7/alarm", r#"{"id":3,"text":"done"}"#, false).unwrap();
    tasks(&field.site, "alarm", 6);
    tasks(&field.site, "button", 2);
}

#[test]
fn a_trigger_that_its_own_flow_fires_is_refused_and_one_without_devices_says_so() {
    let Some(field) = Field::start() else { return };
    let looping = "trigger: t\nmqtt: { topic: +/run }\nflows: [{ flow: irrigate }]\n";
    let apply = |site: &Site, yaml: &str| {
        let file = site.path("trigger.yaml");
        fs::write(&file, yaml).unwrap();
        site.run(&["trigger", "apply", &file])
    };
    let refused = apply(&field.site, looping);
    let said = text(&refused.stderr);
    assert!(!refused.status.success() && said.contains("the step open of flow irrigate"), "{said}");
    let refused = apply(&field.site, &looping.replace("+/run", "a/#/b"));
    assert!(text(&refused.stderr).contains("`mqtt.topic`: the filter"), "{refused:?}");
    let without = Site::start();
    let applied = apply(&without, &looping.replace("+/run", "a").replace("irrigate", "lonely"));
    assert!(applied.status.success(), "{applied:?}");
    for said in [text(&applied.stdout), text(&without.run(&["trigger", "show", "t"]).stdout)] {
        assert!(said.contains("this server has no section [devices]"), "{said}");
    }
}

#[test]
fn a_job_that_times_out_is_in_the_log_and_a_device_that_echoes_needs_no_settle_time() {
    let Some(field) = Field::start() else { return };
    let task = field.start_flow("water", r#"{"device":"echo-1"}"#);
    let (_, job) = field.heard.wait(0);
    assert_eq!(job["attempt"], 1);
    let (_, again) = field.heard.wait(1);
    assert_eq!((&again["uuid"], &again["attempt"]), (&json!(task), &json!(2)));
    field.answer("echo-1/done", "echo-1", &job, json!({}));
    field.answer("echo-1/done", "echo-1", &job, json!({ "attempt": 1 }));
    until("two answers are ignored", || {
        (field.jobs("echo-1").iter().filter(|what| *what == "ignored").count() == 2).then_some(())
    });
    field.answer("echo-1/done", "echo-1", &job, json!({ "attempt": 2 }));
    field.wait_for(&task, "succeeded");
    assert_eq!(
        field.jobs("echo-1"),
        ["published", "timed_out", "published", "ignored", "ignored", "succeeded"]
    );
    let log = text(&field.site.run(&["device", "log", "echo-1"]).stdout);
    for said in
        ["no answer came within 6s; next attempt in ", "`attempt`, which the device returns", "echo-1/run"]
    {
        assert!(log.contains(said), "{said}: {log}");
    }
    // One that does not echo is still locked, for its answer may come late.
    field.start_flow("water", r#"{"device":"valve-1"}"#);
    let (_, job) = field.heard.wait(2);
    let waits = field.start_flow("water", r#"{"device":"valve-1"}"#);
    let why = until("the other task waits for the device", || {
        let why = field.site.json(&["task", "why", &waits]);
        (why["reason"] == "lock").then_some(why)
    });
    assert_eq!(why["data"]["device"], json!({ "name": "valve-1", "online": true, "since": null }), "{why}");
    assert_eq!(why["data"]["holder"]["task"], job["uuid"], "{why}");
    // After an answer that is late by the timeout, but not by the settle time.
    thread::sleep(Duration::from_millis(6_500));
    field.answer("valve-1/done", "valve-1", &job, json!({}));
    field.heard.wait(3);
    assert_eq!(field.jobs("valve-1")[..2], ["published", "succeeded"]);
}

#[test]
fn what_operators_do_to_a_task_is_in_the_log_of_its_device() {
    let Some(field) = Field::start() else { return };
    let task = field.start_task(r#"{"pump":1,"litres":5}"#);
    field.heard.wait(0);
    let run = |arguments: &[&str]| {
        let done = field.site.run(arguments);
        assert!(done.status.success(), "{done:?}");
    };
    run(&["task", "pause", &task]);
    run(&["task", "resume", &task]);
    run(&["device", "unlock", "valve-1", "--reason", "it leaks"]);
    until("the task hears of it", || field.jobs("valve-1").contains(&"unlocked".to_owned()).then_some(()));
    run(&["task", "cancel", &task]);
    assert_eq!(field.jobs("valve-1"), ["published", "task_paused", "unlocked", "task_rolling_back"]);
    let log = text(&field.site.run(&["device", "log", "valve-1"]).stdout);
    assert!(log.contains("it leaks"), "{log}");
    assert!(log.contains("task rolling back"), "{log}");
}

#[test]
fn a_device_that_is_locked_for_too_long_and_one_that_flaps_raise_alarms() {
    let Some(field) = Field::start_with("locked_too_long = \"1s\"") else { return };
    let task = field.start_task(r#"{"pump":1,"litres":5}"#);
    let (_, job) = field.heard.wait(0);
    let alarm = field.wait_for_alarm("device_locked_too_long.valve-1", "raised");
    assert_eq!((&alarm["task"], &alarm["step"]), (&json!(task), &json!("open")), "{alarm}");
    assert!(alarm["message"].as_str().unwrap().contains("windlass device unlock valve-1"), "{alarm}");
    field.answer("valve-1/done", "valve-1", &job, json!({}));
    field.wait_for_alarm("device_locked_too_long.valve-1", "resolved");
    // The pump was never heard, so its job waits with the lock of the device.
    let alarm = field.wait_for_alarm("device_locked_too_long.pump-1", "raised");
    assert!(alarm["message"].as_str().unwrap().contains("the device is offline"), "{alarm}");
    let why = field.site.json(&["task", "why", &task]);
    assert_eq!(why["reason"], "offered", "{why}");
    let sentence = "waits for the device pump-1, which is offline: it was never heard";
    assert!(why["sentence"].as_str().unwrap().contains(sentence), "{why}");
    for change in 0..12 {
        let status = ["online", "offline"][change % 2];
        field.broker.publish("pump-1/status", status, true).unwrap();
    }
    let alarm = field.wait_for_alarm("device_flapping.pump-1", "raised");
    assert!(alarm["message"].as_str().unwrap().contains("more than 10 times within 1m"), "{alarm}");
}

#[test]
fn devices_are_learned_from_their_status_where_that_is_allowed() {
    const LEARN: &str = "
        learn_max = 2
        learn = [{ topic = \"fleet/+/status\", labels = { site = \"nord\" } }]";
    let Some(field) = Field::start_with(LEARN) else { return };
    let task = field.start_flow("water", r#"{"device":"cart-1"}"#);
    field.wait_for(&task, "failed");
    for (device, status) in
        [("cart-1", "offline"), ("cart-2", "hello"), ("a b", "online"), ("valve-1", "online")]
    {
        field.broker.publish(&format!("fleet/{device}/status"), status, true).unwrap();
    }
    field.broker.publish("fleet/cart-1/status", "online", true).unwrap();
    let shown = until("the device is learned", || {
        let shown = field.site.run(&["device", "show", "cart-1", "-o", "json"]);
        serde_json::from_slice::<Value>(&shown.stdout).ok().filter(|device| device["online"] == true)
    });
    assert_eq!((&shown["learned"], &shown["labels"]), (&json!(true), &json!({ "site": "nord" })), "{shown}");
    assert_eq!(shown["presence"]["topic"], "fleet/cart-1/status");
    let table = text(&field.site.run(&["device", "show", "cart-1"]).stdout);
    assert!(table.contains("learned from its status"), "{table}");
    field.start_flow("water", r#"{"device":"cart-1"}"#);
    assert_eq!(field.heard.wait(0).0, "cart-1/run");
    // It says that it is offline, as any other device does.
    field.broker.publish("fleet/cart-1/status", "offline", true).unwrap();
    until("it is offline", || {
        (field.site.json(&["device", "show", "cart-1"])["online"] == false).then_some(())
    });
    // No more than the limit are learned; a declared one does not count.
    let file = field.site.path("cart.yaml");
    fs::write(&file, "name: cart-1\nlabels: { site: sued }\npresence: { topic: fleet/cart-1/status }\n")
        .unwrap();
    let applied = field.site.run(&["device", "apply", &file]);
    assert_eq!(text(&applied.stdout), "0 created, 1 updated, 0 unchanged\n", "{applied:?}");
    let shown = field.site.json(&["device", "show", "cart-1"]);
    assert_eq!((shown["learned"].as_bool(), &shown["labels"]["site"]), (None, &json!("sued")), "{shown}");
    for cart in 2..6 {
        field.broker.publish(&format!("fleet/cart-{cart}/status"), "online", true).unwrap();
    }
    let learned = || -> Vec<String> {
        let devices = field.site.json(&["device", "list"]);
        let learned = devices["items"].as_array().unwrap().iter().filter(|device| device["learned"] == true);
        learned.map(|device| device["name"].as_str().unwrap().to_owned()).collect()
    };
    until("two are learned", || (learned().len() == 2).then_some(()));
    // One of them makes room for the next, which is heard in the order of messages.
    let first = learned().remove(0);
    field.broker.publish(&format!("fleet/{first}/status"), "offline", true).unwrap();
    assert_eq!(learned().len(), 2);
    let removed = field.site.run(&["device", "remove", &first]);
    assert!(removed.status.success(), "{removed:?}");
    until("another one is learned", || {
        let learned = learned();
        (learned.len() == 2 && !learned.contains(&first)).then_some(())
    });
    let valve = field.site.json(&["device", "show", "valve-1"]);
    assert_eq!(valve["presence"], Value::Null, "a declared device stays as it was declared: {valve}");
}

#[test]
fn messages_are_found_by_device_and_topic() {
    let Some(field) = Field::start() else { return };
    field.wait_until_heard();
    field.broker.publish("pump-1/status", "online", true).unwrap();
    field.broker.publish("site/nord/alarm", "too hot", false).unwrap();
    let found = |arguments: &[&str]| -> Vec<Value> {
        let found = field.site.json(&[&["device", "messages"], arguments].concat());
        found["items"].as_array().unwrap().clone()
    };
    let alarm = until("the message is kept", || found(&["--topic", "site/+/alarm"]).pop());
    assert_eq!((&alarm["payload"], &alarm["device"]), (&json!("too hot"), &json!("unknown")), "{alarm}");
    let of_pump = found(&["--device", "pump-1", "--since", "1h"]);
    assert_eq!(of_pump.len(), 1, "{of_pump:?}");
    assert_eq!(of_pump[0]["topic"], "pump-1/status");
    assert!(found(&["--device", "pump-1", "--topic", "site/#"]).is_empty());
    let table = text(&field.site.run(&["device", "messages", "--topic", "site/#"]).stdout);
    assert!(table.contains("site/nord/alarm") && table.contains("too hot"), "{table}");
    let refused = field.site.run(&["device", "messages", "--topic", "site/#/x"]);
    assert!(text(&refused.stderr).contains("as the last level"), "{refused:?}");
}

#[test]
fn classic_callers_see_a_task_of_jobs_as_a_queue() {
    let Some(field) = Field::start() else { return };
    let classic = |task: &str| -> Value {
        let answer = field.site.get(&format!("/v1/tasks/{task}?view=classic"));
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap()
    };
    let task = field.start_task(r#"{"pump":1,"litres":5}"#);
    let (_, job) = field.heard.wait(0);
    let jobs = json!([
        { "name": "open", "connectionName": "valve-1", "apiTopic": "valve-1/run", "args": { "position": 100 } },
        { "name": "pump", "connectionName": "pump-1", "apiTopic": "pump-1/run", "args": { "litres": 5 } },
    ]);
    assert_eq!(classic(&task), json!({ "status": "running", "jobPointer": 0, "jobs": jobs }));
    let waits = field.start_task(r#"{"pump":1,"litres":5}"#);
    until("the other one waits", || {
        (classic(&waits) == json!({ "status": "pending", "jobPointer": 0, "jobs": jobs })).then_some(())
    });
    field.broker.publish("pump-1/status", "online", true).unwrap();
    field.answer("valve-1/done", "valve-1", &job, json!({}));
    let pumps = until("the pump gets its job", || {
        let heard = field.heard.0.lock().unwrap();
        heard.iter().find(|(topic, _)| topic == "pump-1/run").cloned()
    });
    assert_eq!(classic(&task), json!({ "status": "running", "jobPointer": 1, "jobs": jobs }));
    field.answer("pump-1/done", "pump-1", &pumps.1, json!({}));
    field.wait_for(&task, "succeeded");
    assert_eq!(classic(&task), json!({ "status": "completed", "jobPointer": 1, "jobs": jobs }));
    // The task of another kind is as before.
    field.site.apply("flow: other\nsteps: [{ name: one, run: nobody.serves }]\n");
    let other = field.start_flow("other", "{}");
    assert!(classic(&other)["TaskId"].is_string());
}

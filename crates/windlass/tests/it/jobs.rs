//! The job API, as its clients and workers use it.

use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use windlass_testkit::{Kafka, Redis, free_port};

use crate::site::{Site, store, text, until, until_within};

/// How long all jobs of a test may take, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

const FLOWS: &str = r"
flow: job
steps:
  - { name: run, run: jobs.run, timeout: 1h, retry: 3 }
---
flow: local
steps:
  - { name: run, run: m.echo, rollback: m.echo }
---
flow: waits
steps:
  - { name: run, run: nobody.serves }
---
flow: fails
steps:
  - { name: run, run: m.fail }
";

/// A server with the job API at an address of its own.
struct Jobs {
    site: Site,
    address: String,
}

impl Jobs {
    /// `more` is put behind the flow of all jobs in the configuration.
    fn start(more: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let address = format!("127.0.0.1:{}", free_port().unwrap());
        let config = format!("[asyncwork]\nlisten = \"{address}\"\n{more}");
        std::fs::write(dir.path().join("windlass.toml"), config).unwrap();
        let (place, file) = (store(dir.path()), dir.path().join("windlass.toml").display().to_string());
        let site = Site::open(dir, &place, &[("WINDLASS_CONFIG", &file)]);
        site.apply(FLOWS);
        Self { site, address }
    }

    /// Kills the server, and starts another one on its store.
    fn kill_and_restart(&mut self) {
        let mut server = self.site.children.remove(0);
        server.kill().unwrap();
        server.wait().unwrap();
        let (place, file) = (store(self.site.dir.path()), self.site.path("windlass.toml"));
        self.site.restart_with(&place, &[("WINDLASS_CONFIG", &file)]);
    }

    fn create(&self, body: &str) -> (u16, Value) {
        self.call("POST", "", body, &[])
    }

    /// Creates a job, which must be accepted; returns its id.
    fn accepted(&self, body: &str) -> String {
        let (status, answer) = self.create(body);
        assert_eq!(status, 202, "{answer}");
        answer["jobId"].as_str().unwrap().to_owned()
    }

    fn get(&self, path: &str, id: &str) -> (u16, Value) {
        self.call("GET", &format!("{path}?jobId={id}"), "", &[])
    }

    fn state(&self, id: &str) -> Value {
        self.get("/state", id).1["state"].clone()
    }

    fn wait_for(&self, id: &str, state: &str) -> Value {
        until_within(PATIENCE, "a job gets its state", || {
            let answer = self.get("/state", id).1;
            (answer["state"] == state).then_some(answer)
        })
    }

    fn call(&self, method: &str, path: &str, body: &str, headers: &[(&str, &str)]) -> (u16, Value) {
        try_call(&self.address, method, &format!("/api/asyncwork{path}"), body, headers).unwrap()
    }
}

/// Sends a request. Returns its status, and its body, which must be JSON.
fn try_call(
    address: &str,
    method: &str,
    path: &str,
    body: &str,
    headers: &[(&str, &str)],
) -> std::io::Result<(u16, Value)> {
    let mut stream = TcpStream::connect(address)?;
    let more: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nConnection: close\r\n\
         Content-Length: {length}\r\n{more}\r\n{body}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let cut_off = || std::io::Error::other(format!("the answer was cut off: {answer:?}"));
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(cut_off)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(cut_off)?;
    let body = serde_json::from_str(body).map_err(|_| cut_off())?;
    Ok((status, body))
}

#[test]
fn a_job_is_polled_until_its_result_is_there() {
    let mut jobs =
        Jobs::start("flow = \"local\"\n[asyncwork.flows]\n\"wait for it\" = \"waits\"\nbad = \"fails\"\n");
    let (status, accepted) = jobs.create(r#"{"name":"any","value":{"n":12345678901234567890123}}"#);
    assert_eq!((status, &accepted["retryAfter"]), (202, &json!(1000)), "{accepted}");
    let id = accepted["jobId"].as_str().unwrap();
    assert_eq!(accepted["stateEndpoint"], format!("/api/asyncwork/state?jobId={id}"));
    assert_eq!(accepted.as_object().unwrap().len(), 3);
    assert_eq!(jobs.get("/state", id), (200, json!({ "jobId": id, "state": "NEW" })));
    assert_eq!(jobs.get("/result", id).0, 404, "there is none yet");
    let waiting = jobs.accepted(r#"{"jobName":"wait for it","jobValue":"x"}"#);
    let failing = jobs.accepted(r#"{"name":"bad"}"#);
    jobs.site.start_worker();
    let state = jobs.wait_for(id, "FINISH");
    assert_eq!(state["resultEndpoint"], format!("/api/asyncwork/result?jobId={id}"));
    let (status, result) = jobs.get("/result", id);
    assert_eq!((status, &result["result"]), (200, &json!({ "ran": "run" })), "{result}");
    let (status, job) = jobs.get("", id);
    assert_eq!((status, &job["state"], &job["name"]), (200, &json!("FINISH"), &json!("any")), "{job}");
    assert!(job["executionTime"].is_u64(), "{job}");
    for time in [&job["createdTime"], &job["updatedTime"], &result["finishedTime"]] {
        let time = time.as_str().unwrap();
        assert!(time.len() == 23 && time.as_bytes()[10] == b' ' && time.as_bytes()[19] == b'.', "{time}");
    }
    let (_, failed) = (jobs.wait_for(&failing, "FAILURE"), jobs.get("/result", &failing));
    assert_eq!(failed.0, 404, "{}", failed.1);
    assert_eq!(jobs.state(&waiting), "NEW", "the flow of its name has no worker");
    // The digits of the value are as the client sent them.
    let answer = jobs.site.get(&format!("/api/asyncwork?jobId={id}"));
    assert!(
        answer.contains(r#""value":{"n":12345678901234567890123}"#),
        "the server's own address serves it too: {answer}"
    );
}

#[test]
fn a_job_is_paused_resumed_and_cancelled() {
    let mut jobs = Jobs::start("flow = \"local\"\n");
    let (paused, cancelled) = (jobs.accepted(r#"{"name":"a"}"#), jobs.accepted(r#"{"name":"b"}"#));
    let tell =
        |jobs: &Jobs, id: &str, command: &str| jobs.call("POST", &format!("/{command}?jobId={id}"), "", &[]);
    assert_eq!(tell(&jobs, &paused, "pause"), (200, json!({ "jobId": paused, "state": "PAUSE" })));
    assert_eq!(tell(&jobs, &cancelled, "cancel").1["state"], "CANCEL");
    jobs.site.start_worker();
    let other = jobs.accepted(r#"{"name":"c"}"#);
    jobs.wait_for(&other, "FINISH");
    assert_eq!(jobs.state(&paused), "PAUSE", "no worker starts it");
    tell(&jobs, &paused, "resume");
    jobs.wait_for(&paused, "FINISH");
    let (status, refused) = tell(&jobs, &paused, "pause");
    assert_eq!(status, 409, "it has ended: {refused}");
}

#[test]
fn every_error_has_a_body_that_says_what_to_do() {
    let jobs = Jobs::start("flow = \"local\"\n[asyncwork.flows]\nlost = \"no-such-flow\"\n");
    let task = jobs.site.start_task("waits");
    let unknown = "00000000-0000-0000-0000-000000000007";
    let long = format!(r#"{{"name":"{}"}}"#, "n".repeat(1_025));
    let deep = format!(r#"{{"name":"a","value":{}1{}}}"#, "[".repeat(1_000), "]".repeat(1_000));
    let large = format!(r#"{{"name":"a","value":"{}"}}"#, "v".repeat(1 << 20));
    for (method, path, body, status, says) in [
        ("GET", "/state", "", 400, "no \\\"jobId\\\""),
        ("GET", "/state?jobId=7", "", 400, "must be a UUID"),
        ("GET", "?jobId=", "", 400, "must be a UUID"),
        ("GET", "/state?id=7", "", 400, "this operation has jobId"),
        ("GET", &format!("?jobId={unknown}"), "", 404, "there is no job"),
        ("GET", &format!("/state?jobId={unknown}"), "", 404, "there is no job"),
        ("GET", &format!("/result?jobId={unknown}"), "", 404, "there is no job"),
        ("POST", &format!("/cancel?jobId={unknown}"), "", 404, "there is no job"),
        // A task that did not start as a job is none.
        ("GET", &format!("?jobId={task}"), "", 404, "there is no job"),
        ("POST", &format!("/cancel?jobId={task}"), "", 404, "there is no job"),
        ("POST", "", "{", 400, "malformed"),
        ("POST", "", "{}", 400, "name"),
        ("POST", "", r#"{"name":""}"#, 400, "use 1 to 1024"),
        ("POST", "", r#"{"name":7}"#, 400, "string"),
        ("POST", "", r#"{"name":"a","jobName":"b"}"#, 400, "duplicate"),
        ("POST", "", &long, 400, "use 1 to 1024"),
        ("POST", "", &deep, 400, "64 levels"),
        ("POST", "", &large, 413, "1 MiB"),
        ("POST", "", r#"{"name":"lost"}"#, 404, "no-such-flow"),
        ("DELETE", &format!("?jobId={unknown}"), "", 405, "DELETE"),
        ("GET", "/nothing", "", 404, "there is nothing"),
    ] {
        let (found, problem) = jobs.call(method, path, body, &[]);
        assert_eq!(found, status, "{method} {path}: {problem}");
        assert!(problem.to_string().contains(says), "{method} {path}: {problem}");
    }
    // The address of the job API serves nothing else.
    let (status, problem) = try_call(&jobs.address, "GET", "/v1/tasks", "", &[]).unwrap();
    assert_eq!(status, 404, "{problem}");
    let none = Site::start();
    let answer = none.get(&format!("/api/asyncwork/state?jobId={unknown}"));
    assert!(answer.starts_with("HTTP/1.1 404") && answer.contains("[asyncwork]"), "{answer}");
}

#[test]
fn a_repeated_request_with_its_key_gets_the_same_job() {
    let jobs = Jobs::start("flow = \"local\"\n");
    let create = |body: &str| jobs.call("POST", "", body, &[("Idempotency-Key", "order-7")]);
    let first = create(r#"{"name":"a","value":1}"#);
    assert_eq!(first.0, 202, "{}", first.1);
    assert_eq!(create(r#"{"name":"a","value":1}"#), first);
    assert_eq!(create(r#"{"name":"a","value":2}"#).0, 422);
}

#[test]
fn a_job_without_a_confirmed_event_is_not_accepted() {
    let Some(redis) = Redis::start().unwrap() else { return };
    let queue = format!("flow = \"job\"\n[queues.jobs]\nbroker = \"{}\"\nmessage = \"job\"\n", redis.url());
    let jobs = Jobs::start(&queue);
    let id = jobs.accepted(r#"{"name":"a","value":[1]}"#);
    // The broker has confirmed the event before the job was accepted.
    let entry = redis.ask(&["XRANGE", "jobs", "-", "+"]).unwrap();
    assert!(entry.contains(&format!(r#"{{"jobId":"{id}","name":"a","value":[1]}}"#)), "{entry}");
    assert_eq!(jobs.state(&id), "NEW", "nobody has started it");
    redis.kill().unwrap();
    let (status, refused) = jobs.create(r#"{"name":"refused"}"#);
    assert_eq!(
        (status, refused["type"].as_str().unwrap()),
        (503, "https://windlass.invalid/problems/event-not-confirmed")
    );
    let status = || jobs.site.json(&["task", "list", "--label", "job=refused"])["items"][0]["status"].clone();
    until("the refused job is cancelled", || (status() == "cancelled").then_some(()));
    let with_key = |name: &str| {
        jobs.call("POST", "", &format!(r#"{{"name":"{name}"}}"#), &[("Idempotency-Key", "order-7")])
    };
    assert_eq!(with_key("kept").0, 503);
    redis.restart().unwrap();
    let (status, kept) = with_key("kept");
    assert_eq!(status, 202, "{kept}");
    let kept = kept["jobId"].as_str().unwrap();
    until_within(
        PATIENCE,
        "the event of the job with a key is sent, and that of the cancelled one is not",
        || {
            let entries = redis.ask(&["XRANGE", "jobs", "-", "+"]).ok()?;
            assert!(!entries.contains("refused"), "{entries}");
            entries.contains(kept).then_some(())
        },
    );
}

#[test]
fn a_job_may_be_accepted_before_its_event_is_sent() {
    let Some(redis) = Redis::start().unwrap() else { return };
    let queue = format!(
        "flow = \"job\"\nconfirm = \"store\"\n[queues.jobs]\nbroker = \"{}\"\nmessage = \"job\"\n",
        redis.url()
    );
    let jobs = Jobs::start(&queue);
    redis.kill().unwrap();
    let id = jobs.accepted(r#"{"name":"a"}"#);
    assert_eq!(jobs.state(&id), "NEW");
    redis.restart().unwrap();
    until("its event follows", || {
        redis.ask(&["XRANGE", "jobs", "-", "+"]).ok().filter(|entries| entries.contains(&id))
    });
}

/// 1,000 jobs with a worker that knows Kafka alone. The server and Kafka are killed while jobs come in.
#[test]
fn no_accepted_job_is_lost_when_the_server_and_kafka_are_killed() {
    const JOBS: usize = 1_000;
    const CLIENTS: usize = 8;
    let Some(kafka) = Kafka::start().unwrap() else { return };
    let queue = format!("flow = \"job\"\n[queues.jobs]\nbroker = \"{}\"\nmessage = \"job\"\n", kafka.url());
    let mut jobs = Jobs::start(&queue);
    let worker = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/job-api/worker.py");
    let mut python = Command::new("/usr/bin/python3");
    if !python.args(["-c", "import confluent_kafka"]).output().unwrap().status.success() {
        assert!(
            std::env::var_os("CI").is_none_or(|value| value.is_empty()),
            "python3-confluent-kafka is missing"
        );
        eprintln!("skipped: python3-confluent-kafka is missing");
        return;
    }
    // A worker whose Kafka is killed may end with an error: its supervisor starts it again. It ends with this test.
    let script =
        "while kill -0 \"$PPID\" && ! test -e stop; do /usr/bin/python3 \"$WORKER\"; sleep 0.5; done";
    let supervisor = Command::new("sh")
        .args(["-c", script])
        .current_dir(jobs.site.dir.path())
        .env("BROKER", kafka.url())
        .env("WORKER", worker)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let supervisor = Supervisor(supervisor);
    let accepted = Mutex::new(BTreeMap::new());
    let next = AtomicUsize::new(0);
    let address = jobs.address.clone();
    let client = || {
        loop {
            let number = next.fetch_add(1, Ordering::SeqCst);
            if number >= JOBS {
                return;
            }
            // Every other client repeats a request that failed under the same key, the rest without one.
            let key = format!("job-{number}");
            let headers: &[(&str, &str)] =
                if number.is_multiple_of(2) { &[("Idempotency-Key", &key)] } else { &[] };
            let body = format!(r#"{{"name":"double","value":{number}}}"#);
            let id = until_within(PATIENCE, "a job is accepted", || {
                match try_call(&address, "POST", "/api/asyncwork", &body, headers) {
                    Ok((202, answer)) => Some(answer["jobId"].as_str()?.to_owned()),
                    Ok((503, _)) | Err(_) => None,
                    Ok(other) => panic!("{other:?}"),
                }
            });
            accepted.lock().unwrap().insert(id, number);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(client);
        }
        let reached = |count: usize| {
            until_within(PATIENCE, "jobs are accepted", || {
                (accepted.lock().unwrap().len() >= count).then_some(())
            });
        };
        reached(JOBS * 3 / 10);
        jobs.kill_and_restart();
        reached(JOBS * 6 / 10);
        kafka.kill().unwrap();
        kafka.restart().unwrap();
    });
    let accepted = accepted.into_inner().unwrap();
    assert_eq!(accepted.len(), JOBS);
    for (id, number) in &accepted {
        jobs.wait_for(id, "FINISH");
        let (status, result) = jobs.get("/result", id);
        assert_eq!((status, &result["result"]["doubled"]), (200, &json!(number * 2)), "{result}");
        let history = jobs.site.get(&format!("/v1/tasks/{id}/events"));
        let accepted_results = history.matches("step.succeeded").count();
        assert_eq!(accepted_results, 1, "{history}");
    }
    drop(supervisor);
}

/// The supervisor of a worker, with its worker.
struct Supervisor(std::process::Child);

impl Drop for Supervisor {
    fn drop(&mut self) {
        let id = self.0.id().to_string();
        // The worker first would be started again.
        let workers = Command::new("pgrep").args(["-P", &id]).output().unwrap();
        self.0.kill().unwrap();
        self.0.wait().unwrap();
        for worker in text(&workers.stdout).split_whitespace() {
            Command::new("kill").arg(worker).status().unwrap();
        }
    }
}

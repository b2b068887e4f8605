//! Webhooks out, with real receivers on loopback.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::Value;
use sha2::Sha256;
use windlass_testkit::Postgres;

use super::site::{FLOWS, Site, store, until, until_within};

/// Retries begin after 5 s.
const PATIENCE: Duration = Duration::from_secs(60);

/// The context of the request that starts a task.
const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

const SECRET: &str = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const NEW_SECRET: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";

/// A request that a receiver got.
#[derive(Debug, Clone)]
struct Received {
    path: String,
    headers: BTreeMap<String, String>,
    body: String,
}

impl Received {
    fn document(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    fn kind(&self) -> String {
        self.document()["type"].as_str().unwrap().to_owned()
    }

    fn id(&self) -> &str {
        &self.headers["webhook-id"]
    }

    /// Whether one of its signatures is by this secret.
    fn is_signed_with(&self, secret: &str) -> bool {
        let mut mac = Hmac::<Sha256>::new_from_slice(&STANDARD.decode(secret).unwrap()).unwrap();
        let signed = format!("{}.{}.{}", self.id(), self.headers["webhook-timestamp"], self.body);
        mac.update(signed.as_bytes());
        let signature = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
        self.headers["webhook-signature"].split(' ').any(|given| given == signature)
    }
}

type Answer = dyn Fn(usize, &Received) -> String + Send + Sync;

/// Receives requests, and answers the n-th one by a function.
struct Receiver {
    port: u16,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Receiver {
    fn start(answer: Box<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let received = Arc::new(Mutex::new(Vec::new()));
        let kept = received.clone();
        let answer: Arc<Answer> = answer.into();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (kept, answer) = (kept.clone(), answer.clone());
                std::thread::spawn(move || serve(stream, &kept, &*answer));
            }
        });
        Self { port, received }
    }

    /// One that accepts everything.
    fn content() -> Self {
        Self::start(Box::new(|_, _| "204 No Content".to_owned()))
    }

    fn all(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    fn kinds(&self) -> Vec<String> {
        let mut kinds: Vec<String> = self.all().iter().map(Received::kind).collect();
        kinds.sort();
        kinds
    }
}

fn serve(stream: TcpStream, received: &Mutex<Vec<Received>>, answer: &Answer) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let path = line.split(' ').nth(1).unwrap().to_owned();
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            let Some((name, value)) = line.trim().split_once(": ") else { break };
            headers.insert(name.to_lowercase(), value.to_owned());
        }
        let mut body = vec![0; headers["content-length"].parse().unwrap()];
        reader.read_exact(&mut body).unwrap();
        let request = Received { path, headers, body: String::from_utf8(body).unwrap() };
        let n = {
            let mut received = received.lock().unwrap();
            received.push(request.clone());
            received.len()
        };
        let status = answer(n, &request);
        let written = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
        if written.is_err() {
            return;
        }
    }
}

/// The variables of a webhook. `more` are keys beside its name, URL and secret.
fn variables(index: usize, name: &str, url: &str, more: &[(&str, &str)]) -> Vec<(String, String)> {
    let secret = format!("whsec_{SECRET} whsec_{NEW_SECRET}");
    let keys = [("NAME", name), ("URL", url), ("SECRET", &secret)];
    let keys = keys.iter().chain(more);
    keys.map(|(key, value)| (format!("WINDLASS_WEBHOOK__{index}__{key}"), (*value).to_owned())).collect()
}

const LOOPBACK: (&str, &str) = ("NETWORKS", r#"["127.0.0.0/8", "::1/128"]"#);

fn open(url: &str, variables: &[(String, String)]) -> Site {
    let dir = tempfile::tempdir().unwrap();
    let url = if url.is_empty() { store(dir.path()) } else { url.to_owned() };
    Site::open(dir, &url, &borrowed(variables))
}

fn borrowed(variables: &[(String, String)]) -> Vec<(&str, &str)> {
    variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

fn deliveries(site: &Site, webhook: &str, status: &str) -> u64 {
    let label = format!("webhook={webhook}");
    let counts = site.json(&["task", "list", "--label", &label, "--status", status, "--count"]);
    counts["total"].as_u64().unwrap()
}

#[test]
fn ends_of_tasks_and_alarms_reach_those_who_want_them_signed_and_once() {
    let (all, some, failed) = (Receiver::content(), Receiver::content(), Receiver::content());
    let url = |receiver: &Receiver, path: &str| format!("http://localhost:{}{path}", receiver.port);
    let mut settings = variables(0, "all", &url(&all, "/hook?a=b"), &[LOOPBACK]);
    let wanted =
        [LOOPBACK, ("EVENTS", r#"["task.succeeded", "task.rolled_back"]"#), ("FLOWS", r#"["good"]"#)];
    settings.extend(variables(1, "some", &url(&some, "/"), &wanted));
    let wanted = [LOOPBACK, ("EVENTS", r#"["alarm.raised"]"#), ("ALARMS", r#"["rollback_failed"]"#)];
    settings.extend(variables(2, "failed", &url(&failed, "/"), &wanted));
    let mut site = open("", &settings);
    site.apply(FLOWS);
    site.start_worker();
    let answer = site.post("/v1/tasks", &format!(r#"{{"flow":"good","traceparent":"{TRACEPARENT}"}}"#));
    let good = answer.split_once(r#""id":""#).unwrap().1.split('"').next().unwrap().to_owned();
    for flow in ["bad", "held", "stuck", "good"] {
        site.start_task(flow);
    }
    let expected = ["alarm.raised", "alarm.raised", "task.rolled_back", "task.succeeded", "task.succeeded"];
    until_within(PATIENCE, "all is received", || (all.kinds() == expected).then_some(()));
    until("some are received", || (some.kinds() == ["task.succeeded", "task.succeeded"]).then_some(()));
    until("all are reported", || {
        let delivered = |webhook| deliveries(&site, webhook, "succeeded");
        ((delivered("all"), delivered("some"), delivered("failed")) == (5, 2, 1)).then_some(())
    });
    let alarms = failed.all();
    assert_eq!(alarms[0].document()["data"]["alarm"]["kind"], "rollback_failed");
    assert_eq!(alarms.len(), 1);
    for received in all.all() {
        assert!(received.is_signed_with(SECRET) && received.is_signed_with(NEW_SECRET), "{received:?}");
        assert_eq!(
            (received.path.as_str(), &*received.headers["content-type"]),
            ("/hook?a=b", "application/json")
        );
    }
    let all_received = all.all();
    let ids: BTreeSet<&str> = all_received.iter().map(Received::id).collect();
    assert_eq!(ids.len(), 5);
    let of_good = all_received.iter().find(|received| received.document()["data"]["task"] == good);
    let of_good = of_good.expect("the end of the task");
    assert_eq!(of_good.headers["traceparent"], TRACEPARENT);
    let of_good = of_good.document();
    assert_eq!((&of_good["data"]["flow"], &of_good["data"]["status"]), (&"good".into(), &"succeeded".into()));
    let alarm =
        all_received.iter().map(Received::document).find(|document| document["type"] == "alarm.raised");
    let alarm = alarm.expect("an alarm");
    assert_eq!((&alarm["data"]["raised"], &alarm["data"]["alarm"]["state"]), (&1.into(), &"raised".into()));
}

#[test]
fn what_a_receiver_refuses_is_sent_again_and_what_it_wants_no_more_is_kept_as_failed() {
    // The first answer is a failure, the second asks for time.
    let answer = |n: usize, request: &Received| match (request.path.as_str(), n) {
        ("/gone", _) => "410 Gone".to_owned(),
        (_, 1) => "500 Internal Server Error".to_owned(),
        (_, 2) => "503 Service Unavailable\r\nRetry-After: 1".to_owned(),
        _ => "200 OK".to_owned(),
    };
    let (moody, gone) = (Receiver::start(Box::new(answer)), Receiver::start(Box::new(answer)));
    let only = ("EVENTS", r#"["task.succeeded"]"#);
    let url = |receiver: &Receiver, path: &str| format!("http://127.0.0.1:{}{path}", receiver.port);
    let mut settings = variables(0, "moody", &url(&moody, "/"), &[LOOPBACK, only]);
    settings.extend(variables(1, "gone", &url(&gone, "/gone"), &[LOOPBACK, only]));
    let mut site = open("", &settings);
    site.apply(FLOWS);
    site.start_worker();
    site.start_task_and_wait("good");
    until_within(PATIENCE, "it is sent three times", || {
        (deliveries(&site, "moody", "succeeded") == 1).then_some(())
    });
    let received = moody.all();
    assert_eq!(received.len(), 3);
    assert!(
        received.iter().all(|request| request.id() == received[0].id() && request.body == received[0].body)
    );
    until("the other one fails", || (deliveries(&site, "gone", "failed") == 1).then_some(()));
    assert_eq!(gone.all().len(), 1);
    // A failed delivery is run again like every task.
    let failed = site.json(&["task", "list", "--label", "webhook=gone"]);
    let id = failed["items"][0]["id"].as_str().unwrap_or_else(|| panic!("{failed}"));
    let shown = site.json(&["task", "show", id]);
    assert!(shown["message"].as_str().unwrap().contains("wants no more messages"), "{shown}");
    let output = site.run(&["task", "rerun", id]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    until("it is sent again", || (gone.all().len() == 2).then_some(()));
    assert_eq!(gone.all()[0].id(), gone.all()[1].id());
}

#[test]
fn what_the_server_has_not_made_is_not_sent_and_no_worker_takes_deliveries() {
    let receiver = Receiver::content();
    let url = format!("http://127.0.0.1:{}/", receiver.port);
    // The others fail, which would be reported as well.
    let only = ("EVENTS", r#"["task.succeeded"]"#);
    let mut site = open("", &variables(0, "mine", &url, &[LOOPBACK, only]));
    site.apply(FLOWS);
    site.start_worker();
    site.start_task_and_wait("good");
    until_within(PATIENCE, "the real one is sent", || (receiver.all().len() == 1).then_some(()));
    let task = site.json(&["task", "list", "--label", "webhook=mine"])["items"][0].clone();
    // Somebody else starts one: with the seal of a real one and another body, and without a seal.
    let mut forged = task["params"].clone();
    forged["body"]["data"]["status"] = "failed".into();
    for params in [forged, serde_json::json!({ "id": "x", "body": { "type": "task.failed" } })] {
        let steps = serde_json::json!([{ "name": "deliver", "run": "webhook-mine.deliver" }]);
        let answer =
            site.post("/v1/tasks", &serde_json::json!({ "steps": steps, "params": params }).to_string());
        let id = answer.split_once(r#""id":""#).unwrap().1.split('"').next().unwrap().to_owned();
        let message = until("it fails", || {
            let shown = site.json(&["task", "show", &id]);
            (shown["status"] == "failed").then(|| shown["message"].to_string())
        });
        assert!(message.contains("the parameters are not those of a delivery"), "{message}");
    }
    assert_eq!(receiver.all().len(), 1);
    let session = "6c0e4f7e-4d0e-4f43-9a3d-0f4c0a7f1c11";
    let call = serde_json::json!({
        "protocol": 1, "session": session, "seq": 1, "modules": [{ "name": "webhook-mine", "free": 1 }],
    });
    let answer = site.post("/v1/worker/exchange", &call.to_string());
    assert!(
        answer.starts_with("HTTP/1.1 400") && answer.contains("delivers to this webhook by itself"),
        "{answer}"
    );
}

#[test]
fn no_request_leaves_the_permitted_networks() {
    let inside = Receiver::content();
    let target = format!("http://127.0.0.1:{}/", inside.port);
    let redirect =
        Receiver::start(Box::new(move |_, _| format!("307 Temporary Redirect\r\nLocation: {target}")));
    // A name of which DNS says that it is this machine; and a receiver that sends its callers on.
    let only = ("EVENTS", r#"["task.succeeded"]"#);
    let named = format!("http://localhost:{}/", inside.port);
    let elsewhere = ("NETWORKS", r#"["10.0.0.0/8"]"#);
    let mut settings = variables(0, "named", &named, &[elsewhere, only]);
    let redirecting = format!("http://127.0.0.1:{}/", redirect.port);
    settings.extend(variables(1, "redirecting", &redirecting, &[LOOPBACK, only]));
    let mut site = open("", &settings);
    site.apply(FLOWS);
    site.start_worker();
    site.start_task_and_wait("good");
    let reason = |webhook: &str| {
        let label = format!("webhook={webhook}");
        until_within(PATIENCE, "the reason is shown", || {
            let tasks = site.json(&["task", "list", "--label", &label]);
            let why = site.json(&["task", "why", tasks["items"][0]["id"].as_str()?]).to_string();
            why.contains("retry").then_some(why)
        })
    };
    let why = reason("named");
    assert!(why.contains("which is not of the public internet"), "{why}");
    let why = reason("redirecting");
    assert!(why.contains("redirects are not followed"), "{why}");
    assert!(!redirect.all().is_empty());
    assert!(inside.all().is_empty(), "{:?}", inside.all());
}

/// The end is decided by servers that die; each receiver gets it nevertheless, and deduplicates it by its id.
#[test]
fn no_message_is_lost_when_servers_die() {
    let Some(postgres) = Postgres::start().unwrap() else { return };
    let database = postgres.database().unwrap();
    let receiver = Receiver::content();
    let only = ("EVENTS", r#"["task.succeeded"]"#);
    let url = format!("http://127.0.0.1:{}/", receiver.port);
    let settings = variables(0, "all", &url, &[LOOPBACK, only]);
    let mut sites = [open(&database.url(), &settings), open(&database.url(), &settings)];
    sites[0].apply(FLOWS);
    sites[1].start_worker();
    let mut tasks = BTreeSet::new();
    for round in 0..4 {
        for _ in 0..10 {
            tasks.insert(sites[1].start_task("good"));
        }
        let victim = &mut sites[0];
        let mut server = victim.children.remove(0);
        server.kill().unwrap();
        server.wait().unwrap();
        if round < 3 {
            victim.restart_with(&database.url(), &borrowed(&settings));
        }
    }
    let ended = |received: &[Received]| -> BTreeSet<String> {
        let task = |request: &Received| request.document()["data"]["task"].as_str().unwrap().to_owned();
        received.iter().map(task).collect()
    };
    until_within(PATIENCE * 2, "all is received", || (ended(&receiver.all()) == tasks).then_some(()));
    let received = receiver.all();
    let ids: BTreeSet<&str> = received.iter().map(Received::id).collect();
    assert_eq!(ids.len(), tasks.len(), "each task has one message, however often that was sent");
    until_within(PATIENCE * 2, "all are reported", || {
        (deliveries(&sites[1], "all", "succeeded") == tasks.len() as u64).then_some(())
    });
}

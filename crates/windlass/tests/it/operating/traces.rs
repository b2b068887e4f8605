//! Traces: a collector gets a span of each submit, task and attempt, and commands and receivers of webhooks get the context.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader},
    process::{Child, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::Value;
use windlass_testkit::{collector, free_port};

use crate::site::{Site, script, store, text, until, until_within};

/// The server asks a collector that did not answer again after up to 30 s.
const PATIENCE: Duration = Duration::from_secs(60);

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

const FLOWS: &str = "
flow: copy
steps:
  - { name: inner, run: t.note }
---
flow: ship
steps:
  - { name: pack, run: t.note, rollback: t.note }
  - { name: sub, run: flow.copy }
  - { name: each, each: boxes, run: t.note }
  - { name: send, run: t.fail, retry: { max: 1, base: 10ms } }
---
flow: waits
steps:
  - { name: go, wait: go }
  - { name: pack, run: t.note }
";

/// A span as the collector received it.
#[derive(Debug, Clone)]
struct Span {
    name: String,
    trace: String,
    id: String,
    parent: String,
    status: i64,
    attributes: BTreeMap<String, String>,
}

/// The collector of OpenTelemetry, which keeps what it gets.
struct Collector {
    child: Child,
    spans: Arc<Mutex<Vec<Span>>>,
}

impl Collector {
    /// `None` if the test is skipped.
    fn start(port: u16) -> Option<Self> {
        let mut command = collector().unwrap()?;
        let mut child = command.arg(format!("127.0.0.1:{port}")).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "READY");
        let spans = Arc::new(Mutex::new(Vec::new()));
        let kept = spans.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let document: Value = serde_json::from_str(&line).unwrap();
                kept.lock().unwrap().extend(spans_of(&document));
            }
        });
        Some(Self { child, spans })
    }

    fn all(&self) -> Vec<Span> {
        self.spans.lock().unwrap().clone()
    }

    /// The spans of a trace, once there are this many.
    fn trace(&self, trace: &str, count: usize) -> Vec<Span> {
        let of_trace = || self.all().into_iter().filter(|span| span.trace == trace).collect::<Vec<_>>();
        let what = format!("{count} spans of {trace}");
        until_within(PATIENCE, &what, || (of_trace().len() >= count).then_some(()));
        let spans = of_trace();
        assert_eq!(spans.len(), count, "{spans:#?}");
        spans
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn spans_of(document: &Value) -> Vec<Span> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let string = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut spans = Vec::new();
    for resource in list(&document["resourceSpans"]) {
        let service = attributes(&resource["resource"]);
        assert_eq!(service["service.name"], "windlass", "{resource}");
        for span in list(&resource["scopeSpans"]).iter().flat_map(|scope| list(&scope["spans"])) {
            let time = |name: &str| span[name].as_str().unwrap().parse::<u64>().unwrap();
            assert!(time("startTimeUnixNano") <= time("endTimeUnixNano"), "{span}");
            spans.push(Span {
                name: string(&span["name"]),
                trace: string(&span["traceId"]),
                id: string(&span["spanId"]),
                parent: string(&span["parentSpanId"]),
                status: span["status"]["code"].as_i64().unwrap_or_default(),
                attributes: attributes(&span),
            });
        }
    }
    spans
}

fn attributes(of: &Value) -> BTreeMap<String, String> {
    let attributes = of["attributes"].as_array().unwrap().iter();
    let text =
        |value: &Value| value["stringValue"].as_str().or(value["intValue"].as_str()).unwrap().to_owned();
    attributes.map(|each| (each["key"].as_str().unwrap().to_owned(), text(&each["value"]))).collect()
}

/// A server that sends traces to this port, and a worker whose commands note the context that they get.
fn site(port: u16, more: &[(&str, &str)]) -> Site {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let endpoint = format!("http://127.0.0.1:{port}");
    let variables = [&[("WINDLASS_TRACES__ENDPOINT", endpoint.as_str())], more].concat();
    let mut site = Site::open(dir, &store, &variables);
    site.apply(FLOWS);
    let module = site.dir.path().join("modules/t");
    fs::create_dir_all(&module).unwrap();
    script(&module.join("note"), "echo \"$WINDLASS_TASK/$WINDLASS_STEP $TRACEPARENT\" >> ../../noted");
    script(&module.join("fail"), "echo 'no lorry' >&2; exit 7");
    site.start_worker();
    site
}

fn noted(site: &Site) -> Vec<String> {
    fs::read_to_string(site.path("noted")).unwrap_or_default().lines().map(str::to_owned).collect()
}

#[test]
fn a_trace_goes_from_the_caller_through_steps_children_and_items_to_the_commands() {
    let port = free_port().unwrap();
    let Some(collector) = Collector::start(port) else { return };
    let site = site(port, &[]);
    let body =
        format!(r#"{{"flow":"ship","params":{{"boxes":[1,2]}},"traceparent":"00-{TRACE}-{CALLER}-01"}}"#);
    let answer = site.post("/v1/tasks", &body);
    let id = answer.split_once("\"id\":\"").unwrap().1.split('"').next().unwrap().to_owned();
    until("it is rolled back", || {
        (site.json(&["task", "show", &id])["status"] == "rolled_back").then_some(())
    });

    // submit, task, pack, child task with its step, two items, send twice, the rollback of pack.
    let spans = collector.trace(TRACE, 10);
    let named = |name: &str| spans.iter().filter(|span| span.name == name).cloned().collect::<Vec<_>>();
    let one = |name: &str| <[Span; 1]>::try_from(named(name)).unwrap()[0].clone();
    let (submit, task, child) = (one("submit ship"), one("task ship"), one("task copy"));
    assert_eq!((submit.parent.as_str(), &task.parent, &child.parent), (CALLER, &submit.id, &task.id));
    assert_eq!((task.status, child.status), (2, 1));
    assert_eq!(task.attributes["windlass.task.id"], id);
    assert_eq!(task.attributes["windlass.task.outcome"], "rolled_back");
    let attempts: Vec<Span> = named("t.note").into_iter().chain(named("t.fail")).collect();
    let mut found: Vec<_> = attempts
        .iter()
        .map(|span| {
            let attribute = |name: &str| span.attributes.get(name).map_or("-", String::as_str);
            let under = if span.parent == task.id {
                "ship"
            } else {
                assert_eq!(span.parent, child.id);
                "copy"
            };
            format!(
                "{under} {} {} {} {} {} {}",
                attribute("windlass.step"),
                attribute("windlass.direction"),
                attribute("windlass.item"),
                attribute("windlass.attempt"),
                attribute("windlass.attempt.outcome"),
                span.status
            )
        })
        .collect();
    found.sort();
    let expected = [
        "copy inner forward - 1 succeeded 1",
        "ship each forward 0 1 succeeded 1",
        "ship each forward 1 1 succeeded 1",
        "ship pack forward - 1 succeeded 1",
        "ship pack rollback - 1 succeeded 1",
        "ship send forward - 1 failed 2",
        "ship send forward - 2 failed 2",
    ];
    assert_eq!(found, expected);

    // Each command had the span of its attempt as its parent.
    let ids: Vec<String> = named("t.note").iter().map(|span| format!("00-{TRACE}-{}-01", span.id)).collect();
    let mut contexts: Vec<String> =
        noted(&site).iter().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect();
    let mut expected = ids;
    contexts.sort();
    expected.sort();
    assert_eq!(contexts, expected);

    // A command that starts a task continues its trace.
    let other = site.run_in_trace(&contexts[0], &["task", "start", "copy"]);
    let spans = collector.trace(TRACE, 13);
    let submit = spans.iter().find(|span| span.name == "submit copy").unwrap();
    assert_eq!(
        (&submit.attributes["windlass.task.id"], &submit.parent),
        (&other, &contexts[0][36..52].to_owned())
    );
}

#[test]
fn a_trace_outlives_the_server_and_a_collector_that_is_away() {
    let port = free_port().unwrap();
    if collector().unwrap().is_none() {
        return;
    }
    let mut site = site(port, &[]);
    // With no context of a caller, the trace begins with the task and has its id.
    let id = site.start_task("waits");
    let trace = id.replace('-', "");
    let (store, endpoint) = (store(site.dir.path()), format!("http://127.0.0.1:{port}"));
    let url = site.url.clone();
    let mut server = site.children.remove(0);
    server.kill().unwrap();
    server.wait().unwrap();
    site.restart_with(&store, &[("WINDLASS_TRACES__ENDPOINT", &endpoint)]);
    assert_ne!(site.url, url);
    site.start_worker();
    assert_eq!(site.run(&["task", "signal", &id, "go"]).status.code(), Some(0));
    until("it has ended", || (site.json(&["task", "show", &id])["status"] == "succeeded").then_some(()));

    let collector = Collector::start(port).unwrap();
    // The span of the submit was lost with the server.
    let spans = collector.trace(&trace, 2);
    let task = spans.iter().find(|span| span.name == "task waits").unwrap();
    let pack = spans.iter().find(|span| span.name == "t.note").unwrap();
    assert_eq!((&pack.parent, task.attributes["windlass.task.outcome"].as_str()), (&task.id, "succeeded"));
    assert_eq!(noted(&site), [format!("{id}/pack 00-{trace}-{}-01", pack.id)]);
    // The server counts after the answer of the collector.
    let metrics = until("the server counts both", || {
        Some(site.get("/metrics")).filter(|metrics| metrics.contains("windlass_spans_exported_total 2\n"))
    });
    assert!(metrics.contains("windlass_spans_dropped_total 0\n"), "{metrics}");
}

#[test]
fn what_is_not_sampled_is_not_sent_and_says_so_to_commands() {
    let port = free_port().unwrap();
    let Some(collector) = Collector::start(port) else { return };
    let site = site(port, &[("WINDLASS_TRACES__SAMPLE", "0")]);
    let own = site.start_task_and_wait("copy");
    let sampled = format!("00-{TRACE}-{CALLER}-01");
    let other = site.run_in_trace(&sampled, &["task", "start", "copy"]);
    let spans = collector.trace(TRACE, 3);
    assert!(spans.iter().all(|span| span.attributes["windlass.task.id"] == other), "{spans:#?}");
    assert_eq!(collector.all().len(), 3);
    let of_own = noted(&site).into_iter().find(|line| line.starts_with(&own)).unwrap();
    assert!(of_own.ends_with("-00") && of_own.contains(&own.replace('-', "")), "{of_own}");
}

impl Site {
    /// Starts a task with this context in the environment; gives its id.
    fn run_in_trace(&self, traceparent: &str, arguments: &[&str]) -> String {
        let mut command = std::process::Command::new(crate::site::PROGRAM);
        command.args(arguments).env("WINDLASS_SERVER", &self.url).env("TRACEPARENT", traceparent);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        text(&output.stdout).trim().to_owned()
    }
}

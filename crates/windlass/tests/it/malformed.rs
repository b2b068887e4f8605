//! Malformed input: 10,000 cases for each parser. Half of them are valid documents in which a few things were
//! changed, by their structure or by their bytes: that gets further into a parser than bytes by chance, which are
//! the other half. `fuzz/` gives the same functions to a fuzzer.

use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::Value;
use windlass::{
    flowfile::{self, Format},
    malformed,
};

const CASES: u32 = 10_000;

/// What means something to one parser or another.
const PIECES: [&str; 48] = [
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "'",
    "#",
    "/*",
    "//",
    "\\",
    "\\u",
    "\\ud800",
    "&a ",
    "*a",
    "<<: ",
    "!!int ",
    "!x ",
    "---\n",
    "- ",
    "? ",
    "\n",
    "\r\n",
    "\t",
    "\u{feff}",
    "é",
    "\0",
    "|",
    ">",
    "-1",
    "1e999",
    "null",
    "true",
    "=",
    "%",
    "%00",
    "%ff",
    "&",
    "+",
    "012",
    "18446744073709551616",
    "0.1ms",
    "-0.5ms",
    "1mo",
    "P1D",
    "{}",
    "~",
];

/// Values that a document may have where another one is expected, as JSON.
const VALUES: [&str; 24] = [
    "null",
    "true",
    "-1",
    "0",
    "1e999",
    "0.0001",
    "1.5",
    "18446744073709551616",
    "99999999999999999999999999",
    "\"\"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "\"\u{feff}\"",
    "\"../x\"",
    "\"a.b.c\"",
    "\"flow.x\"",
    "\"-1s\"",
    "\"99999999999999h\"",
    "[]",
    "{}",
    "[[]]",
    "{\"\":0}",
    "{\"a\":1,\"a\":2}",
    "{\"\\ud800\":1,\"b\":2}",
];

/// One change of the bytes of a document. Places are taken modulo its length.
#[derive(Debug, Clone)]
enum Edit {
    Insert(usize, Vec<u8>),
    Remove(usize, usize),
    Repeat(usize, usize),
    Cut(usize),
}

fn edit() -> impl Strategy<Value = Edit> {
    let place = || 0_usize..4_000;
    let piece = prop_oneof![
        6 => select(&PIECES[..]).prop_map(|piece| piece.as_bytes().to_vec()),
        2 => any::<u8>().prop_map(|byte| vec![byte]),
        1 => (select(&PIECES[..]), 50_usize..300).prop_map(|(piece, times)| piece.repeat(times).into_bytes()),
    ];
    prop_oneof![
        4 => (place(), piece).prop_map(|(at, piece)| Edit::Insert(at, piece)),
        2 => (place(), 1_usize..20).prop_map(|(at, length)| Edit::Remove(at, length)),
        2 => (place(), 1_usize..200).prop_map(|(at, length)| Edit::Repeat(at, length)),
        1 => place().prop_map(Edit::Cut),
    ]
}

fn edited(document: &[u8], edits: &[Edit]) -> Vec<u8> {
    let mut bytes = document.to_vec();
    for edit in edits {
        let place = |at: &usize| at % (bytes.len() + 1);
        match edit {
            Edit::Insert(at, piece) => {
                let at = place(at);
                bytes.splice(at..at, piece.iter().copied());
            }
            Edit::Remove(at, length) => {
                let at = place(at);
                bytes.drain(at..(at + length).min(bytes.len()));
            }
            Edit::Repeat(at, length) => {
                let at = place(at);
                let part = bytes[at..(at + length).min(bytes.len())].to_vec();
                bytes.splice(at..at, part);
            }
            Edit::Cut(at) => bytes.truncate(place(at)),
        }
    }
    bytes
}

/// One change of the structure of a JSON document, at its member or element of that number.
#[derive(Debug, Clone)]
enum Change {
    Replace(String),
    Rename(String),
    Drop,
    Twice,
    Nest(usize),
}

fn change() -> impl Strategy<Value = Change> {
    let long = || (10_usize..3_000).prop_map(|length| "k".repeat(length));
    prop_oneof![
        6 => select(&VALUES[..]).prop_map(|value| Change::Replace(value.to_owned())),
        1 => long().prop_map(|text| Change::Replace(format!("\"{text}\""))),
        1 => any::<String>().prop_map(|text| Change::Replace(Value::from(text).to_string())),
        1 => any::<f64>().prop_map(|number| Change::Replace(format!("{number:e}"))),
        2 => prop_oneof![any::<String>(), long()].prop_map(Change::Rename),
        1 => Just(Change::Drop),
        2 => Just(Change::Twice),
        1 => (2_usize..200).prop_map(Change::Nest),
    ]
}

/// Writes a document with one thing changed. `at` counts down to the thing.
fn write(value: &Value, at: &mut usize, change: &Change, out: &mut String) {
    let mut part = |name: Option<&str>, value: &Value, out: &mut String| {
        let here = *at == 0;
        *at = at.wrapping_sub(1);
        let head = |name: &str| name_of(name);
        let plain = |out: &mut String, name: Option<&str>, value: &str| {
            if !out.ends_with(['{', '[']) {
                out.push(',');
            }
            out.push_str(&name.map(head).unwrap_or_default());
            out.push_str(value);
        };
        let whole = value.to_string();
        match change {
            Change::Replace(other) if here => plain(out, name, other),
            Change::Rename(other) if here => plain(out, name.map(|_| other.as_str()), &whole),
            Change::Drop if here => {}
            Change::Twice if here => {
                plain(out, name, &whole);
                plain(out, name, &whole);
            }
            Change::Nest(depth) if here => {
                plain(out, name, &format!("{}{whole}{}", "[".repeat(*depth), "]".repeat(*depth)))
            }
            _ => {
                let mut inner = String::new();
                write(value, at, change, &mut inner);
                plain(out, name, &inner);
            }
        }
    };
    match value {
        Value::Object(members) => {
            out.push('{');
            members.iter().for_each(|(name, value)| part(Some(name), value, out));
            out.push('}');
        }
        Value::Array(elements) => {
            out.push('[');
            elements.iter().for_each(|value| part(None, value, out));
            out.push(']');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

fn name_of(name: &str) -> String {
    Value::from(name).to_string() + ":"
}

/// How many members and elements a document has.
fn parts(value: &Value) -> usize {
    match value {
        Value::Object(members) => members.values().map(|value| 1 + parts(value)).sum(),
        Value::Array(elements) => elements.iter().map(|value| 1 + parts(value)).sum(),
        _ => 0,
    }
}

/// One of the JSON documents with one thing changed, and sometimes some of its bytes.
fn changed(documents: Vec<Value>) -> impl Strategy<Value = Vec<u8>> {
    (select(documents), any::<prop::sample::Index>(), change(), vec(edit(), 0..2)).prop_map(
        |(document, at, change, edits)| {
            let mut text = String::new();
            write(&document, &mut at.index(parts(&document).max(1)), &change, &mut text);
            edited(text.as_bytes(), &edits)
        },
    )
}

/// Any bytes, and pieces that mean something.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 0..200),
        vec(prop_oneof![3 => select(&PIECES[..]).prop_map(str::to_owned), 1 => any::<String>()], 0..12)
            .prop_map(|pieces| pieces.concat().into_bytes()),
    ]
}

/// One of the texts with some of its bytes changed.
fn scrambled(texts: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    (select(texts), vec(edit(), 0..5)).prop_map(|(text, edits)| edited(text.as_bytes(), &edits))
}

const FLOWS: [&str; 5] = [
    include_str!("../flowfiles/create_instance.yaml"),
    include_str!("../flowfiles/everything.yaml"),
    include_str!("../flowfiles/create_instance.toml"),
    include_str!("../flowfiles/create_instance.json"),
    include_str!("../flowfiles/classic.json"),
];

fn flows() -> Vec<Value> {
    let flow = serde_json::json!({
        "flow": "f", "params": {"a": 1, "b": {"c": [1.5, "x"]}}, "retry_by": "engine", "on_failure": "hold",
        "steps": [
            {"name": "one", "run": "m.c", "timeout": "5m", "deadline": 90, "retry": 3, "after": []},
            {"name": "two", "run": "m.d", "retry": {"max": 3, "backoff": "fixed", "base": "1s", "cap": "1m"},
             "rollback": {"run": "m.u", "timeout": "1m", "retry": 2}, "after": ["one"]},
        ],
    });
    let classic = serde_json::json!({
        "f": [{"normal": {"module": "m", "command": "c", "timeout": 1800, "retry": 3},
               "rollback": {"module": "m", "command": "u", "timeout": 900, "retry": 3}}],
    });
    let graph = serde_json::json!({
        "flow": "g", "deadline": "1h", "unique": {"key": "a + b", "while": "finished", "for": "1h"}, "key": "a",
        "on_error": {"run": "m.e", "timeout": "1m", "start_within": "1m", "retry": 1},
        "steps": [
            {"name": "one", "wait": "s", "timeout": "5m", "when": "size > 3 && !has(params.dry_run)"},
            {"name": "two", "run": "m.d", "each": "list", "parallel": 3, "on_partial": "continue", "delay": "1s",
             "start_within": "1m", "key": "'k-' + a", "locks": ["l", {"expression": "'l-' + a"}]},
            {"name": "three", "run": "m.f", "after": ["one", "two"], "on_partial": 2},
            {"name": "four", "run": "flow.child", "timeout": "1h", "retry": 1},
        ],
    });
    vec![flow, classic, graph]
}

const DEVICES: [&str; 2] = [
    "devices:\n- name: a\n  labels: { site: nord }\n  presence: { topic: a/status, online: up }\n- name: b\n  presence: { keep_alive: 1m }\n",
    "[[devices]]\nname = \"a\"\nechoes_attempt = true\n[devices.presence]\nkeep_alive = 60\n",
];

fn devices() -> Vec<Value> {
    let topic = serde_json::json!({"topic": "a/status", "online": "up", "offline": "down"});
    let device = serde_json::json!({"name": "a", "labels": {"site": "nord"}, "presence": topic, "echoes_attempt": true});
    let other = serde_json::json!({"name": "b", "presence": {"keep_alive": "1m"}});
    vec![device.clone(), serde_json::json!([device, other]), serde_json::json!({"devices": [device, other]})]
}

fn exchanges() -> Vec<Value> {
    let report = |outcome: &str, name: &str, value: Value| {
        let mut report = serde_json::json!({"token": "t", "outcome": outcome, "logs": ["line"]});
        report[name] = value;
        report
    };
    vec![serde_json::json!({
        "protocol": 1, "session": "00000000-0000-4000-8000-000000000001", "seq": 7, "attached": true,
        "lease_ms": 5000, "worker": {"name": "w", "host": "h", "version": "1"}, "holding": ["t"],
        "modules": [{"name": "m", "commands": ["c"], "free": 3}], "free": 2, "wait_ms": 100,
        "reports": [
            report("succeeded", "result", serde_json::json!({"a": {"b": [1, 2.5]}, "c": "x"})),
            report("failed", "error", serde_json::json!({"message": "m", "code": 3, "retryable": false})),
            report("retry_later", "delay_ms", 5.into()),
            report("running", "progress", serde_json::json!({"value": 0.5, "message": "half"})),
        ],
    })]
}

const OUTPUTS: [&str; 4] = [
    "\0\u{10}{\"a\": 1, \"b\": [true, null]}\n",
    "\0\0",
    "\u{1}\u{2}line\nanother é line\r\n\n",
    "\u{7f}\u{7f}{\"a\":\"\\ud83d\\ude00\"}",
];

const ENTRIES: [&str; 3] = [
    r#"{"taskId":"7","taskTime":"1700000000","taskTaken":"false","taskType":"t","taskPara":{"n":1.10}}"#,
    r#"{"taskId":7,"taskTime":1.5e9,"taskTaken":false,"taskType":"t","taskPara":{},"x":[{}],"taskStatus":""}"#,
    r#"{"taskTaken":"false","taskTime":" 1 ","taskId":"","taskType":"","windlassTask":{"store":"store","task":"01900000-0000-7000-8000-000000000001","run":4294967295,"ended":"failed"}}"#,
];

const SIGNATURES: [&str; 3] = [
    r#"{"UUID":"task_1","Name":"add","RoutingKey":"machinery_tasks","ETA":"2030-01-31T08:00:00.123456789Z","GroupUUID":"group_1","GroupTaskCount":2,"Args":[{"Name":"","Type":"int64","Value":9223372036854775807},{"Type":"[]string","Value":["a","b"]}],"Headers":{"a":["b"]},"Priority":3,"Immutable":false,"RetryCount":2,"RetryTimeout":5,"OnSuccess":[{"UUID":"task_2","Name":"mul","Args":null}],"OnError":[],"ChordCallback":{"UUID":"chord_1","Name":"sum"}}"#,
    r#"{"uuid":"u","name":"n","args":[{"type":"float64","value":1.5},{"type":"[]byte","value":"AAEC"},{"Type":"bool","Value":true}]}"#,
    r#"{"UUID":"u","Name":"n","ETA":null,"Args":[{"Type":"uint8","Value":255},{"Type":"string","Value":"a\u0000b"}],"UnknownField":[[{}]]}"#,
];

const QUERIES: [&str; 4] = [
    "status=running,failed&flow=create&label=team:a&since=15m&until=2030-03-17T17:46:40Z&limit=100",
    "cursor=t01900000000070008000000000000001",
    "since=2030-03-17T18:46:40%2B01:00&label=a:b&label=c%3Ad",
    "limit=1000&status=stuck&status=paused",
];

const ARGUMENTS: [&str; 10] = [
    "size=3",
    "name=db 1",
    "list=[1, 2]",
    "{\"a\": 1, \"b\": {\"c\": null}}",
    "1h30m",
    "+15m",
    "250ms",
    "2d",
    "2030-03-17T17:46:40Z",
    "team=storage",
];

fn config() -> ProptestConfig {
    ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn flow_files(bytes in prop_oneof![3 => changed(flows()), 2 => scrambled(&FLOWS), 1 => noise()]) {
        malformed::flow_file(&bytes);
    }

    #[test]
    fn device_files(bytes in prop_oneof![3 => changed(devices()), 2 => scrambled(&DEVICES), 1 => noise()]) {
        malformed::device_file(&bytes);
    }

    #[test]
    fn exchange_bodies(bytes in prop_oneof![4 => changed(exchanges()), 1 => noise()]) {
        malformed::exchange(&bytes);
    }

    #[test]
    fn module_outputs(bytes in prop_oneof![scrambled(&OUTPUTS), noise()]) {
        malformed::module_output(&bytes);
    }

    #[test]
    fn entries_of_task_lists(bytes in prop_oneof![3 => scrambled(&ENTRIES), 1 => noise()]) {
        malformed::task_list_entry(&bytes);
    }

    #[test]
    fn signatures(bytes in prop_oneof![3 => scrambled(&SIGNATURES), 1 => noise()]) {
        malformed::signature(&bytes);
    }

    #[test]
    fn queries(bytes in prop_oneof![3 => scrambled(&QUERIES), 1 => noise()]) {
        malformed::query(&bytes);
    }

    #[test]
    fn command_lines(bytes in prop_oneof![3 => scrambled(&ARGUMENTS), 1 => noise()]) {
        malformed::command_line(&bytes);
    }
}

/// What is large or deep on purpose is refused, or taken, in bounded time and without overflowing a thread's stack.
#[test]
fn bombs_are_defused() {
    const BYTES: usize = 256 * 1024;

    let started = std::time::Instant::now();
    for piece in ["- ", "? ", "[", "{\"a\":", "{a: ", "&a [*a, ", "a.", "[[", "\"", "/*", "- a\n", "a: b\n"] {
        malformed::flow_file(piece.repeat(BYTES / piece.len()).as_bytes());
    }
    // Each alias doubles what the one before expands to.
    let doubling: String = (1..40).map(|n| format!("  a{n}: &a{n} [*a{}, *a{}]\n", n - 1, n - 1)).collect();
    malformed::flow_file(format!("flow: f\nparams:\n  a0: &a0 [x]\n{doubling}").as_bytes());
    // Paths below a long key take many times its length.
    let key = "k".repeat(BYTES);
    malformed::flow_file(
        format!("{{\"{key}\":{{\"x\":[{}1]}},\"steps\":1}}", "1,".repeat(20_000)).as_bytes(),
    );
    // Steps of the same command need names of their own.
    let step = r#"{"normal":{"module":"m","command":"c"}},"#;
    malformed::flow_file(format!("{{\"f\":[{}]}}", step.repeat(20_000)).as_bytes());
    let member = |n: usize| format!("\"k{n}\":1,");
    malformed::command_line(format!("{{{}\"z\":1}}", (0..50_000).map(member).collect::<String>()).as_bytes());
    malformed::exchange(format!("{{\"{key}\":1}}").as_bytes());
    malformed::exchange(format!("{{\"protocol\":1,\"reports\":[{}", "[".repeat(BYTES)).as_bytes());
    for piece in ["{\"OnSuccess\":[", "{\"ChordCallback\":", "{\"Args\":[", "[", "{\"a\":1,"] {
        malformed::signature(piece.repeat(BYTES / piece.len()).as_bytes());
    }
    let (open, close) = ("[".repeat(BYTES), "]".repeat(BYTES));
    for field in ["OnSuccess", "Args", "Headers", "Unknown"] {
        let nested = format!("{{\"UUID\":\"u\",\"Name\":\"n\",\"{field}\":{open}1{close}}}");
        malformed::signature(nested.as_bytes());
    }
    let took = started.elapsed();
    assert!(took.as_secs() < 60, "{took:?}");
}

/// What these tests have found: things that were taken and not kept as they were written.
#[test]
fn what_would_not_be_kept_is_refused() {
    let refusal = |params: &str, format: Format| {
        let text = match format {
            Format::Json => {
                format!(r#"{{"flow":"f","params":{params},"steps":[{{"name":"a","run":"m.c"}}]}}"#)
            }
            _ => format!("flow: f\nparams: {params}\nsteps: [{{name: a, run: m.c}}]\n"),
        };
        let read = flowfile::read(&text, format).and_then(|sources| flowfile::compile(&sources[0]));
        read.map_or_else(|error| error.message, |flow| format!("taken: {:?}", flow.params))
    };
    for (params, format, part) in [
        (r#"{1: a, "1": b}"#, Format::Yaml, "duplicate key \"1\""),
        ("{a: 123456789012345678901}", Format::Yaml, "must fit into 64 bits"),
        ("{a: &x -123456789012345678901, b: *x}", Format::Yaml, "must fit into 64 bits"),
        ("{zip: 012}", Format::Yaml, "begins with 0"),
        (r#"{"a":123456789012345678901}"#, Format::Json, "must fit into 64 bits"),
        (r#"{"\ud800":1}"#, Format::Json, "cannot read this JSON"),
    ] {
        let refusal = refusal(params, format);
        assert!(refusal.contains(part), "{params}: {refusal}");
    }
    for (params, kept) in [("{a: \"012\"}", r#"{"a":"012"}"#), ("{a: 1e30, b: 0}", r#"{"a":1e+30,"b":0}"#)] {
        let taken = refusal(params, Format::Yaml);
        assert_eq!(taken, format!("taken: Some({kept:?})"));
    }
}

//! Secrets: Windlass has references only, workers find the values, and nothing that is written contains them.

use std::{
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::Value;
use windlass_testkit::{collector, free_port};

use crate::site::{PROGRAM, Site, script, store, text, until, until_within};

/// Values with everything that is written differently in JSON and in logs.
const PASSWORD: &str = "hunter2-\"9f3c\\é";
const KEY: &str = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkq\n-----END PRIVATE KEY-----";
const TOKEN: &str = "tok-from-the-environment-77";

/// What must not be found anywhere: each is in one of the values, and is written the same in JSON.
const NEEDLES: [&str; 4] = ["hunter2", "9f3c", "MIIEvQIBADANBgkq", "from-the-environment"];

const FLOW: &str = "
flow: create
secret: [password, key]
steps:
  - { name: make, run: db.make, rollback: db.drop }
  - { name: use, run: db.use }
---
flow: waits
secret: [password]
steps:
  - { name: approved, wait: approved }
  - { name: make, run: db.make }
";

/// A server and a worker whose logs, at the finest level, are files of the folder; with these variables.
fn site(variables: &[(&str, &str)]) -> Site {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let mut site = Site::open(dir, &store, &[]);
    let mut first = site.children.remove(0);
    first.kill().and_then(|()| first.wait()).unwrap();
    let log = |name: &str| Stdio::from(File::create(site.dir.path().join(name)).unwrap());
    let server = Command::new(PROGRAM)
        .args(["server", "--listen", site.url.strip_prefix("http://").unwrap(), "--store", &store])
        .env("WINDLASS_LOG", "trace")
        .envs(variables.iter().copied())
        .stdout(Stdio::null())
        .stderr(log("server.log"))
        .spawn()
        .unwrap();
    let (modules, secrets) = (site.dir.path().join("modules/db"), secrets_of(&site));
    fs::create_dir_all(&modules).unwrap();
    fs::create_dir_all(&secrets).unwrap();
    fs::write(secrets.join("db"), format!("{PASSWORD}\n")).unwrap();
    fs::write(secrets.join("tls-key"), KEY).unwrap();
    // The input goes to a file outside of the searched folder.
    let body = format!(
        "cat > {got}; env | grep ^PASS_ >> {got}; cat {got} >&2; echo \"$WINDLASS_PARAMS\" >&2\n\
         cat {db} {key} >&2\n",
        got = secrets.join("got").display(),
        db = secrets.join("db").display(),
        key = secrets.join("tls-key").display(),
    );
    let result = r#"python3 - GOT <<'END'
import json, sys
params = json.loads(open(sys.argv[1]).readline())["params"]
print(json.dumps({"password": params["password"], "said": ["it is " + params["password"]], params["token"]: 1}))
END"#
        .replace("GOT", &secrets.join("got").display().to_string());
    script(&modules.join("make"), &format!("{body}{result}"));
    script(&modules.join("drop"), &body);
    script(&modules.join("use"), &format!("{body}tail -n 1 {} >&2; exit 7", secrets.join("db").display()));
    let worker = Command::new(PROGRAM)
        .args(["worker", "--server", &site.url, "--modules", &site.path("modules")])
        .args(["--secrets-env", "PASS_", "--secrets-dir"])
        .arg(&secrets)
        .env("PASS_API_TOKEN", TOKEN)
        .env("WINDLASS_LOG", "trace")
        .stderr(log("worker.log"))
        .spawn()
        .unwrap();
    site.children.extend([server, worker]);
    until("the server answers", || site.run(&["task", "list"]).status.success().then_some(()));
    site.apply(FLOW);
    site
}

/// The folder of the worker's secrets, which is not searched.
fn secrets_of(site: &Site) -> std::path::PathBuf {
    let name = format!("{}-secrets", site.dir.path().file_name().unwrap().display());
    site.dir.path().parent().unwrap().join(name)
}

/// The files of a folder in which one of these texts is.
fn files_with(folder: &Path, needles: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_with(&path, needles));
        } else {
            let bytes = fs::read(&path).unwrap();
            let has = |needle: &&&str| bytes.windows(needle.len()).any(|window| window == needle.as_bytes());
            found.extend(needles.iter().find(has).map(|needle| format!("{needle} in {}", path.display())));
        }
    }
    found
}

/// Everything that the server says about a task and about itself.
fn said(site: &Site, task: &str) -> String {
    let of_task = ["", "/events", "/logs", "/why", "/params"].map(|path| format!("/v1/tasks/{task}{path}"));
    let others = [
        "/metrics",
        "/v1/tasks",
        "/v1/alarms",
        "/v1/workers",
        "/v1/flows/create",
        "/v1/audit",
        "/v1/triggers",
    ];
    let paths = of_task.iter().map(String::as_str).chain(others);
    paths.map(|path| site.get(path)).collect()
}

#[test]
fn no_value_of_a_secret_is_written_anywhere() {
    let port = free_port().unwrap();
    let endpoint = format!("http://127.0.0.1:{port}");
    let Some(mut collector) = collector().unwrap() else { return };
    let mut site = site(&[("WINDLASS_TRACES__ENDPOINT", &endpoint)]);
    // What the collector gets is in the searched folder too.
    let spans = File::create(site.dir.path().join("spans")).unwrap();
    let collector = collector.arg(format!("127.0.0.1:{port}")).stdout(Stdio::from(spans)).spawn().unwrap();
    site.children.push(collector);
    let params = r#"{"password":"secret://db","key":"secret://tls-key","token":"secret://api-token","n":"marker-8841"}"#;
    let task = site.json(&["task", "start", "create", "--params", params, "--wait"]);
    assert_eq!(task["status"], "rolled_back", "{task}");
    let id = task["id"].as_str().unwrap();

    let got = fs::read_to_string(secrets_of(&site).join("got")).unwrap();
    let document: Value = serde_json::from_str(got.lines().next().unwrap()).unwrap();
    assert_eq!(document["direction"], "rollback");
    let params = &document["params"];
    assert_eq!((&params["password"], &params["key"]), (&Value::from(PASSWORD), &Value::from(KEY)));
    assert_eq!(params["token"], TOKEN);
    assert_eq!(document["result"]["said"][0], "it is secret://db", "a part of a text stays hidden");
    assert_eq!(document["result"]["password"], PASSWORD, "the whole text is a reference");
    assert_eq!(got.lines().count(), 1, "commands do not inherit the variables: {got}");

    let said = said(&site, id);
    for needle in NEEDLES {
        assert!(!said.contains(needle), "{needle} in {said}");
    }
    for present in
        ["secret://db", "secret://tls-key", "secret://api-token", "marker-8841", "it is secret://db"]
    {
        assert!(said.contains(present), "{present} is not in {said}");
    }
    let spans = || fs::read_to_string(site.dir.path().join("spans")).unwrap();
    until_within(Duration::from_secs(60), "the span of the task", || {
        spans().contains("task create").then_some(())
    });
    assert_eq!(files_with(site.dir.path(), &NEEDLES), [""; 0]);
    let with_marker = files_with(site.dir.path(), &["marker-8841"]);
    assert!(with_marker.iter().any(|file| file.contains("windlass.db")), "the search finds what is stored");
    fs::remove_dir_all(secrets_of(&site)).unwrap();
}

#[test]
fn a_plain_secret_is_refused_wherever_it_comes_from_and_not_stored() {
    let site = site(&[]);
    let plain = r#"{"password":"hunter2"}"#;
    let task = |flow: &str, params: &str| format!(r#"{{"flow":"{flow}","params":{params}}}"#);
    let started = site.post("/v1/tasks", &task("waits", r#"{"password":"secret://db"}"#));
    assert!(started.contains("202 Accepted"), "{started}");
    let (_, body) = started.split_once("\r\n\r\n").unwrap();
    let id = serde_json::from_str::<Value>(body).unwrap()["id"].as_str().unwrap().to_owned();
    for (path, body) in [
        ("/v1/tasks".to_owned(), task("create", plain)),
        ("/v1/tasks".to_owned(), task("create", r#"{"a":[{"key":"hunter2"}]}"#)),
        (format!("/v1/tasks/{id}/signals/approved"), format!(r#"{{"params":{plain}}}"#)),
    ] {
        let answer = site.post(&path, &body);
        assert!(answer.starts_with("HTTP/1.1 422") && answer.contains("plain-secret"), "{path}: {answer}");
        assert!(!answer.contains("hunter2"), "{answer}");
    }
    for (file, command, words) in [
        ("flow: f\nsecret: [a]\nparams: { a: hunter2 }\nsteps: [{ name: a, run: m.c }]\n", "apply", "3:"),
        ("flow: f\nsecret: [a, a]\nsteps: [{ name: a, run: m.c }]\n", "apply", "twice"),
        ("flow: f\nsecret: password\nsteps: [{ name: a, run: m.c }]\n", "apply", "a list of names"),
        ("flow: f\nsecret: ['a b']\nsteps: [{ name: a, run: m.c }]\n", "apply", "invalid name"),
    ] {
        let path = secrets_of(&site).join("flow.yaml");
        fs::write(&path, file).unwrap();
        let output = site.run(&["flow", command, &path.display().to_string()]);
        let error = text(&output.stderr);
        assert!(!output.status.success() && error.contains(words) && !error.contains("hunter2"), "{error}");
    }
    let path = secrets_of(&site).join("trigger.yaml");
    fs::write(
        &path,
        "trigger: hourly\nevery: 1h\nflows: [{ flow: create, params: { password: hunter2 } }]\n",
    )
    .unwrap();
    let output = site.run(&["trigger", "apply", &path.display().to_string()]);
    assert!(
        !output.status.success() && text(&output.stderr).contains("`password` is `secret`"),
        "{output:?}"
    );
    assert_eq!(files_with(site.dir.path(), &["hunter2"]), [""; 0]);
    fs::remove_dir_all(secrets_of(&site)).unwrap();
}

#[test]
fn a_worker_without_a_secret_says_where_it_looked() {
    let mut site = Site::with_worker();
    site.apply("flow: f\nsteps: [{ name: a, run: m.echo, retry: 0 }]\n");
    let start = ["task", "start", "f", "--params", r#"{"p":"secret://db"}"#, "--wait"];
    let task = site.json(&start);
    assert_eq!(task["status"], "failed");
    assert!(task.to_string().contains("this worker has no source of secrets"), "{task}");
    site.children.pop().map(|mut worker| worker.kill().and_then(|()| worker.wait()));
    for (options, words) in [
        (["--secrets-dir", "/no/such/folder"], "cannot read the folder of secrets /no/such/folder"),
        (["--secrets-env", ""], "every variable of the worker"),
        (["--secrets-env", "a-b"], "such as SECRET_"),
    ] {
        let modules = site.path("modules");
        let output = site.run(&[&["worker", "--modules", &modules], &options[..]].concat());
        let error = text(&output.stderr);
        assert!(!output.status.success() && error.contains(words), "{error}");
    }
}

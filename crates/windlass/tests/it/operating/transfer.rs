//! A store moves into another one: `windlass export` and `windlass import`.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    process::{Command, Output},
};

use serde_json::Value;
use tempfile::TempDir;
use windlass_testkit::{MariaDb, Postgres};

use crate::site::{PROGRAM, Site, text, until};

const FLOWS: &str = r"
flow: good
steps:
  - { name: one, run: m.echo }
  - { name: two, run: m.echo }
---
flow: bad
steps:
  - { name: one, run: m.echo, rollback: m.echo }
  - { name: two, run: m.fail, rollback: m.echo }
---
flow: stuck
steps:
  - { name: one, run: m.fail, rollback: m.fail }
---
flow: fan
steps:
  - { name: each, run: m.echo, each: items, parallel: 2 }
---
flow: lonely
steps:
  - { name: one, run: nobody.serves }
---
flow: locked
steps:
  - { name: one, run: nobody.serves, locks: [door] }
---
flow: only
unique: n
steps:
  - { name: one, run: nobody.serves }
";

fn transfer(command: &str, store: &str, file: &str) -> Output {
    Command::new(PROGRAM).args([command, "--store", store, file]).output().unwrap()
}

fn ends_well(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

fn refused(output: &Output, reason: &str) {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = text(&output.stderr);
    assert!(said.contains(reason), "{said:?} does not say {reason:?}");
}

fn ids(site: &Site) -> Vec<String> {
    let tasks = site.json(&["task", "list"]);
    tasks["items"].as_array().unwrap().iter().map(|task| task["id"].as_str().unwrap().to_owned()).collect()
}

/// What a server answers about all there is.
fn answers(site: &Site) -> Vec<Value> {
    let mut answers = vec![
        site.json(&["task", "list"]),
        site.json(&["flow", "list"]),
        site.json(&["flow", "show", "good@1"]),
        site.json(&["alarm", "list", "--all"]),
        site.json(&["limit", "list"]),
        site.json(&["lock", "list"]),
    ];
    let queues = site.json(&["queue", "list"]);
    let paused = queues["items"].as_array().unwrap().iter().filter(|queue| queue["paused"] == true);
    answers.extend(paused.map(|queue| queue["name"].clone()));
    for id in ids(site) {
        answers.push(site.json(&["task", "show", &id]));
        answers.push(site.json(&["task", "events", &id]));
        answers.push(site.json(&["task", "logs", &id]));
    }
    answers
}

/// A store with tasks in every state, without a server.
fn fill(url: &str) -> Vec<Value> {
    let mut site = Site::open(tempfile::tempdir().unwrap(), url, &[]);
    site.apply(FLOWS);
    site.apply("flow: good\nsteps:\n  - { name: one, run: m.echo }\n");
    site.start_worker();
    for (flow, code) in [("good", 0), ("bad", 10), ("stuck", 11)] {
        assert_eq!(site.run(&["task", "start", flow, "--key", flow, "--wait"]).status.code(), Some(code));
    }
    let fan = site.run(&["task", "start", "fan", "-p", "items=[1,2,3,4,5]", "--label", "a=b", "--wait"]);
    assert_eq!(fan.status.code(), Some(0), "{fan:?}");
    for _ in 0..2 {
        site.start_task("locked");
        // The second one is stood for by the first.
        ends_well(&site.run(&["task", "start", "only", "-p", "n=1"]));
    }
    let paused = site.start_task("lonely");
    ends_well(&site.run(&["task", "pause", &paused]));
    let cancelled = site.start_task("lonely");
    ends_well(&site.run(&["task", "cancel", &cancelled]));
    ends_well(&site.run(&["task", "start", "good", "--at", "2099-01-01T00:00:00Z", "--key", "later"]));
    ends_well(&site.run(&["queue", "pause", "nobody"]));
    ends_well(&site.run(&["limit", "set", "few", "--queue", "m", "--running", "3"]));
    until("the lock is given", || (site.json(&["lock", "list"])["items"][0]["waiting"] == 1).then_some(()));
    let before = answers(&site);
    stop(site);
    before
}

/// Stops the server in order.
fn stop(mut site: Site) {
    while let Some(mut child) = site.children.pop() {
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        child.wait().unwrap();
    }
}

/// What was waiting goes on, what was under a key is found again.
fn goes_on(mut site: Site) {
    let found = site.run(&["task", "start", "good", "--key", "good"]);
    let first = ids(&site).pop().expect("the first task");
    assert_eq!(text(&found.stdout).trim(), first);
    let only = ids(&site).len();
    ends_well(&site.run(&["task", "start", "only", "-p", "n=1"]));
    assert_eq!(ids(&site).len(), only, "an identical one counts as it");
    site.start_worker();
    let module = site.dir.path().join("modules/nobody");
    fs::create_dir_all(&module).unwrap();
    fs::copy(site.dir.path().join("modules/m/echo"), module.join("serves")).unwrap();
    // A worker knows the modules that were there when it began.
    let mut worker = site.children.pop().unwrap();
    worker.kill().unwrap();
    worker.wait().unwrap();
    site.start_worker();
    let tasks = site.json(&["task", "list"])["items"].as_array().unwrap().clone();
    ends_well(&site.run(&["queue", "resume", "nobody"]));
    let paused = tasks.iter().find(|task| task["status"] == "paused").expect("a paused task");
    ends_well(&site.run(&["task", "resume", paused["id"].as_str().unwrap()]));
    until("all that waited has ended", || {
        let tasks = site.json(&["task", "list"])["items"].as_array().unwrap().clone();
        let open = tasks.iter().filter(|task| task["ended_at"].is_null());
        let open: Vec<&str> = open.map(|task| task["status"].as_str().unwrap()).collect();
        (open.iter().all(|status| ["scheduled", "stuck"].contains(status))).then_some(())
    });
    // A task reports its end to its locks with messages.
    until("no lock is held", || {
        site.json(&["lock", "list"])["items"].as_array().unwrap().is_empty().then_some(())
    });
}

fn sqlite(dir: &TempDir, name: &str) -> String {
    format!("sqlite:{}", dir.path().join(name).display())
}

fn file(dir: &TempDir, name: &str) -> String {
    dir.path().join(name).display().to_string()
}

#[test]
fn a_store_moves_from_sqlite_to_postgresql_to_mariadb_and_back() {
    let (Some(postgres), Some(mariadb)) = (Postgres::shared().unwrap(), MariaDb::shared().unwrap()) else {
        return;
    };
    let (postgres, mariadb) = (postgres.database().unwrap(), mariadb.database().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let stores = [sqlite(&dir, "first.db"), postgres.url(), mariadb.url(), sqlite(&dir, "last.db")];
    let before = fill(&stores[0]);
    for (n, hop) in stores.windows(2).enumerate() {
        let export = file(&dir, &n.to_string());
        ends_well(&transfer("export", &hop[0], &export));
        ends_well(&transfer("import", &hop[1], &export));
        let site = Site::open(tempfile::tempdir().unwrap(), &hop[1], &[]);
        let after = answers(&site);
        for (before, after) in before.iter().zip(&after) {
            assert_eq!(before, after, "from {} to {}", hop[0], hop[1]);
        }
        assert_eq!(before.len(), after.len());
        stop(site);
    }
    for store in &stores {
        goes_on(Site::open(tempfile::tempdir().unwrap(), store, &[]));
    }
}

#[test]
fn what_is_not_whole_or_has_no_room_changes_nothing() {
    let Some(postgres) = Postgres::shared().unwrap() else { return };
    let database = postgres.database().unwrap();
    let (dir, url) = (tempfile::tempdir().unwrap(), database.url());
    let (first, whole) = (sqlite(&dir, "first.db"), file(&dir, "whole"));
    refused(&transfer("export", &first, &whole), "there is no store");
    fill(&first);
    {
        let _server = Site::open(tempfile::tempdir().unwrap(), &first, &[]);
        refused(&transfer("export", &first, &whole), "is open in");
        refused(&transfer("export", &first, &whole), "stop all servers first");
    }
    ends_well(&transfer("export", &first, &whole));
    assert_eq!(
        fs::metadata(&whole).unwrap().permissions().mode() & 0o777,
        0o600,
        "it is as secret as the store"
    );
    refused(&transfer("export", &first, &whole), "exists already");
    let bytes = fs::read(&whole).unwrap();
    let mut changed = bytes.clone();
    let middle = changed.len() / 2;
    changed[middle] ^= 1;
    let newer = [b"windlass-export 6\n", &bytes[18..]].concat();
    for (name, content, reason) in [
        ("cut", &bytes[..bytes.len() / 2], "cut off"),
        ("without-end", &bytes[..bytes.len() - 60], "cut off"),
        ("changed", &changed[..], "export"),
        ("newer", &newer[..], "format 6"),
        ("foreign", b"something else\n", "not an export"),
        ("empty", b"", "not an export"),
    ] {
        let export = file(&dir, name);
        fs::write(&export, content).unwrap();
        let target = sqlite(&dir, "second.db");
        refused(&transfer("import", &target, &export), reason);
        let left: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(!left.iter().any(|name| name.to_str().unwrap().starts_with("second")), "{left:?}");
        refused(&transfer("import", &url, &export), reason);
        let tasks = database.ask("select count(*) from windlass_task").unwrap();
        assert_eq!(tasks.trim(), "0");
    }
    refused(&transfer("import", &first, &whole), "exists already");
    // One that was broken off: no server opens it, and the next import starts again.
    database.ask("update windlass_meta set readable_from = 2147483647").unwrap();
    database.ask("insert into windlass_queue (name, used) values ('left', true)").unwrap();
    let server =
        Command::new(PROGRAM).args(["server", "--listen", "127.0.0.1:0", "--store", &url]).output().unwrap();
    refused(&server, "broken off");
    ends_well(&transfer("import", &url, &whole));
    refused(&transfer("import", &url, &whole), "is not empty");
    {
        let _server = Site::open(tempfile::tempdir().unwrap(), &url, &[]);
        refused(&transfer("export", &url, "-"), "stop all servers first");
    }
}

/// Nothing is deleted that others may have put there, and no import goes where a server works.
fn spares_what_servers_accepted(url: &str, ask: impl Fn(&str) -> String) {
    let dir = tempfile::tempdir().unwrap();
    let (first, whole) = (sqlite(&dir, "first.db"), file(&dir, "whole"));
    stop(Site::open(tempfile::tempdir().unwrap(), &first, &[]));
    ends_well(&transfer("export", &first, &whole));
    let mark = || ask("select readable_from from windlass_meta").trim().to_owned();
    let left = || ask("select count(*) from windlass_queue where name = 'left'").trim().to_owned();
    let site = Site::open(tempfile::tempdir().unwrap(), url, &[]);
    let before = mark();
    refused(&transfer("import", url, &whole), "stop all servers first");
    assert_eq!(mark(), before);
    // One that was broken off while it filled.
    ask("insert into windlass_queue (name, used) values ('left', true)");
    ask("update windlass_meta set readable_from = 2147483647");
    refused(&transfer("import", url, &whole), "stop all servers first");
    assert_eq!(left(), "1");
    stop(site);
    // One that was broken off before it filled.
    ask("update windlass_meta set readable_from = 2147483646");
    let args = ["server", "--listen", "127.0.0.1:0", "--store", url];
    refused(&Command::new(PROGRAM).args(args).output().unwrap(), "broken off");
    refused(&transfer("import", url, &whole), "is not empty");
    assert_eq!((left(), mark()), ("1".to_owned(), before.clone()));
    ask("delete from windlass_queue");
    ask("update windlass_meta set schema_version = schema_version + 7");
    refused(&transfer("import", url, &whole), "use a newer version");
    ask("update windlass_meta set schema_version = schema_version - 7");
    ends_well(&transfer("import", url, &whole));
    assert_eq!(mark(), before);
}

#[test]
fn an_import_into_postgresql_spares_what_servers_accepted() {
    let Some(postgres) = Postgres::shared().unwrap() else { return };
    let database = postgres.database().unwrap();
    spares_what_servers_accepted(&database.url(), |sql| database.ask(sql).unwrap());
}

#[test]
fn an_import_into_mariadb_spares_what_servers_accepted() {
    let Some(mariadb) = MariaDb::shared().unwrap() else { return };
    let database = mariadb.database().unwrap();
    spares_what_servers_accepted(&database.url(), |sql| database.ask(sql).unwrap());
}

#[test]
fn the_log_of_a_store_that_was_removed_does_not_get_into_the_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let (first, whole) = (sqlite(&dir, "first.db"), file(&dir, "whole"));
    stop(Site::open(tempfile::tempdir().unwrap(), &first, &[]));
    ends_well(&transfer("export", &first, &whole));
    for end in ["-wal", "-shm", "-journal"] {
        let left = file(&dir, &format!("second.db{end}"));
        fs::write(&left, "left").unwrap();
        refused(&transfer("import", &sqlite(&dir, "second.db"), &whole), &left);
        fs::remove_file(&left).unwrap();
    }
    ends_well(&transfer("import", &sqlite(&dir, "second.db"), &whole));
}

//! Tasks that applications start in transactions of their own, on real databases and with real servers.

use std::{collections::BTreeMap, process::Command};

use serde_json::Value;
use windlass_testkit::{Database, MariaDb, Postgres, SqlProduct};

use super::site::{Site, text, until};

const FLOWS: &str = "
flow: good
steps: [{ name: one, run: m.echo }]
---
flow: lonely
steps: [{ name: one, run: nobody.serves }]
";

const STOOD_FOR: &str = "SELECT count(*) FROM windlass_enqueued WHERE stands_for IS NOT NULL";

const REFUSED: &str = "SELECT count(*) FROM windlass_enqueued WHERE refused IS NOT NULL";

/// How an application speaks to its database.
#[derive(Clone, Copy, PartialEq)]
enum Dialect {
    Postgres,
    MySql,
}

impl Dialect {
    /// Statements that start a task and print its id.
    fn start(self, flow: &str, params: &str, key: Option<&str>) -> String {
        let key = key.map_or("NULL".to_owned(), |key| format!("'{key}'"));
        match self {
            Self::Postgres => format!("SELECT windlass_start('{flow}', '{params}', {key});"),
            Self::MySql => format!("CALL windlass_start('{flow}', '{params}', {key}, @task); SELECT @task;"),
        }
    }

    /// The id of a task that never was, and how it is written in SQL.
    fn missing_task(self) -> (&'static str, &'static str) {
        let id = "0190a000-0000-7000-8000-000000000001";
        match self {
            Self::Postgres => (id, "'0190a000-0000-7000-8000-000000000001'"),
            Self::MySql => (id, "X'0190a000000070008000000000000001'"),
        }
    }

    /// Statements that start tasks with numbers as parameters.
    fn start_many(self, flow: &str, numbers: std::ops::Range<u32>) -> String {
        numbers.map(|n| self.start(flow, &format!("{{\"n\": {n}}}"), None)).collect()
    }
}

/// A database with a server on it, and a worker.
struct Place<'d, P: SqlProduct> {
    site: Site,
    database: &'d Database<'d, P>,
    dialect: Dialect,
}

impl<'d, P: SqlProduct> Place<'d, P> {
    fn new(database: &'d Database<'d, P>, dialect: Dialect) -> Self {
        let mut site = Site::open(tempfile::tempdir().unwrap(), &database.url(), &[]);
        site.apply(FLOWS);
        site.start_worker();
        Self { site, database, dialect }
    }

    fn sql(&self, statements: &str) -> String {
        self.database.ask(statements).unwrap()
    }

    fn start(&self, flow: &str, params: &str, key: Option<&str>) -> String {
        self.sql(&self.dialect.start(flow, params, key))
    }

    /// The task with this id, once it is there.
    fn task(&self, id: &str) -> Value {
        until("the task is there", || {
            let shown = self.site.run(&["task", "show", id, "-o", "json"]);
            (shown.status.code() == Some(0)).then(|| serde_json::from_slice(&shown.stdout).unwrap())
        })
    }

    fn ends(&self, id: &str) -> Value {
        until("the task ends", || Some(self.task(id)).filter(|task| task["status"] == "succeeded"))
    }

    fn waiting(&self) -> String {
        self.sql("SELECT count(*) FROM windlass_enqueued WHERE refused IS NULL AND stands_for IS NULL")
    }

    /// How many tasks there are with each number.
    fn numbers(&self) -> BTreeMap<i64, usize> {
        let mut numbers = BTreeMap::new();
        let mut cursor = None::<String>;
        loop {
            let mut arguments = vec!["task", "list", "--flow", "lonely", "--limit", "1000"];
            arguments.extend(cursor.iter().flat_map(|cursor| ["--cursor", cursor]));
            let page = self.site.json(&arguments);
            for task in page["items"].as_array().unwrap() {
                *numbers.entry(task["params"]["n"].as_i64().unwrap()).or_default() += 1;
            }
            cursor = page["next"].as_str().map(str::to_owned);
            if cursor.is_none() {
                return numbers;
            }
        }
    }
}

/// What is committed runs once, under the id that the application got; what is rolled back never runs.
fn a_transaction_takes_its_task_with_it<P: SqlProduct>(place: &Place<'_, P>) {
    place.sql("CREATE TABLE orders (n INT)");
    let with_order = |end: &str| {
        let start = place.dialect.start("good", r#"{"order": 7}"#, None);
        place.sql(&format!("BEGIN; INSERT INTO orders VALUES (7); {start} {end};"))
    };
    let rolled_back = with_order("ROLLBACK");
    let committed = with_order("COMMIT");
    let ended = place.ends(&committed);
    assert_eq!(ended["params"]["order"], 7, "{ended}");
    assert_eq!(ended["steps"][0]["attempts"], 1);
    assert_eq!(place.sql("SELECT count(*) FROM orders"), "1");
    assert_eq!(place.site.run(&["task", "show", &rolled_back]).status.code(), Some(3));
    assert_eq!(place.site.json(&["task", "list"])["items"].as_array().unwrap().len(), 1);
    until("its row is gone", || (place.waiting() == "0").then_some(()));
}

/// One that is refused is in nobody's way, is seen, and goes on once it is put right.
fn what_is_refused_waits_for_a_person<P: SqlProduct>(place: &Place<'_, P>) {
    let unknown = place.start("missing", "{}", None);
    let large = format!(r#"{{"text": "{}"}}"#, "x".repeat(1_100_000));
    let bad = ["[1]", &large].map(|params| {
        // Longer than an argument of a program may be.
        let file = place.site.path("statement.sql");
        std::fs::write(&file, place.dialect.start("good", params, None)).unwrap();
        from_file(&place.database.url(), place.dialect, &file)
    });
    place.ends(&place.start("good", "{}", None));
    let alarms = until("all are refused", || {
        let alarms = place.site.json(&["alarm", "list"])["items"].clone();
        (alarms.as_array().unwrap().len() == 3).then_some(alarms)
    });
    for (id, reason) in [(&unknown, "no flow missing"), (&bad[0], "object"), (&bad[1], "1 MiB")] {
        let mut alarms = alarms.as_array().unwrap().iter();
        let alarm = alarms.find(|alarm| alarm["task"] == id.as_str()).expect("an alarm");
        assert_eq!(alarm["kind"], "refused");
        assert!(alarm["message"].as_str().unwrap().contains(reason), "{alarm}");
    }
    until("the rows say so", || (place.sql(REFUSED) == "3").then_some(()));

    for question in ["show", "why"] {
        let refused = place.site.run(&["task", question, &unknown]);
        let said = text(&refused.stderr);
        assert!(said.contains("refused: ") && said.contains("no flow missing"), "{said}");
        assert_eq!(refused.status.code(), Some(3), "{said}");
    }

    place.site.apply("flow: missing\nsteps: [{ name: one, run: m.echo }]\n");
    place.sql("UPDATE windlass_enqueued SET refused = NULL WHERE refused LIKE '%no flow missing%'");
    place.ends(&unknown);
    until("its alarm is over", || {
        let alarms = place.site.json(&["alarm", "list"]);
        (alarms["items"].as_array().unwrap().len() == 2).then_some(())
    });
    place.sql("DELETE FROM windlass_enqueued WHERE refused IS NOT NULL");
}

/// A key belongs to one task, whether it waits, runs or was started over HTTP.
fn a_key_stands_for_one_task<P: SqlProduct>(place: &mut Place<'_, P>) {
    let first = place.start("good", r#"{"a": 1}"#, Some("k"));
    place.ends(&first);
    until("it is settled", || (place.waiting() == "0").then_some(()));
    // Another document under the key raises an alarm, and starts nothing.
    assert_eq!(place.start("good", r#"{"a": 2}"#, Some("k")), first);
    until("it is refused", || {
        let alarms = place.site.json(&["alarm", "list"]);
        alarms.to_string().contains("another body").then_some(())
    });
    // The alarm is raised first.
    until("its row says so", || (place.sql(REFUSED) == "1").then_some(()));
    // It can be corrected under the same key, by any client.
    place.sql("UPDATE windlass_enqueued SET enqueued_by = 'somebody' WHERE refused IS NOT NULL");
    assert_eq!(place.start("good", r#"{"a": 1}"#, Some("k")), first);
    assert_eq!(place.sql("SELECT count(*) FROM windlass_enqueued WHERE enqueued_by = 'somebody'"), "0");
    until("the key belongs to the first", || (place.sql(STOOD_FOR) == "1").then_some(()));
    until("the alarm is over", || {
        let alarms = place.site.json(&["alarm", "list"]);
        (alarms["items"] == serde_json::json!([])).then_some(())
    });
    assert_eq!(place.start("good", r#"{"a": 1}"#, Some("k")), first);

    // Nobody takes it in meanwhile.
    let mut server = place.site.children.remove(0);
    server.kill().unwrap();
    server.wait().unwrap();
    let waits = place.start("good", r#"{"b": 1}"#, Some("waits"));
    assert_eq!(place.start("good", r#"{"b": 1}"#, Some("waits")), waits);
    let other = place.database.ask(&place.dialect.start("good", r#"{"b": 2}"#, Some("waits")));
    assert!(other.unwrap_err().to_string().contains("idempotency key"));
    place.site = Site::open(tempfile::tempdir().unwrap(), &place.database.url(), &[]);
    assert_eq!(place.task(&waits)["params"]["b"], 1);
    until("it is settled", || (place.waiting() == "0").then_some(()));

    // As when its task was deleted, and its key was not yet.
    let (gone, literal) = place.dialect.missing_task();
    place.sql(&format!("UPDATE windlass_submit_key SET task = {literal}"));
    assert_eq!(place.start("good", r#"{"b": 1}"#, Some("waits")), gone);
    until("nothing is started for it", || (place.sql(STOOD_FOR) == "2").then_some(()));
    assert_eq!(place.waiting(), "0");
    assert_eq!(place.site.json(&["task", "list", "--flow", "good"])["items"].as_array().unwrap().len(), 2);
}

/// Of several calls with the same unique key one starts a task, which the others name.
fn a_unique_key_has_one_task<P: SqlProduct>(place: &Place<'_, P>) {
    place.site.apply("{ flow: one_at_a_time, unique: order, steps: [ { name: one, run: nobody.serves } ] }");
    let before: i64 = place.sql(STOOD_FOR).parse().unwrap();
    let first = place.start("one_at_a_time", r#"{"order": 1}"#, None);
    place.task(&first);
    for key in [None, Some("other")] {
        assert_ne!(place.start("one_at_a_time", r#"{"order": 1}"#, key), first);
    }
    until("both name the first one", || (place.sql(STOOD_FOR) == (before + 2).to_string()).then_some(()));
    let tasks = place.site.json(&["task", "list", "--flow", "one_at_a_time"]);
    assert_eq!(tasks["items"].as_array().unwrap().len(), 1);
}

/// A thousand in one transaction, and servers that are killed while they take them in: each task is there once.
fn each_is_taken_in_once<P: SqlProduct>(database: &Database<'_, P>, dialect: Dialect) {
    const EACH: u32 = 1000;
    const ROUNDS: u32 = 3;
    let server = || Site::open(tempfile::tempdir().unwrap(), &database.url(), &[]);
    let mut site = server();
    site.apply(FLOWS);
    for round in 0..ROUNDS {
        let file = site.path("statements.sql");
        let numbers = dialect.start_many("lonely", round * EACH..(round + 1) * EACH);
        std::fs::write(&file, format!("BEGIN; {numbers} COMMIT;")).unwrap();
        let next = server();
        from_file(&database.url(), dialect, &file);
        // Dropped, the one that takes them in is killed.
        site = next;
    }
    let place = Place { site, database, dialect };
    until("all are there", || (place.waiting() == "0").then_some(()));
    let numbers = place.numbers();
    assert_eq!(numbers.len(), (ROUNDS * EACH) as usize);
    assert!(numbers.values().all(|times| *times == 1), "{numbers:?}");
}

/// Runs statements in a file as the administrator. Gives the last line that was printed.
fn from_file(url: &str, dialect: Dialect, file: &str) -> String {
    client(
        url,
        dialect,
        &match dialect {
            Dialect::Postgres => vec!["--file", file],
            Dialect::MySql => vec!["-e", "source", file],
        },
    )
    .unwrap()
}

/// Runs the client of a database. Gives the last line that it prints, or what it says.
fn client(url: &str, dialect: Dialect, arguments: &[&str]) -> Result<String, String> {
    let (_, rest) = url.split_once("://").unwrap();
    let (user, rest) = rest.split_once('@').unwrap();
    let (user, password) = user.split_once(':').unwrap_or((user, ""));
    let (address, database) = rest.split_once('/').unwrap();
    let port = address.split_once(':').unwrap().1;
    let mut command = match dialect {
        Dialect::Postgres => {
            let mut command = Command::new("psql");
            command.args(["-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", "-d", url]).args(arguments);
            command
        }
        Dialect::MySql => {
            let mut command = Command::new("mariadb");
            command.args(["--no-defaults", "--protocol=tcp", "--host=127.0.0.1", "-N", "-B"]);
            command.arg(format!("--port={port}")).arg(format!("--user={user}"));
            command.arg(format!("--password={password}")).arg(format!("--database={database}"));
            match arguments {
                ["-e", "source", file] => command.arg("-e").arg(format!("source {file}")),
                other => command.args(other),
            };
            command
        }
    };
    let output = command.output().unwrap();
    if !output.status.success() {
        return Err(text(&output.stderr));
    }
    Ok(text(&output.stdout).trim().lines().last().unwrap_or_default().to_owned())
}

/// Who may run the function and nothing else starts tasks, in its own name.
fn a_right_to_execute_is_enough<P: SqlProduct>(place: &Place<'_, P>, grants: &[&str], port: u16) {
    for grant in grants {
        place.sql(grant);
    }
    let name = place.database.name();
    let url = match place.dialect {
        Dialect::Postgres => format!("postgres://{name}_shop:secret@127.0.0.1:{port}/{name}"),
        Dialect::MySql => format!("mysql://{name}_shop:secret@127.0.0.1:{port}/{name}"),
    };
    let flag = if place.dialect == Dialect::Postgres { "-c" } else { "-e" };
    let ask = |statements: &str| client(&url, place.dialect, &[flag, statements]);
    let id = ask(&place.dialect.start("good", "{}", None)).unwrap();
    place.ends(&id);
    let events = place.site.json(&["task", "events", &id]);
    assert_eq!(events["items"][0]["actor"], format!("{name}_shop"), "{events}");
    for refused in
        ["SELECT * FROM windlass_enqueued", "DELETE FROM windlass_enqueued", "SELECT * FROM windlass_meta"]
    {
        let error = ask(refused).unwrap_err();
        assert!(error.contains("denied"), "{error}");
    }
}

#[test]
fn with_postgresql() {
    let Some(server) = Postgres::shared().unwrap() else { return };
    let database = server.database().unwrap();
    let mut place = Place::new(&database, Dialect::Postgres);
    a_transaction_takes_its_task_with_it(&place);
    what_is_refused_waits_for_a_person(&place);
    let name = database.name();
    let grants = [
        &*format!("CREATE ROLE {name}_shop LOGIN PASSWORD 'secret'"),
        &format!("GRANT EXECUTE ON FUNCTION windlass_start(text, jsonb, text) TO {name}_shop"),
    ];
    a_right_to_execute_is_enough(&place, &grants, server.port());
    place.sql(&format!("DROP OWNED BY {name}_shop; DROP ROLE {name}_shop"));
    let database = server.database().unwrap();
    drop(place);
    place = Place::new(&database, Dialect::Postgres);
    a_key_stands_for_one_task(&mut place);
    a_unique_key_has_one_task(&place);
}

#[test]
fn with_mariadb() {
    let Some(server) = MariaDb::shared().unwrap() else { return };
    let database = server.database().unwrap();
    let place = Place::new(&database, Dialect::MySql);
    a_transaction_takes_its_task_with_it(&place);
    what_is_refused_waits_for_a_person(&place);
    let name = database.name();
    let grants = [
        &*format!("CREATE USER {name}_shop@'127.0.0.1' IDENTIFIED BY 'secret'"),
        &format!("GRANT EXECUTE ON PROCEDURE {name}.windlass_start TO {name}_shop@'127.0.0.1'"),
    ];
    a_right_to_execute_is_enough(&place, &grants, server.port());
    place.sql(&format!("DROP USER {name}_shop@'127.0.0.1'"));
    drop(place);
    let database = server.database().unwrap();
    let mut place = Place::new(&database, Dialect::MySql);
    a_key_stands_for_one_task(&mut place);
    a_unique_key_has_one_task(&place);
}

#[test]
fn with_postgresql_and_servers_that_are_killed() {
    let Some(server) = Postgres::shared().unwrap() else { return };
    each_is_taken_in_once(&server.database().unwrap(), Dialect::Postgres);
}

#[test]
fn with_mariadb_and_servers_that_are_killed() {
    let Some(server) = MariaDb::shared().unwrap() else { return };
    each_is_taken_in_once(&server.database().unwrap(), Dialect::MySql);
}

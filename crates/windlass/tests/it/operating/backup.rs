//! Backups as `docs/operate/backup.md` says: taken under a task that goes on, restored, and the task goes on there.

use std::{
    fs::File,
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

use windlass_testkit::{MariaDb, Postgres};

use crate::site::{PROGRAM, Site, until};

/// The second step of the first goes on for as long as the test wants it to.
const FLOWS: &str = "
flow: gated
steps: [{ name: one, run: m.echo }, { name: gate, run: m.gate }]
---
flow: lonely
steps: [{ name: one, run: nobody.serves }]
";

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
}

/// Kills the server of a site, and starts another one at the same address on another store.
fn move_to(site: &mut Site, store: &str) {
    site.children[0].kill().unwrap();
    site.children[0].wait().unwrap();
    let address = site.url.trim_start_matches("http://");
    let mut server = Command::new(PROGRAM)
        .args(["server", "--listen", address, "--store", store])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    site.children[0] = server;
    assert!(line.starts_with("listening on "), "{line}");
}

/// A worker is in the middle of a task while `back_up` copies the store to where the server goes on then.
fn goes_on_where_it_is_restored(live: &str, restored: &str, back_up: impl FnOnce(&Site)) {
    let mut site = Site::open(tempfile::tempdir().unwrap(), live, &[]);
    site.apply(FLOWS);
    site.start_worker();
    let going_on = site.start_task("gated");
    until("the gate is with the worker", || {
        let why = site.run(&["task", "why", &going_on]);
        String::from_utf8_lossy(&why.stdout).contains("step gate has been with worker").then_some(())
    });

    back_up(&site);
    let later = site.start_task("lonely");
    move_to(&mut site, restored);

    site.open_gate();
    until("the task ends where it was restored", || {
        (site.json(&["task", "show", &going_on])["status"] == "succeeded").then_some(())
    });
    let shown = site.json(&["task", "show", &going_on]);
    assert_eq!(shown["steps"][1]["attempts"], 1, "its worker kept it: {shown}");
    // It was accepted after the backup.
    assert_eq!(site.run(&["task", "show", &later]).status.code(), Some(3));
}

#[test]
fn a_dump_of_postgresql_goes_on_where_it_is_restored() {
    let Some(server) = Postgres::shared().unwrap() else { return };
    let (live, restored) = (server.database().unwrap(), server.database().unwrap());
    goes_on_where_it_is_restored(&live.url(), &restored.url(), |site| {
        let dump = site.path("windlass.dump");
        run(Command::new("pg_dump").args(["--format=custom", &format!("--file={dump}"), &live.url()]));
        let target = format!("--dbname={}", restored.url());
        run(Command::new("pg_restore").args(["--no-owner", "--single-transaction", &target, &dump]));
    });
    // What applications start tasks with is part of it.
    restored.ask("select windlass_start('lonely')").unwrap();
}

#[test]
fn a_dump_of_mariadb_goes_on_where_it_is_restored() {
    let Some(server) = MariaDb::shared().unwrap() else { return };
    let (live, restored) = (server.database().unwrap(), server.database().unwrap());
    let port = format!("--port={}", server.port());
    let connection = ["--no-defaults", "--protocol=tcp", "--host=127.0.0.1", "--user=root", &port];
    goes_on_where_it_is_restored(&live.url(), &restored.url(), |site| {
        let dump = site.path("windlass.sql");
        let mut command = Command::new("mariadb-dump");
        command.args(connection).args(["--single-transaction", "--hex-blob", "--routines", live.name()]);
        run(command.arg(format!("--result-file={dump}")));
        let mut command = Command::new("mariadb");
        run(command.args(connection).arg(restored.name()).stdin(File::open(dump).unwrap()));
    });
    restored.ask("call windlass_start('lonely', NULL, NULL, @task)").unwrap();
}

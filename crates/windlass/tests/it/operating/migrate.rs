//! `windlass migrate` on every store.

use std::process::{Command, Output};

use windlass_testkit::{MariaDb, Postgres, Server, SqlProduct};

use crate::site::{PROGRAM, Site, store, text, until};

fn migrate(url: &str, more: &[&str]) -> Output {
    Command::new(PROGRAM).args(["migrate", "--store", url]).args(more).output().unwrap()
}

/// Looks at a store that has nothing yet, makes its tables, and looks again.
fn make(url: &str) {
    for _ in 0..2 {
        let looked = migrate(url, &["--check"]);
        assert_eq!(looked.status.code(), Some(1), "{looked:?}");
        assert!(text(&looked.stdout).contains("no tables yet"), "{looked:?}");
    }
    let made = migrate(url, &[]);
    assert_eq!(made.status.code(), Some(0), "{made:?}");
    assert!(text(&made.stdout).contains("has tables in version"), "{made:?}");
    for arguments in [&["--check"][..], &[]] {
        let nothing = migrate(url, arguments);
        assert_eq!(nothing.status.code(), Some(0), "{nothing:?}");
        assert!(text(&nothing.stdout).contains("nothing to do"), "{nothing:?}");
    }
    let document: serde_json::Value = serde_json::from_slice(&migrate(url, &["-o", "json"]).stdout).unwrap();
    assert_eq!(document["found"], document["known"], "{document}");
}

#[test]
fn a_file_is_made_and_then_there_is_nothing_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let url = store(dir.path());
    make(&url);
    let memory = migrate("memory:", &["--check"]);
    assert_eq!(memory.status.code(), Some(1), "{memory:?}");
    std::fs::write(dir.path().join("text"), "this is not a database").unwrap();
    let foreign = migrate(&format!("sqlite:{}", dir.path().join("text").display()), &[]);
    assert_eq!(foreign.status.code(), Some(1), "{foreign:?}");
}

/// A server whose tables are brought to another version: it goes on where it may, and ends where it must not.
fn under_a_server<P: SqlProduct>(server: Option<&Server<P>>) {
    let Some(server) = server else { return };
    let database = server.database().unwrap();
    let mut site = Site::open(tempfile::tempdir().unwrap(), &database.url(), &[]);
    let heard = || database.ask("select heard from windlass_server").unwrap();
    database.ask("update windlass_meta set schema_version = 98").unwrap();
    let before = heard();
    until("the server is heard of again", || (heard() > before).then_some(()));
    site.apply("flow: good\nsteps:\n  - { name: one, run: nobody.serves }\n");
    database.ask("update windlass_meta set schema_version = 99, readable_from = 97").unwrap();
    let ended = until("the server ends", || site.children[0].try_wait().unwrap());
    assert_eq!(ended.code(), Some(1));
    assert_eq!(heard(), "", "it has left");
    site.children.clear();
}

#[test]
fn a_server_ends_when_its_postgresql_tables_become_too_new() {
    under_a_server(Postgres::shared().unwrap());
}

#[test]
fn a_server_ends_when_its_mariadb_tables_become_too_new() {
    under_a_server(MariaDb::shared().unwrap());
}

#[test]
fn a_postgresql_database_is_made_and_one_that_is_too_new_refused() {
    in_a_database(Postgres::shared().unwrap());
}

#[test]
fn a_mariadb_database_is_made_and_one_that_is_too_new_refused() {
    in_a_database(MariaDb::shared().unwrap());
}

fn in_a_database<P: SqlProduct>(server: Option<&Server<P>>) {
    let Some(server) = server else { return };
    let database = server.database().unwrap();
    let url = database.url();
    make(&url);
    // A newer program that this one can still work beside, then one that it cannot.
    database.ask("update windlass_meta set schema_version = 98").unwrap();
    let beside = migrate(&url, &["--check"]);
    assert_eq!(beside.status.code(), Some(0), "{beside:?}");
    assert!(text(&beside.stdout).contains("version 98, which this program can work on"), "{beside:?}");
    database.ask("update windlass_meta set schema_version = 99, readable_from = 97").unwrap();
    for arguments in [&["--check"][..], &[]] {
        let refused = migrate(&url, arguments);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        let said = text(&refused.stderr);
        assert!(said.contains("version 99") && said.contains("97"), "{said}");
    }
}

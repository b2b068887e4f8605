//! Results in tables of MariaDB.

use std::time::Duration;

use windlass_brokers::{ResultBackend, ResultDocument, ResultSettings, result_backend};
use windlass_testkit::MariaDb;

fn open(url: &str, keep: u64) -> std::sync::Arc<dyn ResultBackend> {
    result_backend(url, ResultSettings { keep: Duration::from_secs(keep), separator: "," }).unwrap()
}

fn document(id: &str, text: String) -> ResultDocument {
    ResultDocument { id: id.to_owned(), text, keep: None }
}

fn task(id: &str, state: &str, results: &str) -> ResultDocument {
    let text = format!(
        r#"{{"TaskUUID":"{id}","TaskName":"add","State":"{state}","Results":{results},"Error":"it's","CreatedAt":"2026-01-01T00:00:00Z","TTL":0}}"#
    );
    document(id, text)
}

fn group(id: &str, tasks: &str) -> ResultDocument {
    document(id, format!(r#"{{"GroupUUID":"{id}","TaskUUIDs":[{tasks}],"ChordTriggered":true}}"#))
}

#[tokio::test]
async fn states_are_rows_and_the_last_one_counts() {
    let Some(server) = MariaDb::shared().unwrap() else { return };
    let database = server.database().unwrap();
    let backend = open(&database.url(), 3600);
    assert_eq!(backend.read(&["task_1".to_owned()]).await, Ok(vec![None]));
    let large = r#"[{"Type":"int64","Value":9223372036854775807}]"#;
    for state in ["PENDING", "RECEIVED", "PENDING", "SUCCESS"] {
        backend
            .write(&[task("task_1", state, large), group("group_1", r#""task_2","task_1""#)])
            .await
            .unwrap();
    }
    let row = database.ask("select uuid, name, state, results, error_info from task_state").unwrap();
    assert_eq!(row.trim(), format!("task_1\tadd\tSUCCESS\t{large}\tit's"));
    let row = database.ask("select group_uuid, tasks_uuid, chord_enabled from group_metadata").unwrap();
    assert_eq!(row.trim(), "group_1\ttask_2,task_1\t1");
    let read = backend.read(&["group_1".to_owned(), "nobody".to_owned(), "task_1".to_owned()]).await.unwrap();
    assert!(read[0].as_ref().unwrap().contains(r#""TaskUUIDs":["task_2","task_1"]"#), "{read:?}");
    assert!(read[1].is_none() && read[2].as_ref().unwrap().contains(large), "{read:?}");
}

#[tokio::test]
async fn what_a_narrow_column_does_not_take_is_said_in_its_row() {
    let Some(server) = MariaDb::shared().unwrap() else { return };
    let database = server.database().unwrap();
    database
        .ask(
            "create table task_state (id bigint unsigned auto_increment primary key, uuid varchar(255) unique,
                name varchar(255), state varchar(255), results text, error_info text, created_at datetime(6))",
        )
        .unwrap();
    let backend = open(&database.url(), 3600);
    let long = format!(r#"[{{"Type":"string","Value":"{}"}}]"#, "x".repeat(70_000));
    backend.write(&[task("task_1", "SUCCESS", &long), task("task_2", "SUCCESS", "[]")]).await.unwrap();
    let rows = database
        .ask("select uuid, state, results is null, error_info from task_state order by uuid")
        .unwrap();
    assert!(rows.starts_with("task_1\tSUCCESS\t1\tthe results or the error have 7"), "{rows}");
    assert!(rows.contains("make them mediumtext") && rows.contains("task_2\tSUCCESS\t0\tit's"), "{rows}");
}

#[tokio::test]
async fn a_foreign_table_is_refused_with_the_column_that_it_lacks() {
    let Some(server) = MariaDb::shared().unwrap() else { return };
    let database = server.database().unwrap();
    database
        .ask("create table task_state (id int, uuid varchar(255), name text, state text, results text)")
        .unwrap();
    let backend = open(&database.url(), 3600);
    let error = backend.write(&[task("task_1", "SUCCESS", "[]")]).await.unwrap_err().to_string();
    assert!(error.contains("the table task_state has no column error_info"), "{error}");
    database.ask("alter table task_state add error_info text, add created_at datetime(6)").unwrap();
    assert_eq!(backend.write(&[task("task_1", "SUCCESS", "[]")]).await, Ok(()), "it looks again");
}

#[tokio::test]
async fn rows_go_when_their_time_is_over_and_groups_after_their_tasks() {
    let Some(server) = MariaDb::shared().unwrap() else { return };
    let database = server.database().unwrap();
    let backend = open(&database.url(), 60);
    backend
        .write(&[
            task("old", "SUCCESS", "[]"),
            task("failed", "FAILURE", "null"),
            task("open", "RECEIVED", "null"),
            task("new", "SUCCESS", "[]"),
            group("of_old", r#""old","failed""#),
            group("of_open", r#""old","open""#),
            group("of_new", r#""new""#),
        ])
        .await
        .unwrap();
    for (table, column) in [("task_state", "uuid"), ("group_metadata", "group_uuid")] {
        let age = format!(
            "update {table} set created_at = utc_timestamp(6) - interval 2 minute where {column} not in ('new', 'of_new')"
        );
        database.ask(&age).unwrap();
    }
    assert_eq!(backend.purge().await, Ok(3));
    let left = database
        .ask("select uuid from task_state union select group_uuid from group_metadata order by 1")
        .unwrap();
    assert_eq!(left.split_whitespace().collect::<Vec<_>>(), ["new", "of_new", "of_open", "open"]);
    assert_eq!(backend.purge().await, Ok(0));
}

#[tokio::test]
async fn a_database_that_was_away_is_found_again() {
    let Some(server) = MariaDb::start().unwrap() else { return };
    let database = server.database().unwrap();
    let backend = open(&database.url(), 3600);
    backend.write(&[task("task_1", "RECEIVED", "null")]).await.unwrap();
    server.kill().unwrap();
    assert!(backend.write(&[task("task_1", "SUCCESS", "[]")]).await.is_err());
    server.restart().unwrap();
    backend.write(&[task("task_1", "SUCCESS", "[]")]).await.unwrap();
    assert!(backend.read(&["task_1".to_owned()]).await.unwrap()[0].as_ref().unwrap().contains("SUCCESS"));
}

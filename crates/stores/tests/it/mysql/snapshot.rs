//! Exports of a database that is written to meanwhile.

use std::sync::Arc;

use windlass_stores::mysql::MySqlSnapshot;

use super::{database, open, wait};
use crate::{
    disturbed::id,
    outbox,
    snapshot::{DAMAGES, DISTURB, TASKS, examined, export, fill},
};

fn exported(url: &str, disturb: impl FnOnce() + Send + 'static) -> Vec<u8> {
    let options = url.parse().unwrap();
    wait(async move { export(&mut MySqlSnapshot::open(&options).await.unwrap(), disturb).await })
}

#[test]
fn an_export_is_of_one_moment() {
    let Some(database) = database().map(Arc::new) else { return };
    let url = database.url();
    fill(&*open(&url).unwrap());
    let before = exported(&url, || {});
    let written = database.clone();
    let disturbed = exported(&url, move || {
        for statement in DISTURB {
            written.ask(statement).unwrap();
        }
        assert_eq!(written.ask("select count(*) from windlass_task").unwrap(), "0");
    });
    assert!(before == disturbed, "{} and {} bytes", before.len(), disturbed.len());
}

#[test]
fn what_is_to_be_announced_comes_and_goes() {
    let Some(database) = database() else { return };
    let options = database.url().parse().unwrap();
    outbox::comes_and_goes(&*open(&database.url()).unwrap(), || {
        wait(async move { outbox::export(&mut MySqlSnapshot::open(&options).await.unwrap()).await })
    });
}

#[test]
fn what_is_wrong_is_found() {
    let Some(database) = database() else { return };
    fill(&*open(&database.url()).unwrap());
    let problems = || {
        let options = database.url().parse().unwrap();
        wait(async move { examined(&mut MySqlSnapshot::open(&options).await.unwrap()).await })
    };
    assert_eq!(problems(), (TASKS, Vec::new()));
    // Of the first task everything is damaged, one after the other.
    let first = id(1);
    let literal = format!("x'{}'", first.to_string().replace('-', ""));
    for (statement, problem) in DAMAGES {
        if statement.contains("windlass_task") {
            let wait = "insert into windlass_wait (task, act, attempt) values (FIRST, 0, 1)";
            database.ask(&wait.replace("FIRST", &literal)).unwrap();
        }
        database.ask(&statement.replace("FIRST", &literal).replace("NAUGHT", "x'63'")).unwrap();
        let (_, problems) = problems();
        assert!(problems.iter().any(|found| found.contains(problem)), "{problem}: {problems:?}");
    }
}

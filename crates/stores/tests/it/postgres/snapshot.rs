//! Exports of a database that is written to meanwhile.

use std::sync::Arc;

use windlass_stores::postgres::PostgresSnapshot;

use super::{database, open, wait};
use crate::snapshot::{DISTURB, export, fill};

fn exported(url: &str, disturb: impl FnOnce() + Send + 'static) -> Vec<u8> {
    let options = url.parse().unwrap();
    wait(async move { export(&mut PostgresSnapshot::open(&options).await.unwrap(), disturb).await })
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

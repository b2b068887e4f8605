//! The suite that every store passes, on a database that one server has, and that two share.

use std::sync::Arc;

use async_trait::async_trait;
use windlass_conformance::{Bench, differ, run};
use windlass_core::TaskId;
use windlass_store::{Now, Store, memory::SharedStore};
use windlass_stores::mysql::{MySqlOptions, MySqlStore};
use windlass_testkit::{Database, MariaDbProduct};

use super::{database, open, runtime};

/// A database, and how many servers are on it.
struct Servers(Database<'static, MariaDbProduct>, usize);

#[async_trait]
impl Bench for Servers {
    async fn open(&mut self, _now: Now) -> Vec<Arc<dyn Store>> {
        let mut stores: Vec<Arc<dyn Store>> = Vec::new();
        for _ in 0..self.1 {
            let options: MySqlOptions = self.0.url().parse().unwrap();
            let opened = runtime().spawn(async move { MySqlStore::open(&options).await });
            stores.push(Arc::new(opened.await.unwrap().unwrap()));
        }
        stores
    }

    fn keeps_claims(&self) -> bool {
        true
    }

    async fn damage(&mut self, task: TaskId) -> bool {
        let id = format!("{:032x}", task.0);
        self.0.ask(&format!("UPDATE windlass_state SET state = x'01ff' WHERE task = x'{id}'")).unwrap();
        true
    }
}

#[test]
fn a_mariadb_store_passes() {
    if database().is_some() {
        run(|| Box::new(Servers(database().unwrap(), 1)));
    }
}

#[test]
fn a_mariadb_store_passes_with_two_servers() {
    if database().is_some() {
        run(|| Box::new(Servers(database().unwrap(), 2)));
    }
}

#[test]
fn mariadb_and_memory_do_the_same() {
    for seed in [1, 2] {
        let Some(database) = database() else { return };
        let store = open(&database.url()).unwrap();
        differ(seed, 2_000, Arc::new(SharedStore::new([1; 32])), store);
    }
}

//! The suite that every store passes, on a PostgreSQL database that one server has, and that two share.

use std::sync::Arc;

use async_trait::async_trait;
use windlass_conformance::{Bench, differ, run};
use windlass_core::TaskId;
use windlass_store::{Now, Store, memory::SharedStore};
use windlass_stores::postgres::{PostgresOptions, PostgresStore};
use windlass_testkit::{Database, PostgresProduct};

use super::{database, open, runtime};

/// Ends everybody's connections and deletes all rows but those that a store has from its beginning: making and dropping a database for each
/// case would be most of what the suite takes.
const CLEAN: &str = "
    select pg_terminate_backend(pid, 5000) from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid();
    do $$ declare name text; begin
        for name in select tablename from pg_tables where tablename like 'windlass\\_%' loop
            if name not in ('windlass_meta', 'windlass_lock_floor') then
                execute format('delete from %I', name);
            end if;
        end loop;
        if to_regclass('windlass_lock_floor') is not null then
            update windlass_lock_floor set version = 0;
        end if;
    end $$";

/// A database, and how many servers are on it.
struct Servers(Arc<Database<'static, PostgresProduct>>, usize);

/// Runs the suite with this number of servers on a database that is empty for each case.
fn run_with(servers: usize) {
    let Some(database) = database().map(Arc::new) else { return };
    run(|| {
        database.ask(CLEAN).unwrap();
        Box::new(Servers(database.clone(), servers))
    });
}

#[async_trait]
impl Bench for Servers {
    async fn open(&mut self, _now: Now) -> Vec<Arc<dyn Store>> {
        let mut stores: Vec<Arc<dyn Store>> = Vec::new();
        for _ in 0..self.1 {
            let options: PostgresOptions = self.0.url().parse().unwrap();
            let opened = runtime().spawn(async move { PostgresStore::open(&options).await });
            stores.push(Arc::new(opened.await.unwrap().unwrap()));
        }
        stores
    }

    fn keeps_claims(&self) -> bool {
        true
    }

    async fn damage(&mut self, task: TaskId) -> bool {
        let id = format!("{:032x}", task.0);
        self.0.ask(&format!("UPDATE windlass_task SET state = '\\x01ff' WHERE id = '{id}'")).unwrap();
        true
    }
}

#[test]
fn a_postgres_store_passes() {
    run_with(1);
}

#[test]
fn a_postgres_store_passes_with_two_servers() {
    run_with(2);
}

#[test]
fn postgres_and_memory_do_the_same() {
    for seed in [1, 2] {
        let Some(database) = database() else { return };
        let store = open(&database.url()).unwrap();
        differ(seed, 2_000, Arc::new(SharedStore::new([1; 32])), store);
    }
}

//! The PostgreSQL store on real servers.

mod conformance;
#[cfg(feature = "sqlite")]
mod damaged;
mod enqueued;
// Its tasks are made by what the tests of SQLite are made by.
#[cfg(feature = "sqlite")]
mod faults;
#[cfg(feature = "sqlite")]
mod leading;
mod opening;
#[cfg(feature = "sqlite")]
mod plans;
#[cfg(feature = "sqlite")]
mod snapshot;
#[cfg(feature = "sqlite")]
mod trips;

use std::{
    future::Future,
    sync::{Arc, OnceLock},
    thread,
};

use tokio::runtime::{Builder, Handle};
use windlass_conformance::block_on;
use windlass_stores::{
    OpenError,
    postgres::{PostgresOptions, PostgresStore},
};
use windlass_testkit::{Database, Postgres, PostgresProduct};

/// The runtime on which stores of tests work, on a thread of its own: tests run on others, without one.
pub(crate) fn runtime() -> &'static Handle {
    static RUNTIME: OnceLock<Handle> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let handle = runtime.handle().clone();
        thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
        handle
    })
}

/// Waits for a future that needs the runtime.
pub(crate) fn wait<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    block_on(runtime().spawn(future)).unwrap()
}

/// A database of its own on the server that tests share; nothing where PostgreSQL is not installed.
pub(crate) fn database() -> Option<Database<'static, PostgresProduct>> {
    Postgres::shared().unwrap().map(|server| server.database().unwrap())
}

/// Opens the store at a URL.
pub(crate) fn open(url: &str) -> Result<Arc<PostgresStore>, OpenError> {
    let options: PostgresOptions = url.parse()?;
    wait(async move { PostgresStore::open(&options).await.map(Arc::new) })
}

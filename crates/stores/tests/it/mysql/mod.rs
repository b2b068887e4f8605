//! The MySQL store on real MariaDB servers.

// Made of the tasks of `faults`.
#[cfg(feature = "sqlite")]
mod answers;
mod conformance;
#[cfg(feature = "sqlite")]
mod damaged;
mod enqueued;
// Its tasks are made by what the tests of SQLite are made by.
#[cfg(feature = "sqlite")]
mod faults;
#[cfg(feature = "sqlite")]
mod leading;
#[cfg(feature = "sqlite")]
mod notifying;
mod opening;
#[cfg(feature = "sqlite")]
mod snapshot;

use std::{
    future::Future,
    sync::{Arc, OnceLock},
    thread,
};

use tokio::runtime::{Builder, Handle};
use windlass_conformance::block_on;
use windlass_stores::{
    OpenError,
    mysql::{MySqlOptions, MySqlStore},
};
use windlass_testkit::{Database, MariaDb, MariaDbProduct};

/// The runtime on which stores of tests work, on a thread of its own: tests run on others, without one.
fn runtime() -> &'static Handle {
    static RUNTIME: OnceLock<Handle> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let handle = runtime.handle().clone();
        thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
        handle
    })
}

/// Waits for a future that needs the runtime.
fn wait<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    block_on(runtime().spawn(future)).unwrap()
}

/// A database of its own on the server that tests share; nothing where MariaDB is not installed.
fn database() -> Option<Database<'static, MariaDbProduct>> {
    MariaDb::shared().unwrap().map(|server| server.database().unwrap())
}

/// Opens the store at a URL.
fn open(url: &str) -> Result<Arc<MySqlStore>, OpenError> {
    let options: MySqlOptions = url.parse()?;
    wait(async move { MySqlStore::open(&options).await.map(Arc::new) })
}

//! The PostgreSQL dialect of the store that servers share (`crate::rows`): its SQL works over arrays, so that the number of
//! statements does not grow with the batch.
//!
//! ```text
//! commit:  BEGIN · read and lock ──▶ decide (crate::rows) ──▶ write and claim · COMMIT      two round trips
//!          BEGIN · write new tasks, claim · COMMIT                                          one
//! claim:   take the first in the queue that no other transaction is about to take           one
//! load:    all that belongs to some tasks                                                   one
//! ```
//!
//! | file | content |
//! |---|---|
//! | `open.rs`, `tls.rs`, `migrate.rs` | opening: the URL, checks of the server, TLS, the schema |
//! | `connection.rs`, `columns.rs`, `error.rs` | the pool, statements that go together, columns, errors |
//! | `store.rs` | the store |
//! | `find.rs`, `write.rs`, `write_waits.rs`, `commit.rs` | committing a batch |
//! | `load.rs`, `flows.rs`, `query.rs` | reading |
//! | `claim.rs`, `queues.rs`, `sessions.rs` | claims |
//! | `servers.rs`, `news.rs` | other servers |
//! | `enqueued.rs` | tasks that applications enqueue in transactions of their own |
//! | `sweep.rs`, `snapshot.rs`, `direct.rs` | deleting, exports, imports |
//!
//! # Order of locks
//!
//! A transaction locks rows kind by kind as `Keys` lists them, and each kind in the order of its keys, so no two
//! transactions wait for one another. Where new rows meet (two submits under one idempotency key) the database ends one of
//! the transactions, and the store retries it.
//!
//! # Failures
//!
//! | failure | what happens |
//! |---|---|
//! | the caller goes away | the work is completed on the store's runtime |
//! | a connection is lost | another one is used; a commit is looked up by its transaction number |
//! | the server hangs | 5 s after the time limit of the statement, the connection counts as lost |
//! | a transaction is dropped half-way | its connection is closed, which rolls back |
//! | deadlock, or a lock held too long | the work is retried, a bounded number of times |
//! | the database is unreachable | calls fail at once or after some seconds, and work once it is back |

mod claim;
mod columns;
mod commit;
mod connection;
mod direct;
mod enqueued;
mod error;
mod find;
mod flows;
mod load;
mod migrate;
mod news;
mod open;
mod query;
mod queues;
mod records;
mod servers;
mod sessions;
mod snapshot;
mod store;
mod sweep;
mod tls;
mod write;
mod write_waits;

pub use open::PostgresOptions;
pub use snapshot::PostgresSnapshot;
pub use store::PostgresStore;

use uuid::Uuid;
use windlass_core::TaskId;

/// The identifier of a task as a parameter.
fn uuid(task: TaskId) -> Uuid {
    Uuid::from_u128(task.0)
}

/// The identifiers of tasks as a parameter.
fn uuids(tasks: &[TaskId]) -> Vec<Uuid> {
    tasks.iter().map(|task| uuid(*task)).collect()
}

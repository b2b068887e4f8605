//! Rows in a PostgreSQL database, on which any number of servers work.
//!
//! Nothing is kept in a server's memory but flows, whose versions never change: versions are checked at each commit, claims
//! and leases are rows. What a batch of changes comes to is decided by `crate::rows`; SQL only reads, locks and writes,
//! over arrays, so that the number of statements does not grow with the batch.
//!
//! ```text
//! commit:  BEGIN · read and lock what is touched ──▶ decide ──▶ write all of it · COMMIT      two round trips
//!          BEGIN · write new tasks · COMMIT                                                    one
//! claim:   take the first in line that nobody else is about to take                            one
//! load:    all that belongs to some tasks                                                      one
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `open.rs`, `tls.rs`, `migrate.rs` | opening: the URL, what is checked, TLS, the schema |
//! | `connection.rs`, `error.rs` | connections, statements that go together, what is tried again |
//! | `store.rs` | the port |
//! | `commit.rs`, `find.rs`, `write.rs`, `write_waits.rs` | committing a batch |
//! | `load.rs`, `list.rs`, `flows.rs`, `newest.rs` | reading tasks and flows |
//! | `claim.rs`, `limits.rs`, `queues.rs` | handing out |
//! | `sessions.rs`, `due.rs`, `servers.rs` | workers, what is due, other servers |
//! | `enqueued.rs` | what applications enqueue in transactions of their own |
//! | `query.rs`, `sweep.rs` | events, log lines, alarms, locks; deleting what is old |
//! | `news.rs` | hearing of other servers |
//! | `snapshot.rs`, `archive.rs` | what exports read, and what imports do past servers |
//!
//! # Order of locks
//!
//! Whoever locks rows does so kind by kind as `Keys` lists them, and each kind in the order of its keys: so no two
//! transactions wait for one another. Where new rows meet (two submits under one key) the database ends one of them, and it
//! is tried again.
//!
//! # When something fails
//!
//! | what | then |
//! |---|---|
//! | whoever waits goes away | what was begun is done to its end, on the store's runtime |
//! | a connection is lost | another one is used; what was being committed is looked for by its number |
//! | the server stands still and says nothing | 5 s after a statement's time is over, it is as if the connection were lost |
//! | a transaction is dropped half-way | its connection is closed, which ends it |
//! | others are in the way (deadlock, a lock held too long) | it is tried again, a bounded number of times |
//! | the database is away | calls fail at once or after some seconds, and go on once it is back |

mod archive;
mod claim;
mod commit;
mod connection;
mod due;
mod enqueued;
mod error;
mod find;
mod flows;
mod limits;
mod list;
mod load;
mod migrate;
mod news;
mod open;
mod query;
mod queues;
mod schema;
mod servers;
mod sessions;
mod snapshot;
mod store;
mod sweep;
mod tls;
mod write;
mod write_waits;

pub use archive::PostgresArchive;
pub use open::{OpenError, PostgresOptions};
pub use schema::schema;
pub use snapshot::PostgresSnapshot;
pub use store::PostgresStore;
pub use tls::TlsError;

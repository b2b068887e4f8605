//! The MySQL and MariaDB dialect of the store that servers share (`crate::rows`). Tested on MariaDB 10.11; written for
//! MySQL 8 as well, and untested there.
//!
//! A call sends *scripts*: any number of statements with their values in them, in one round trip. Isolation is READ COMMITTED,
//! and the rows that a decision depends on are locked, kind by kind and in the order of their keys; deadlocks are retried.
//! Every connection limits how long statements and locks may take. A connection whose answers were not all read is closed,
//! so that no call reads the answers of another.
//!
//! | file | content |
//! |---|---|
//! | `open.rs`, `migrate.rs` | opening: the URL, checks of the server, the schema |
//! | `connection.rs`, `script.rs`, `cell.rs`, `columns.rs`, `error.rs` | the pool, scripts, columns, errors |
//! | `store.rs` | the store |
//! | `find.rs`, `write.rs`, `write_waits.rs`, `commit.rs` | committing a batch |
//! | `load.rs`, `flows.rs`, `query.rs` | reading |
//! | `claim.rs`, `turns.rs`, `sessions.rs` | claims |
//! | `servers.rs`, `news.rs` | other servers |
//! | `enqueued.rs` | tasks that applications enqueue in transactions of their own |
//! | `sweep.rs`, `snapshot.rs`, `direct.rs` | deleting, exports, imports |

mod cell;
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
mod script;
mod servers;
mod sessions;
mod snapshot;
mod store;
mod sweep;
mod turns;
mod write;
mod write_waits;

pub use open::MySqlOptions;
pub use snapshot::MySqlSnapshot;
pub use store::MySqlStore;

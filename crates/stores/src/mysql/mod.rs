//! The whole store port on MySQL or MariaDB: rows that any number of servers share. Tested on MariaDB 10.11; written for
//! MySQL 8 as well, and untested there.
//!
//! ```text
//! Store ─▶ commit    Keys ─▶ find: read and lock ─▶ decide (crate::rows) ─▶ write, mark, commit
//!       ─▶ claim     the first in line that nobody else is about to take; turns: one claim of a queue after the other
//!       ─▶ the rest  one script each
//! ```
//!
//! A call sends *scripts*: statements with their values in them, as many as it takes, in one trip. Isolation is READ
//! COMMITTED, and what a decision rests on is locked; rows are locked kind after kind and in the order of their keys, and
//! what is in each other's way all the same is tried again. Every connection has limits on how long statements and locks
//! may take. A call that is dropped in the middle closes its connection, so nothing is left open.
//!
//! | file | holds |
//! |---|---|
//! | `open.rs`, `migrate.rs` | from a URL to a database with today's schema |
//! | `connection.rs`, `script.rs`, `columns.rs` | connections, what is sent, what comes back |
//! | `commit.rs`, `find.rs`, `write.rs`, `write_waits.rs` | commits |
//! | `claim.rs`, `turns.rs`, `sessions.rs` | who has what |
//! | `enqueued.rs` | what applications enqueue in transactions of their own |
//! | `load.rs`, `flows.rs`, `list.rs`, `query.rs`, `queues.rs`, `limits.rs`, `due.rs` | what is asked |
//! | `servers.rs`, `sweep.rs` | servers beside this one, and what is kept too long |

mod archive;
mod claim;
mod columns;
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
mod open;
mod query;
mod queues;
mod schema;
mod script;
mod servers;
mod sessions;
mod snapshot;
mod store;
mod sweep;
mod turns;
mod write;
mod write_waits;

pub use archive::MySqlArchive;
pub use open::{MySqlOptions, OpenError};
pub use schema::schema;
pub use snapshot::MySqlSnapshot;
pub use store::MySqlStore;

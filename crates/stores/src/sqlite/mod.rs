//! Rows in one SQLite file, written by one server.
//!
//! To be completed.

mod checkpoint;
mod directory;
mod encoding;
mod error;
mod gate;
mod list;
mod lock;
mod migrate;
mod open;
mod prefill;
mod query;
mod read;
mod readers;
mod recover;
mod rows;
mod sink;
mod sweep;
mod writer;

pub use open::{OpenError, SqliteOptions};
pub use sink::SqliteSink;

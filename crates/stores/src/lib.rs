//! Stores of Windlass: one folder per product, each behind a feature of its own.
//!
//! - `sqlite` (feature `sqlite`, default): the row sink under `windlass_store::resident::Resident`. One file,
//!   nothing to install, one server.
//! - `mysql` (feature `mysql`): rows in a MySQL or MariaDB database, which any number of servers share.
//! - `postgres` (feature `postgres`): rows in a PostgreSQL database, which any number of servers share.
//!
//! Products never use one another. What a store promises is in `windlass_store`, and is shown by the
//! conformance suite there.

#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg_attr(
    not(any(feature = "mysql", feature = "postgres")),
    allow(dead_code, unused_imports, reason = "SQLite has only the codes in common with the others")
)]
mod rows;
mod schema;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use schema::Schema;

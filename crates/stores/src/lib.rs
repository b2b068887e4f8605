//! Stores of Windlass: one folder per product, each behind a feature of its own.
//!
//! - `sqlite` (feature `sqlite`, default): the row sink under `windlass_store::resident::Resident`. One file,
//!   nothing to install, one server.
//! - `mysql` (feature `mysql`): rows in a MySQL or MariaDB database, which any number of servers share.
//! - `postgres` (feature `postgres`): rows in a PostgreSQL database, which any number of servers share.
//!
//! [`connect()`] opens a database that servers share by its URL. Products never use one another. `windlass_store` has what a
//! store promises, and `windlass-conformance` the suite that shows it.

mod connect;
#[cfg_attr(
    not(any(feature = "mysql", feature = "postgres")),
    allow(dead_code, reason = "SQLite needs only some of the codes")
)]
mod encoding;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod rows;
mod schema;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use connect::{OpenError, SharedDatabase, connect, is_shared};
pub use schema::Schema;

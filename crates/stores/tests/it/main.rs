//! Stores on real files and real servers: what all of them must do, and what each can do wrong by itself.

#[cfg(feature = "sqlite")]
mod bodies;
#[cfg(feature = "sqlite")]
mod conformance;
#[cfg(feature = "sqlite")]
mod crash;
#[cfg(feature = "sqlite")]
mod damaged_rows;
#[cfg(feature = "sqlite")]
mod damaged_settings;
#[cfg(all(feature = "sqlite", any(feature = "mysql", feature = "postgres")))]
mod damaged_sql;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod disturbed;
#[cfg(feature = "sqlite")]
mod doctor;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod enqueued;
#[cfg(feature = "sqlite")]
mod failure;
#[cfg(feature = "sqlite")]
mod fixture;
#[cfg(all(feature = "sqlite", any(feature = "mysql", feature = "postgres")))]
mod leading;
#[cfg(feature = "sqlite")]
mod listing;
#[cfg(feature = "sqlite")]
mod members;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(all(feature = "sqlite", any(feature = "mysql", feature = "postgres")))]
mod newest;
#[cfg(feature = "sqlite")]
mod opening;
#[cfg(feature = "sqlite")]
mod outbox;
#[cfg(all(feature = "sqlite", any(feature = "mysql", feature = "postgres")))]
mod outgrown;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod round_trip;
#[cfg(all(feature = "sqlite", any(feature = "mysql", feature = "postgres")))]
mod snapshot;
#[cfg(feature = "sqlite")]
mod story;
#[cfg(feature = "sqlite")]
mod sweep;

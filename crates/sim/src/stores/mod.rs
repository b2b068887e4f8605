//! The stores of a world: the real resident store over a disk, and a database that several servers share.

mod database;
mod disk;

pub(crate) use database::Database;
pub(crate) use disk::Disk;

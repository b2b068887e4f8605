//! Commands that open a store by themselves, without a server: doctor, export and import, migrate.

pub(super) mod doctor;
pub(super) mod export;
pub(super) mod migrate;

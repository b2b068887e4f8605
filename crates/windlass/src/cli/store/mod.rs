//! Commands that open a store by themselves, without a server: export and import, migrate.

pub(super) mod export;
pub(super) mod migrate;

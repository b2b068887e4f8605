//! A connection past the pool, for exports and imports.

use mysql_async::{Conn, Row, prelude::Queryable as _};

use super::{
    commit::NOW,
    migrate::{READABLE_FROM, VERSION},
    open::MySqlOptions,
};
use crate::{
    OpenError,
    rows::{Direct, FILLED, Fault},
};

/// The table that only this product has beside those that imports fill.
const STATES: &str = "windlass_state";

/// A connection past the pool.
pub(super) struct DirectConnection {
    conn: Conn,
}

impl Direct for DirectConnection {
    type Options = MySqlOptions;
    type Row = Row;

    const VERSION: i64 = VERSION;
    const READABLE_FROM: i64 = READABLE_FROM;
    const HAS_TABLES: &'static str = "SELECT 1 FROM information_schema.tables
        WHERE table_schema = database() AND table_name = 'windlass_meta'";
    const NOW: &'static str = NOW;
    // Locks are known to the whole server, so the database is part of the name.
    const LOCK_IMPORT: &'static str = "SELECT get_lock(concat('windlass.import.', md5(database())), 0)";

    fn clear() -> Vec<String> {
        FILLED.iter().chain([&STATES]).map(|table| format!("DELETE FROM {table}")).collect()
    }

    async fn connect(options: &MySqlOptions) -> Result<Self, OpenError> {
        Ok(Self { conn: options.connect().await? })
    }

    async fn first(&mut self, sql: &str) -> Result<Option<Row>, Fault> {
        Ok(self.conn.query_first(sql).await?)
    }

    async fn run(&mut self, sql: &str) -> Result<(), Fault> {
        Ok(self.conn.query_drop(sql).await?)
    }

    async fn close(self) {
        // Nothing more is wanted of it.
        let _ = self.conn.disconnect().await;
    }
}

//! A connection past the pool, for exports and imports.

use tokio::task::JoinHandle;
use tokio_postgres::{Client, Row};

use super::{
    migrate::{LOCK_IMPORT_SQL, READABLE_FROM, VERSION},
    open::PostgresOptions,
};
use crate::{
    OpenError,
    rows::{Direct, FILLED, Fault},
};

/// A connection past the pool.
pub(super) struct DirectConnection {
    client: Client,
    /// It ends with its client.
    driver: JoinHandle<Result<(), tokio_postgres::Error>>,
}

impl Direct for DirectConnection {
    type Options = PostgresOptions;
    type Row = Row;

    const VERSION: i64 = VERSION;
    const READABLE_FROM: i64 = READABLE_FROM;
    const HAS_TABLES: &'static str = "SELECT 1 WHERE to_regclass('windlass_meta') IS NOT NULL";
    const NOW: &'static str = "floor(extract(epoch FROM clock_timestamp()) * 1000)::int8";
    const LOCK_IMPORT: &'static str = LOCK_IMPORT_SQL;

    fn clear() -> Vec<String> {
        vec![format!("TRUNCATE {}", FILLED.join(", "))]
    }

    async fn connect(options: &PostgresOptions) -> Result<Self, OpenError> {
        let (client, connection) = options.connect().await?;
        Ok(Self { client, driver: tokio::spawn(connection) })
    }

    async fn first(&mut self, sql: &str) -> Result<Option<Row>, Fault> {
        Ok(self.client.query(sql, &[]).await?.into_iter().next())
    }

    async fn run(&mut self, sql: &str) -> Result<(), Fault> {
        Ok(self.client.batch_execute(sql).await?)
    }

    async fn close(self) {
        drop(self.client);
        // It ends with its client, whatever became of the connection.
        let _ = self.driver.await;
    }
}

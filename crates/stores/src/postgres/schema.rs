//! Which version the tables are of, without a change to them.

use tokio_postgres::Client;

use super::{
    migrate::VERSION,
    open::{OpenError, PostgresOptions},
};
use crate::Schema;

/// Tells the version of the tables in a database, and changes nothing.
///
/// # Errors
/// When it cannot be reached or read.
pub async fn schema(options: &PostgresOptions) -> Result<Schema, OpenError> {
    let (client, connection) = options.connect().await?;
    let driver = tokio::spawn(connection);
    let schema = read(&client).await;
    drop(client);
    // It ends with its client.
    let _ = driver.await;
    schema
}

async fn read(client: &Client) -> Result<Schema, OpenError> {
    let failed = |error: tokio_postgres::Error| OpenError::migration(&error);
    let known = i64::from(VERSION);
    let is_there = client.query_one("SELECT to_regclass('windlass_meta') IS NOT NULL", &[]).await;
    if !is_there.and_then(|row| row.try_get(0)).map_err(failed)? {
        return Ok(Schema { found: 0, readable_from: 0, known });
    }
    let sql = "SELECT schema_version::int8, readable_from::int8 FROM windlass_meta";
    let row = client.query_one(sql, &[]).await.map_err(failed)?;
    let (found, readable_from) = (row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?);
    Ok(Schema { found, readable_from, known })
}

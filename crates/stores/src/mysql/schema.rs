//! Which version the tables are of, without a change to them.

use mysql_async::{Conn, prelude::Queryable as _};

use super::{
    migrate::VERSION,
    open::{MySqlOptions, OpenError},
};
use crate::Schema;

/// Tells the version of the tables in a database, and changes nothing.
///
/// # Errors
/// When it cannot be reached or read.
pub async fn schema(options: &MySqlOptions) -> Result<Schema, OpenError> {
    let mut conn = options.connect().await?;
    let schema = read(&mut conn).await;
    // It has told all that is wanted of it.
    let _ = conn.disconnect().await;
    schema
}

async fn read(conn: &mut Conn) -> Result<Schema, OpenError> {
    let failed = |error: mysql_async::Error| OpenError::migration(&error);
    let is_there = "SELECT 1 FROM information_schema.tables
        WHERE table_schema = database() AND table_name = 'windlass_meta'";
    let is_there: Option<i64> = conn.query_first(is_there).await.map_err(failed)?;
    let versions: Option<(i64, i64)> = match is_there {
        Some(_) => {
            let sql = "SELECT schema_version, readable_from FROM windlass_meta";
            conn.query_first(sql).await.map_err(failed)?
        }
        None => None,
    };
    let (found, readable_from) = versions.unwrap_or((0, 0));
    Ok(Schema { found, readable_from, known: VERSION })
}

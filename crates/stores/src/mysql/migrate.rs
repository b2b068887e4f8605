//! The schema and its versions.

use mysql_async::{Conn, prelude::Queryable as _};
use windlass_core::hex;

use super::{commit::NOW, open::migration};
use crate::{OpenError, rows::check_readable};

/// Every step from nothing to today's schema, in order; the version is their number. A step that was released is never
/// changed, only followed by another. Each says from which version on servers can work on what it makes: where that is
/// the one before, servers of both versions work side by side while they are replaced one by one.
///
/// Statements that define tables commit by themselves here, so a step is made of such that may be run again.
const MIGRATIONS: &[(&str, i64)] = &[
    (include_str!("migrations/0001.sql"), 1),
    (include_str!("migrations/0002.sql"), 1),
    (include_str!("migrations/0003.sql"), 1),
    // Servers that know no floor of locks would let fences go back.
    (include_str!("migrations/0004.sql"), 4),
    // Servers that know no exclusive queues cannot read format 4.
    (include_str!("migrations/0005.sql"), 5),
    // Older servers export no records.
    (include_str!("migrations/0006.sql"), 6),
];

/// The version that this program makes and writes.
pub(super) const VERSION: i64 = MIGRATIONS.len() as i64;

/// The lowest version that servers must know to work on what this program makes.
pub(super) const READABLE_FROM: i64 = MIGRATIONS[MIGRATIONS.len() - 1].1;

/// Held while the schema is looked at and changed, so that servers that start at once do it one after the other. Such
/// locks are known to the whole server, so the database is part of the name.
const LOCK: &str = "concat('windlass.', md5(database()))";

/// The column has 32 bytes, so it is the row that is missing.
const NO_TOKEN_KEY: &str = "the row of the table windlass_meta, which has the key of the tokens, is missing. Restore it from a backup";

/// Brings the schema to [`VERSION`]. Gives the key that tokens are signed with.
pub(super) async fn migrate(conn: &mut Conn, fresh_key: [u8; 32]) -> Result<[u8; 32], OpenError> {
    let failed = |error: mysql_async::Error| migration(&error);
    let locked: Option<Option<i64>> =
        conn.query_first(format!("SELECT get_lock({LOCK}, 60)")).await.map_err(failed)?;
    if locked.flatten() != Some(1) {
        return Err(OpenError::Locked);
    }
    let migrated = migrate_alone(conn, fresh_key).await;
    let released = conn.query_drop(format!("DO release_lock({LOCK})")).await.map_err(failed);
    let key = migrated?;
    released?;
    Ok(key)
}

async fn migrate_alone(conn: &mut Conn, fresh_key: [u8; 32]) -> Result<[u8; 32], OpenError> {
    let failed = |error: mysql_async::Error| migration(&error);
    let known: Option<i64> = conn
        .query_first(
            "SELECT 1 FROM information_schema.tables
             WHERE table_schema = database() AND table_name = 'windlass_meta'",
        )
        .await
        .map_err(failed)?;
    let meta: Option<(i64, i64)> = match known {
        Some(_) => conn
            .query_first("SELECT schema_version, readable_from FROM windlass_meta")
            .await
            .map_err(failed)?,
        None => None,
    };
    let (found, readable_from) = meta.unwrap_or((0, 0));
    check_readable(found, readable_from, VERSION)?;
    let steps = (1_i64..).zip(MIGRATIONS).skip(usize::try_from(found).unwrap_or(0));
    for (version, (sql, readable_from)) in steps {
        conn.query_drop(*sql).await.map_err(failed)?;
        let digits = hex(&fresh_key);
        let note = format!(
            "INSERT INTO windlass_meta (one, schema_version, readable_from, created_at, token_key, probed)
             VALUES (1, {version}, {readable_from}, {NOW}, x'{digits}', 0)
             ON DUPLICATE KEY UPDATE schema_version = {version}, readable_from = {readable_from}"
        );
        conn.query_drop(note).await.map_err(failed)?;
    }
    let key: Option<Vec<u8>> =
        conn.query_first("SELECT token_key FROM windlass_meta").await.map_err(failed)?;
    let key = key.and_then(|key| key.try_into().ok());
    key.ok_or_else(|| OpenError::Damaged(NO_TOKEN_KEY.to_owned()))
}

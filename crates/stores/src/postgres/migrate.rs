//! The schema: its version, the way from older ones, and how far back servers may be to work on it.

use tokio_postgres::Client;

use super::open::migration;
use crate::{OpenError, rows::check_readable};

/// The steps from one version to the next; the version is their number. A step that was released is never changed, only
/// followed by another. Each says from which version on servers can work on what it makes: where that is the one before,
/// servers of both versions work side by side while they are replaced one by one.
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

/// Takes the lock that is held while an import fills the tables: the number behind [`LOCK`].
pub(super) const LOCK_IMPORT_SQL: &str = "SELECT pg_try_advisory_lock(6300083343757148162)";

/// Held while the schema is looked at and changed, so that servers that start at once do it one after the other: "Wndl"
/// and a number.
const LOCK: i64 = 0x576e_646c_0000_0001;

const _: () = assert!(LOCK + 1 == 6_300_083_343_757_148_162, "the number in LOCK_IMPORT_SQL");

/// Other servers may still have the key, so a start does not replace it: each would refuse the tokens of the others.
const NO_TOKEN_KEY: &str = "the key of the tokens (table windlass_meta, column token_key) does not have 32 bytes. Restore it from \
    a backup; or stop all servers and make a new key, which has steps that workers have handed out again: UPDATE \
    windlass_meta SET token_key = sha256((gen_random_uuid()::text || gen_random_uuid()::text)::bytea)";

/// Brings the schema to [`VERSION`], all of it or nothing. Gives the key that tokens are signed with.
pub(super) async fn migrate(client: &mut Client, fresh_key: [u8; 32]) -> Result<[u8; 32], OpenError> {
    let failed = |error: tokio_postgres::Error| migration(&error);
    let transaction = client.transaction().await.map_err(failed)?;
    transaction.query_one("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await.map_err(failed)?;
    let known = transaction.query_one("SELECT to_regclass('windlass_meta') IS NOT NULL", &[]).await;
    let known: bool = known.and_then(|row| row.try_get(0)).map_err(failed)?;
    let (found, readable_from) = if known {
        let meta = transaction
            .query_one("SELECT schema_version::int8, readable_from::int8 FROM windlass_meta", &[])
            .await;
        let meta = meta.map_err(failed)?;
        (meta.try_get(0).map_err(failed)?, meta.try_get(1).map_err(failed)?)
    } else {
        (0_i64, 0_i64)
    };
    check_readable(found, readable_from, VERSION)?;
    let steps = MIGRATIONS.iter().skip(usize::try_from(found).unwrap_or(0));
    for (sql, readable_from) in steps {
        transaction.batch_execute(sql).await.map_err(failed)?;
        if !known {
            let found = "INSERT INTO windlass_meta
                (schema_version, readable_from, created_at, token_key, probed)
                SELECT 0, 0, floor(extract(epoch FROM clock_timestamp()) * 1000)::int8, $1, 0
                WHERE NOT EXISTS (SELECT FROM windlass_meta)";
            transaction.execute(found, &[&&fresh_key[..]]).await.map_err(failed)?;
        }
        let note = "UPDATE windlass_meta SET schema_version = schema_version + 1, readable_from = $1::int8";
        transaction.execute(note, &[readable_from]).await.map_err(failed)?;
    }
    let key = transaction.query_one("SELECT token_key FROM windlass_meta", &[]).await.map_err(failed)?;
    let key: Vec<u8> = key.try_get(0).map_err(failed)?;
    transaction.commit().await.map_err(failed)?;
    key.try_into().map_err(|_| OpenError::Damaged(NO_TOKEN_KEY.to_owned()))
}

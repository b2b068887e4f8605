//! The file's format: who it belongs to, its version, and the way from older ones.

use rusqlite::{Connection, Transaction, TransactionBehavior, params};

use super::{checksum::Table, lock_rows, resting};

/// Marks the file as one of Windlass: "Wndl" in ASCII, in SQLite's `application_id`.
pub(super) const APPLICATION_ID: i32 = 0x576e_646c;

/// The steps from one version to the next; the version is their number. A step that was released is never
/// changed, only followed by another.
const MIGRATIONS: &[(&str, Rewrite)] = &[
    (include_str!("migrations/0001.sql"), |_| Ok(())),
    (include_str!("migrations/0002.sql"), resting::lay_down_scheduled),
    (include_str!("migrations/0003.sql"), |_| Ok(())),
    (include_str!("migrations/0004.sql"), |_| Ok(())),
    (include_str!("migrations/0005.sql"), |_| Ok(())),
    (include_str!("migrations/0006.sql"), |_| Ok(())),
    (include_str!("migrations/0007.sql"), |_| Ok(())),
    (include_str!("migrations/0008.sql"), |_| Ok(())),
    (include_str!("migrations/0009.sql"), lock_rows::found_floor),
    (include_str!("migrations/0010.sql"), |_| Ok(())),
    (include_str!("migrations/0011.sql"), |_| Ok(())),
];

/// What a step does with the rows that are there, beyond what SQL can say.
type Rewrite = fn(&Connection) -> rusqlite::Result<()>;

/// The version this program writes.
pub(super) const VERSION: i32 = MIGRATIONS.len() as i32;

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// Nothing is in it.
    Empty,
    /// A store of Windlass in this version, which may be newer than this program.
    Windlass(i32),
    /// A database of another program.
    Foreign,
}

/// Returns what the file is.
pub(super) fn format(connection: &Connection) -> rusqlite::Result<Format> {
    let application: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let version: i32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let objects: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(match application {
        APPLICATION_ID => Format::Windlass(version),
        0 if version == 0 && objects == 0 => Format::Empty,
        _ => Format::Foreign,
    })
}

/// Brings the file from version `from` to [`VERSION`], all of it or nothing. From 0 it makes a new store, with
/// `token_key` to sign its tokens.
pub(super) fn migrate(connection: &mut Connection, from: i32, token_key: &[u8; 32]) -> rusqlite::Result<()> {
    let done = usize::try_from(from).unwrap_or(0);
    if done >= MIGRATIONS.len() {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for (migration, rewrite) in &MIGRATIONS[done..] {
        transaction.execute_batch(migration)?;
        if from > 0 {
            rewrite(&transaction)?;
        }
    }
    if from == 0 {
        found(&transaction, token_key)?;
    }
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()
}

fn found(transaction: &Transaction<'_>, token_key: &[u8; 32]) -> rusqlite::Result<()> {
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.execute(
        "INSERT INTO meta (one, created_at, epoch, latest_at, token_key)
         VALUES (1, CAST(unixepoch('subsec') * 1000 AS INTEGER), 0, 0, ?1)",
        params![token_key],
    )?;
    Table::Meta.seal(transaction, "one = 1", &[])
}

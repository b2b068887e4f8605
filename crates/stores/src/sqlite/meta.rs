//! The one row about the file itself, as the writer keeps it, and what becomes of it when it is damaged.

use rusqlite::{Connection, OptionalExtension, params};
use windlass_core::Timestamp;
use windlass_store::DamagedTask;

use super::{
    checksum::{Checksum, Table},
    encoding::from_integer,
    error::{Fault, or_reason},
    recover::select_all,
};

/// What is written into `meta` with every later time. All but that time stays as it is while a server runs.
#[derive(Debug)]
pub(super) struct Meta {
    /// The latest time written.
    pub(super) latest_at: Timestamp,
    /// The checksum of what comes before the time,
    before: Checksum,
    /// and what comes after it.
    token_key: [u8; 32],
    unchecked_to: i64,
}

impl Meta {
    /// Reads the row.
    pub(super) fn read(connection: &Connection) -> rusqlite::Result<Self> {
        connection.query_row(&select_all(Table::Meta), [], |row| {
            let mut before = Checksum::of(Table::Meta);
            before.number(row.get(0)?).number(row.get(1)?).number(row.get(2)?);
            Ok(Self {
                latest_at: Timestamp(row.get(3)?),
                before,
                token_key: row.get(4)?,
                unchecked_to: row.get(5)?,
            })
        })
    }

    /// The checksum of the row with this time.
    pub(super) fn checksum(&self, latest_at: Timestamp) -> i64 {
        let mut checksum = self.before.clone();
        checksum.number(latest_at.0).blob(&self.token_key).number(self.unchecked_to).finish()
    }
}

/// A file that was opened more often has a damaged number: claim numbers have room for sixteen times as many starts.
const EPOCH_PLAUSIBLE_MAX: u32 = 1 << 20;

/// The epochs skipped when their number is damaged: more than a file was opened, unless that was very often.
const EPOCHS_SKIPPED: u32 = 1 << 10;

/// Where the epoch begins in the number of a claim.
const EPOCH_BITS: u32 = 40;

/// Writes a damaged row again, in the transaction that is open, and returns what was wrong. Nobody knows which column is
/// damaged. So the key of the tokens is a new one: no token of the old key counts. The epoch and the time are at least what
/// the other rows say that they were.
pub(super) fn mend(connection: &Connection) -> Result<Option<DamagedTask>, Fault> {
    let checked = connection.query_row_and_then(&select_all(Table::Meta), [], |row| {
        Table::Meta.check(row, 0)?;
        Ok::<_, Fault>(row.get::<_, [u8; 32]>(4).map(drop)?)
    });
    let Err(fault) = or_reason(checked)? else { return Ok(None) };
    let read = connection
        .query_row("SELECT created_at, epoch, latest_at, unchecked_to FROM meta", [], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })
        .optional()?;
    let (created_at, epoch, latest_at, unchecked_to): (i64, i64, i64, i64) = read.unwrap_or_default();
    let claimed = connection.query_row("SELECT max(number) FROM claim", [], |row| row.get(0).map(number))?;
    let claimed = u32::try_from(claimed >> EPOCH_BITS).unwrap_or(0);
    let plausible = |epoch: &u32| *epoch < EPOCH_PLAUSIBLE_MAX;
    let epochs = [u32::try_from(epoch).unwrap_or(0), claimed];
    let epoch = epochs.into_iter().filter(plausible).max().unwrap_or(0) + EPOCHS_SKIPPED;
    // A time that is ahead of the machine's may be what is damaged. The newest task was not submitted later.
    let newest = connection
        .query_row(&newest_task(), [], |row| {
            Table::Task.is_as_written(row, 0)?.unwrap_or(true).then(|| row.get(4)).transpose()
        })
        .optional()?;
    let now: i64 = connection.query_row(NOW, [], |row| row.get(0))?;
    let latest_at = latest_at.min(now).max(newest.flatten().unwrap_or(0));
    let mut token_key = [0_u8; 32];
    getrandom::fill(&mut token_key)
        .map_err(|error| Fault::unavailable(format!("no random bytes for a new key of tokens: {error}")))?;
    connection.execute("DELETE FROM meta", [])?;
    connection.execute(
        "INSERT INTO meta (one, created_at, epoch, latest_at, token_key, unchecked_to) VALUES (1, ?1, ?2, ?3, ?4, ?5)",
        params![created_at, epoch, latest_at, token_key, unchecked_to],
    )?;
    Table::Meta.seal(connection, "one = 1", &[])?;
    Ok(Some(DamagedTask::meta(fault)))
}

const NOW: &str = "SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER)";

fn newest_task() -> String {
    format!("SELECT {} FROM task ORDER BY n DESC LIMIT 1", Table::Task.select())
}

fn number(value: Option<i64>) -> u64 {
    value.map_or(0, from_integer)
}

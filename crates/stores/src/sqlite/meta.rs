//! The one row about the file itself, as the writer keeps it.

use rusqlite::Connection;
use windlass_core::Timestamp;

use super::{
    checksum::{Checksum, Table},
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

//! A checksum in every row, of all its columns.
//!
//! SQLite notices damage to the structure of the file, and none inside a value: a changed bit in a number or a text
//! would be reported as if it had been written. So each row carries the CRC-32C of its table and of all its columns, its
//! key among them: what lies under another key, or in another table, is noticed as well. It is checked wherever a
//! row is read that is reported or built upon; [`doctor`](super::doctor()) checks all.
//!
//! Rows that were written before format 3 have none, until they are written again; up to which task that may be so
//! is in `meta.unchecked_to`.

use rusqlite::{Connection, OptionalExtension, Row, params_from_iter, types::ValueRef};

use super::{encoding::from_integer, error::Fault};

/// The tables whose rows have a checksum. Their order is part of it: new ones come last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Table {
    Task,
    Active,
    Resting,
    Final,
    History,
    SubmitKey,
    Message,
    Alarm,
    Flow,
    Queue,
    Line,
    Log,
    Meta,
    Member,
    Limit,
    Unique,
    Lock,
    LockWaiter,
    FlowRetention,
    Outbox,
    LockFloor,
    Claim,
    Record,
    Journal,
}

impl Table {
    pub(super) const ALL: [Self; 24] = [
        Self::Task,
        Self::Active,
        Self::Resting,
        Self::Final,
        Self::History,
        Self::SubmitKey,
        Self::Message,
        Self::Alarm,
        Self::Flow,
        Self::Queue,
        Self::Line,
        Self::Log,
        Self::Meta,
        Self::Member,
        Self::Limit,
        Self::Unique,
        Self::Lock,
        Self::LockWaiter,
        Self::FlowRetention,
        Self::Outbox,
        Self::LockFloor,
        Self::Claim,
        Self::Record,
        Self::Journal,
    ];

    /// Its name.
    pub(super) fn name(self) -> &'static str {
        self.definition().0
    }

    /// What the checksum is of, in this order. `submit_key.orphan` is not: it changes by itself, and says only when
    /// a row may be deleted.
    fn columns(self) -> &'static [&'static str] {
        self.definition().1
    }

    fn definition(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Task => ("task", &["n", "id", "flow", "version", "created_at", "head", "params", "scope"]),
            Self::Active => ("active", &["task", "last", "state"]),
            Self::Resting => (
                "resting",
                &["id", "task", "last", "wake_at", "never_handed_out", "module", "command", "rank", "state"],
            ),
            Self::Final => ("final", &["status", "id", "task", "last", "ended_at", "state"]),
            Self::History => {
                ("history", &["seq", "task", "previous", "first", "count", "act", "events", "result"])
            }
            Self::SubmitKey => ("submit_key", &["scope", "fingerprint", "task", "created_at"]),
            Self::Message => ("message", &["task", "n", "data"]),
            Self::Alarm => ("alarm", &["id", "version", "task", "resolved", "raised_at", "data"]),
            Self::Flow => ("flow", &["name", "version", "created_at", "data"]),
            Self::Queue => ("queue", &["name", "paused_at", "by_name", "by_claimed"]),
            Self::Line => ("line", &["module", "command", "rank", "id"]),
            Self::Log => ("log", &["seq", "task", "act", "attempt", "at", "line"]),
            Self::Limit => {
                ("limit_rule", &["name", "queue", "command", "per_key", "running", "starts", "per"])
            }
            Self::Unique => ("unique_task", &["flow", "key", "task"]),
            Self::Meta => ("meta", &["one", "created_at", "epoch", "latest_at", "token_key", "unchecked_to"]),
            Self::Member => ("member", &["task", "step", "number", "state"]),
            Self::Lock => ("lock", &["name", "version", "holder"]),
            Self::LockWaiter => ("lock_waiter", &["name", "place", "waiter"]),
            Self::FlowRetention => ("flow_retention", &["name", "version", "kept"]),
            Self::Outbox => ("outbox", &["id", "after", "seq"]),
            Self::LockFloor => ("lock_floor", &["one", "version"]),
            Self::Claim => ("claim", &["task", "act", "attempt", "number", "session", "at"]),
            Self::Record => ("record", &["kind", "name", "version", "body"]),
            Self::Journal => ("journal", &["seq", "kind", "subject", "at", "body"]),
        }
    }

    /// All columns that [`Table::check`] needs, for a query: the checksum is the last.
    pub(super) fn select(self) -> String {
        let columns: Vec<String> = self
            .columns()
            .iter()
            .chain(&["checksum"])
            .map(|column| format!("{}.{column}", self.name()))
            .collect();
        columns.join(", ")
    }

    /// How many columns [`Table::select`] has.
    pub(super) fn width(self) -> usize {
        self.columns().len() + 1
    }

    /// Checks a row that has the columns of [`Table::select`] from number `from` on.
    pub(super) fn check(self, row: &Row<'_>, from: usize) -> Result<(), Fault> {
        match self.is_as_written(row, from)? {
            Some(false) => Err(Fault::damaged(format!(
                "a row of the table {} is not as it was written: its checksum differs",
                self.name()
            ))),
            // It is older than checksums are.
            Some(true) | None => Ok(()),
        }
    }

    /// Whether a row agrees with its checksum; nothing where it has none.
    pub(super) fn is_as_written(self, row: &Row<'_>, from: usize) -> rusqlite::Result<Option<bool>> {
        let columns = self.columns().len();
        let Some(written) = row.get::<_, Option<i64>>(from + columns)? else { return Ok(None) };
        let mut checksum = Checksum::of(self);
        for column in from..from + columns {
            checksum.value(row.get_ref(column)?);
        }
        Ok(Some(checksum.finish() == written))
    }

    /// Which column has the number of a task, if any.
    pub(super) fn number_column(self) -> Option<usize> {
        match self {
            Self::Task | Self::Active | Self::Member => Some(0),
            Self::Resting | Self::History => Some(1),
            Self::Final => Some(2),
            _ => None,
        }
    }

    /// Whether a row may have no checksum, where rows up to the task `unchecked_to` may have none.
    pub(super) fn may_be_unchecked(self, row: &Row<'_>, unchecked_to: u64) -> rusqlite::Result<bool> {
        match self.number_column() {
            Some(column) => Ok(from_integer(row.get(column)?) <= unchecked_to),
            None => Ok(unchecked_to > 0),
        }
    }

    /// Gives a row its checksum that was written by SQL alone; `condition` finds it by the parameters `key`.
    pub(super) fn seal(self, connection: &Connection, condition: &str, key: &[&str]) -> rusqlite::Result<()> {
        let name = self.name();
        let sql = format!("SELECT {} FROM {name} WHERE {condition}", self.select());
        let checksum = connection.query_row(&sql, params_from_iter(key), |row| {
            let mut checksum = Checksum::of(self);
            for column in 0..self.columns().len() {
                checksum.value(row.get_ref(column)?);
            }
            Ok(checksum.finish())
        })?;
        let sql = format!("UPDATE {name} SET checksum = {checksum} WHERE {condition}");
        connection.execute(&sql, params_from_iter(key))?;
        Ok(())
    }
}

/// Up to which task rows may have no checksum; 0: all have one.
pub(super) fn unchecked_to(connection: &Connection) -> rusqlite::Result<u64> {
    let read = connection
        .query_row("SELECT unchecked_to FROM meta", [], |row| row.get(0).map(from_integer))
        .optional()?;
    Ok(read.unwrap_or(0))
}

/// How much is gathered before it is added up: most rows are small numbers and short texts.
const GATHERED_BYTES: usize = 128;

/// What is added of each column before its bytes: its type, and the number itself or the length.
const HEAD_BYTES: usize = 9;

/// A checksum in the making. Columns are added in the order of the table, each with its type and length.
#[derive(Debug, Clone)]
pub(super) struct Checksum {
    sum: u32,
    gathered: [u8; GATHERED_BYTES],
    length: usize,
}

impl Checksum {
    /// The checksum of a row of `table` without its columns.
    pub(super) fn of(table: Table) -> Self {
        Self { sum: table as u32, gathered: [0; GATHERED_BYTES], length: 0 }
    }

    fn value(&mut self, value: ValueRef<'_>) {
        match value {
            ValueRef::Null => self.add(0, 0),
            ValueRef::Integer(number) => self.add(1, number),
            ValueRef::Text(bytes) => self.add_bytes(2, bytes),
            ValueRef::Blob(bytes) => self.add_bytes(3, bytes),
            // No column has these.
            ValueRef::Real(number) => self.add_bytes(4, &number.to_le_bytes()),
        }
    }

    /// Adds the type of a column, and a number or a length.
    fn add(&mut self, kind: u8, number: i64) {
        if self.length + HEAD_BYTES > GATHERED_BYTES {
            self.add_up();
        }
        let head = &mut self.gathered[self.length..self.length + HEAD_BYTES];
        head[0] = kind;
        head[1..].copy_from_slice(&number.to_le_bytes());
        self.length += HEAD_BYTES;
    }

    fn add_bytes(&mut self, kind: u8, bytes: &[u8]) {
        self.add(kind, bytes.len() as i64);
        if self.length + bytes.len() > GATHERED_BYTES {
            self.add_up();
            self.sum = crc32c::crc32c_append(self.sum, bytes);
        } else {
            self.gathered[self.length..self.length + bytes.len()].copy_from_slice(bytes);
            self.length += bytes.len();
        }
    }

    fn add_up(&mut self) {
        self.sum = crc32c::crc32c_append(self.sum, &self.gathered[..self.length]);
        self.length = 0;
    }

    /// Adds a number.
    pub(super) fn number(&mut self, number: i64) -> &mut Self {
        self.add(1, number);
        self
    }

    /// Adds a number that may be missing.
    pub(super) fn optional_number(&mut self, number: Option<i64>) -> &mut Self {
        self.value(number.map_or(ValueRef::Null, ValueRef::Integer));
        self
    }

    /// Adds a text.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.add_bytes(2, text.as_bytes());
        self
    }

    /// Adds a text that may be missing.
    pub(super) fn optional_text(&mut self, text: Option<&str>) -> &mut Self {
        self.value(text.map_or(ValueRef::Null, |text| ValueRef::Text(text.as_bytes())));
        self
    }

    /// Adds bytes.
    pub(super) fn blob(&mut self, bytes: &[u8]) -> &mut Self {
        self.add_bytes(3, bytes);
        self
    }

    /// Adds bytes that may be missing.
    pub(super) fn optional_blob(&mut self, bytes: Option<&[u8]>) -> &mut Self {
        self.value(bytes.map_or(ValueRef::Null, ValueRef::Blob));
        self
    }

    /// What is written into the column.
    pub(super) fn finish(&self) -> i64 {
        i64::from(crc32c::crc32c_append(self.sum, &self.gathered[..self.length]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_counts_and_its_place() {
        let sum = |texts: &[&str]| {
            let mut checksum = Checksum::of(Table::Log);
            texts.iter().for_each(|text| checksum.value(ValueRef::Text(text.as_bytes())));
            checksum.finish()
        };
        let long = "x".repeat(1_000);
        let rows: [&[&str]; 7] = [&[], &[""], &["ab", "c"], &["a", "bc"], &["abc"], &[&long], &[&long, ""]];
        for (index, row) in rows.iter().enumerate() {
            assert!(rows[..index].iter().all(|other| sum(other) != sum(row)), "{row:?}");
        }
        let number = Checksum::of(Table::Log).number(1).finish();
        assert_ne!(number, Checksum::of(Table::Line).number(1).finish());
        assert_ne!(number, Checksum::of(Table::Log).optional_number(None).finish());
    }

    /// What is in files was computed like this: the numbers of tables and types stay as they are.
    #[test]
    fn a_checksum_is_the_same_in_every_version() {
        let mut checksum = Checksum::of(Table::Log);
        let sum = checksum.number(-5).text("text").blob(&[0, 255]).optional_number(None).finish();
        assert_eq!(sum, 2_796_606_880);
    }
}

//! The rows of records and journals.

use rusqlite::{Connection, Row, Statement, params};
use windlass_core::Timestamp;
use windlass_store::{
    DamagedTask, JournalEntry, JournalKind, JournalQuery, JournalSize, Now, Record, RecordChange, RecordKind,
    Retention, SizeQuery,
};

use crate::sqlite::{
    checksum::{Checksum, Table},
    encoding::{from_integer, to_integer},
    error::{Fault, or_reason},
    read::{any_text, from_sql, name},
    recover::select_all,
};

/// The statements that write records and journals.
pub(in crate::sqlite) struct RecordRows<'c> {
    upsert: Statement<'c>,
    delete: Statement<'c>,
    append: Statement<'c>,
    next_entry: i64,
}

impl<'c> RecordRows<'c> {
    pub(in crate::sqlite) fn new(connection: &'c Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            upsert: connection.prepare(
                "INSERT INTO record (kind, name, version, body, checksum) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (kind, name) DO UPDATE SET version = ?3, body = ?4, checksum = ?5",
            )?,
            delete: connection.prepare("DELETE FROM record WHERE kind = ?1 AND name = ?2")?,
            append: connection.prepare(
                "INSERT INTO journal (seq, kind, subject, at, body, checksum) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?,
            next_entry: connection
                .query_row("SELECT coalesce(max(seq), 0) + 1 FROM journal", [], |row| row.get(0))?,
        })
    }

    /// Writes a record, or deletes it.
    pub(in crate::sqlite) fn write(&mut self, change: &RecordChange) -> Result<(), Fault> {
        let (kind, name, version) = (change.kind.code(), change.name.as_str(), to_integer(change.version));
        let Some(body) = &change.body else {
            self.delete.execute(params![kind, name])?;
            return Ok(());
        };
        let checksum =
            Checksum::of(Table::Record).number(kind).text(name).number(version).blob(body).finish();
        self.upsert.execute(params![kind, name, version, &**body, checksum])?;
        Ok(())
    }

    /// Adds entries to journals.
    pub(in crate::sqlite) fn append(&mut self, entries: &[JournalEntry]) -> Result<(), Fault> {
        for JournalEntry { kind, subject, at, body } in entries {
            let (seq, kind, subject) = (self.next_entry, kind.code(), subject.as_str());
            self.next_entry += 1;
            let checksum = Checksum::of(Table::Journal)
                .number(seq)
                .number(kind)
                .text(subject)
                .number(at.0)
                .blob(body)
                .finish();
            self.append.execute(params![seq, kind, subject, at.0, &**body, checksum])?;
        }
        Ok(())
    }
}

/// All records. What is wrong with damaged ones is added to `damage`.
pub(in crate::sqlite) fn read(
    connection: &Connection,
    damage: &mut Vec<DamagedTask>,
) -> Result<Vec<Record>, Fault> {
    let mut statement = connection.prepare(&select_all(Table::Record))?;
    let mut rows = statement.query([])?;
    let mut records = Vec::new();
    while let Some(row) = rows.next()? {
        match or_reason(record(row))? {
            Ok(record) => records.push(record),
            Err(fault) => {
                let kind = row.get(0).ok().and_then(RecordKind::from_code);
                let kind = kind.map_or("record", RecordKind::as_str);
                damage.push(DamagedTask::record(kind, &any_text(row, 1), fault));
            }
        }
    }
    Ok(records)
}

fn record(row: &Row<'_>) -> Result<Record, Fault> {
    Table::Record.check(row, 0)?;
    let code = row.get(0)?;
    let kind = RecordKind::from_code(code)
        .ok_or_else(|| Fault::damaged(format!("there is no kind of record with the number {code}")))?;
    let body = row.get_ref(3)?.as_blob().map_err(from_sql)?.into();
    Ok(Record { kind, name: name(row, 1)?, version: from_integer(row.get(2)?), body })
}

// A test looks at their plans.
pub(in crate::sqlite) fn select_journal_of() -> String {
    format!(
        "SELECT {} FROM journal WHERE kind = ?1 AND subject = ?2 AND seq < ?3 ORDER BY seq DESC LIMIT ?4",
        Table::Journal.select()
    )
}

/// Walks back from the newest entry of all kinds; most are messages of devices. By the index over kind and time, SQLite would
/// sort all entries of the kind for each page. The `+` keeps it from that.
pub(in crate::sqlite) fn select_journal() -> String {
    format!(
        "SELECT {} FROM journal WHERE +kind = ?1 AND seq < ?2 ORDER BY seq DESC LIMIT ?3",
        Table::Journal.select()
    )
}

pub(in crate::sqlite) const SELECT_OLD_ENTRIES: &str =
    "SELECT seq FROM journal WHERE kind = ?1 AND at <= ?2 ORDER BY at LIMIT ?3";

/// Entries of a journal, the newest first, without damaged ones.
pub(in crate::sqlite) fn journal(
    connection: &Connection,
    query: &JournalQuery,
) -> Result<Vec<(u64, JournalEntry)>, Fault> {
    let before = query.before.map_or(i64::MAX, to_integer);
    let limit = to_integer(query.limit as u64);
    let kind = query.kind.code();
    let mut statement;
    let mut rows = match &query.subject {
        Some(subject) => {
            statement = connection.prepare_cached(&select_journal_of())?;
            statement.query(params![kind, subject.as_str(), before, limit])?
        }
        None => {
            statement = connection.prepare_cached(&select_journal())?;
            statement.query(params![kind, before, limit])?
        }
    };
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        match or_reason(entry(row, query.kind))? {
            Ok(entry) => found.push((from_integer(row.get(0)?), entry)),
            Err(fault) => tracing::warn!(%fault, "an entry of a journal is left out"),
        }
    }
    Ok(found)
}

pub(in crate::sqlite) const SELECT_SIZES: &str = "SELECT at, seq, length(body) FROM journal
    WHERE kind = ?1 AND at >= ?2 AND (at > ?2 OR seq > ?3) ORDER BY at, seq LIMIT ?4";

/// The sizes of entries of a journal. Whether they are damaged is not checked.
pub(in crate::sqlite) fn journal_sizes(
    connection: &Connection,
    SizeQuery { kind, after, limit }: SizeQuery,
) -> Result<Vec<JournalSize>, Fault> {
    let (at, seq) = after.map_or((i64::MIN, 0), |(at, number)| (at.0, to_integer(number)));
    let mut statement = connection.prepare_cached(SELECT_SIZES)?;
    let mut rows = statement.query(params![kind.code(), at, seq, to_integer(limit as u64)])?;
    let mut sizes = Vec::new();
    while let Some(row) = rows.next()? {
        let (at, number, bytes) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let (at, number, bytes) = (Timestamp(at), from_integer(number), from_integer(bytes));
        sizes.push(JournalSize { at, number, bytes });
    }
    Ok(sizes)
}

fn entry(row: &Row<'_>, kind: JournalKind) -> Result<JournalEntry, Fault> {
    Table::Journal.check(row, 0)?;
    let body = row.get_ref(4)?.as_blob().map_err(from_sql)?.into();
    Ok(JournalEntry { kind, subject: name(row, 2)?, at: Timestamp(row.get(3)?), body })
}

/// Deletes at most `limit` entries that were kept long enough. The newest of all stays: the numbers go on from it.
pub(in crate::sqlite) fn sweep(
    connection: &Connection,
    retention: &Retention,
    now: Now,
    limit: i64,
) -> Result<i64, Fault> {
    let mut gone = 0;
    for kind in JournalKind::ALL {
        let until = kind.until(retention, now.wall).0;
        let mut statement = connection.prepare_cached(&format!(
            "DELETE FROM journal WHERE seq IN ({SELECT_OLD_ENTRIES}) AND seq < (SELECT max(seq) FROM journal)"
        ))?;
        gone += statement.execute(params![kind.code(), until, limit - gone])? as i64;
    }
    Ok(gone)
}

//! Records and journals.

use windlass_core::Name;
use windlass_store::{JournalEntry, JournalKind, JournalQuery, Record, RecordKind};

use super::connection::{Batch, parameters};
use crate::rows::{Writes, to_integer};

const BY_NAME: &str =
    "SELECT kind, name, version, body FROM windlass_record WHERE kind = $1 AND name = ANY($2::text[])";
const PAGE: &str = "SELECT kind, name, version, body FROM windlass_record
    WHERE kind = $1 AND ($2::text IS NULL OR name > $2) ORDER BY name LIMIT $3";
const INSERT: &str = "INSERT INTO windlass_record (kind, name, version, body)
    SELECT * FROM unnest($1::int8[], $2::text[], $3::int8[], $4::bytea[])";
const UPDATE: &str = "UPDATE windlass_record r SET version = n.version, body = n.body
    FROM unnest($1::int8[], $2::text[], $3::int8[], $4::bytea[]) AS n (kind, name, version, body)
    WHERE r.kind = n.kind AND r.name = n.name";
const DELETE: &str = "DELETE FROM windlass_record r USING unnest($1::int8[], $2::text[]) AS n (kind, name)
    WHERE r.kind = n.kind AND r.name = n.name";
const JOURNAL: &str = "SELECT seq, subject, at, body FROM windlass_journal
    WHERE kind = $1 AND seq < $2 ORDER BY seq DESC LIMIT $3";
const JOURNAL_OF: &str = "SELECT seq, subject, at, body FROM windlass_journal
    WHERE kind = $1 AND seq < $2 AND subject = $4 ORDER BY seq DESC LIMIT $3";
const SIZES: &str = "SELECT at, seq, octet_length(body)::int8 FROM windlass_journal
    WHERE kind = $1 AND at >= $2 AND (at > $2 OR seq > $3) ORDER BY at, seq LIMIT $4";
const APPEND: &str = "INSERT INTO windlass_journal (kind, subject, at, body)
    SELECT n.kind, n.subject, n.at, n.body
    FROM unnest($1::int8[], $2::text[], $3::int8[], $4::bytea[]) WITH ORDINALITY
         AS n (kind, subject, at, body, place)
    ORDER BY n.place";
/// Entries of a kind that were kept long enough.
pub(super) const OLD_ENTRIES: &str = "DELETE FROM windlass_journal WHERE seq IN (
        SELECT seq FROM windlass_journal WHERE kind = $3 AND at <= $1 ORDER BY at LIMIT $2
    ) RETURNING true";

/// The records of a kind with these names.
pub(super) fn by_name(kind: RecordKind, names: &[Name]) -> Batch<'_> {
    let names: Vec<&str> = names.iter().map(Name::as_str).collect();
    Batch::one(BY_NAME, parameters![kind.code(), names])
}

/// Records of a kind with names above `after`.
pub(super) fn page(kind: RecordKind, after: Option<&Name>, limit: usize) -> Batch<'_> {
    let after = after.map(Name::as_str);
    Batch::one(PAGE, parameters![kind.code(), after, to_integer(limit as u64)])
}

/// Entries of a journal, the newest first.
pub(super) fn journal(query: &JournalQuery) -> Batch<'_> {
    let (before, limit) = (query.before.map_or(i64::MAX, to_integer), to_integer(query.limit as u64));
    match &query.subject {
        Some(subject) => {
            Batch::one(JOURNAL_OF, parameters![query.kind.code(), before, limit, subject.as_str()])
        }
        None => Batch::one(JOURNAL, parameters![query.kind.code(), before, limit]),
    }
}

/// The sizes of entries of a journal after this time and number.
pub(super) fn journal_sizes(kind: JournalKind, (at, seq): (i64, i64), limit: usize) -> Batch<'static> {
    Batch::one(SIZES, parameters![kind.code(), at, seq, to_integer(limit as u64)])
}

/// Adds statements that write records and entries of journals.
pub(super) fn add_records<'w>(batch: &mut Batch<'w>, writes: &'w Writes) {
    let gone = writes.records.iter().filter(|(_, (record, was_there))| record.is_none() && *was_there);
    let (kinds, names): (Vec<i64>, Vec<&str>) =
        gone.map(|((kind, name), _)| (kind.code(), name.as_str())).unzip();
    batch.add_for(kinds.len(), DELETE, parameters![kinds, names]);
    for (sql, was_there) in [(INSERT, false), (UPDATE, true)] {
        let records = writes.records.values().filter(|(_, was)| *was == was_there);
        let records: Vec<&Record> = records.filter_map(|(record, _)| record.as_ref()).collect();
        let kinds: Vec<i64> = records.iter().map(|record| record.kind.code()).collect();
        let names: Vec<&str> = records.iter().map(|record| record.name.as_str()).collect();
        let versions: Vec<i64> = records.iter().map(|record| to_integer(record.version)).collect();
        let bodies: Vec<&[u8]> = records.iter().map(|record| &*record.body).collect();
        batch.add_for(records.len(), sql, parameters![kinds, names, versions, bodies]);
    }
    let entries: &[JournalEntry] = &writes.journal;
    let kinds: Vec<i64> = entries.iter().map(|entry| entry.kind.code()).collect();
    let subjects: Vec<&str> = entries.iter().map(|entry| entry.subject.as_str()).collect();
    let times: Vec<i64> = entries.iter().map(|entry| entry.at.0).collect();
    let bodies: Vec<&[u8]> = entries.iter().map(|entry| &*entry.body).collect();
    batch.add_for(entries.len(), APPEND, parameters![kinds, subjects, times, bodies]);
}

//! Records and journals.

use std::{collections::BTreeMap, ops::Bound};

use windlass_core::{Name, Timestamp};

use crate::port::{
    JournalEntry, JournalQuery, JournalSize, Record, RecordChange, RecordKind, Retention, SizeQuery,
};

/// Records by kind and name, and the entries of journals.
#[derive(Debug, Default)]
pub(in crate::memory) struct Records {
    records: BTreeMap<(RecordKind, Name), Record>,
    journal: BTreeMap<u64, JournalEntry>,
    /// How many entries were written, those included that are deleted.
    written: u64,
}

impl Records {
    pub(super) fn write(&mut self, change: &RecordChange) {
        let key = (change.kind, change.name.clone());
        match change.record() {
            Some(record) => drop(self.records.insert(key, record)),
            None => drop(self.records.remove(&key)),
        }
    }

    pub(super) fn append(&mut self, entries: &[JournalEntry]) {
        for entry in entries {
            self.written += 1;
            self.journal.insert(self.written, entry.clone());
        }
    }

    pub(in crate::memory) fn get(&self, kind: RecordKind, name: &Name) -> Option<&Record> {
        self.records.get(&(kind, name.clone()))
    }

    /// Records of a kind with names above `after`, by name.
    pub(in crate::memory) fn page(
        &self,
        kind: RecordKind,
        after: Option<&Name>,
    ) -> impl Iterator<Item = &Record> {
        Record::page(&self.records, kind, after)
    }

    /// All records.
    pub(in crate::memory) fn all(&self) -> impl Iterator<Item = &Record> {
        self.records.values()
    }

    pub(in crate::memory) fn journal(&self, query: &JournalQuery) -> Vec<(u64, JournalEntry)> {
        let until = query.before.map_or(Bound::Unbounded, Bound::Excluded);
        let newest = self.journal.range((Bound::Unbounded, until)).rev();
        let wanted = newest.filter(|(_, entry)| {
            entry.kind == query.kind && query.subject.as_ref().is_none_or(|subject| entry.subject == *subject)
        });
        wanted.take(query.limit).map(|(number, entry)| (*number, entry.clone())).collect()
    }

    pub(in crate::memory) fn journal_sizes(
        &self,
        SizeQuery { kind, after, limit }: SizeQuery,
    ) -> Vec<JournalSize> {
        let of_kind = self.journal.iter().filter(|(_, entry)| entry.kind == kind);
        let sizes = of_kind.map(|(number, entry)| {
            let (at, number, bytes) = (entry.at, *number, entry.body.len() as u64);
            JournalSize { at, number, bytes }
        });
        let mut sizes: Vec<JournalSize> =
            sizes.filter(|size| after.is_none_or(|after| size.place() > after)).collect();
        sizes.sort_unstable_by_key(|size| size.place());
        sizes.truncate(limit);
        sizes
    }

    /// Deletes at most `limit` entries that were kept long enough, the oldest first. Returns how many.
    pub(super) fn sweep(&mut self, retention: &Retention, now: Timestamp, limit: usize) -> usize {
        let old = self.journal.iter().filter(|(_, entry)| entry.at <= entry.kind.until(retention, now));
        let mut old: Vec<(Timestamp, u64)> = old.map(|(number, entry)| (entry.at, *number)).collect();
        old.sort_unstable();
        old.truncate(limit);
        for (_, number) in &old {
            self.journal.remove(number);
        }
        old.len()
    }
}

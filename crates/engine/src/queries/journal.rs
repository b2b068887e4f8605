//! Pages of a journal that is searched.

use windlass_core::{Name, Timestamp};
use windlass_store::{JournalEntry, JournalKind, JournalQuery, Page, SCAN_MAX};

use crate::{Engine, EngineError};

/// Entries read at once.
const PORTION: usize = 1_000;

/// Where a search looks.
pub(crate) struct JournalSearch<'s> {
    pub(crate) kind: JournalKind,
    /// Only entries about this subject.
    pub(crate) subject: Option<&'s Name>,
    /// Only entries of this time or later.
    pub(crate) since: Option<Timestamp>,
    /// Only entries with numbers below this one.
    pub(crate) before: Option<u64>,
    /// The most items of a page.
    pub(crate) limit: usize,
}

impl Engine {
    /// What `read` makes of the entries of a journal, the newest first; it leaves out those for which it returns `None`. A page
    /// may have fewer items than its limit, even none, while there are more: at most [`SCAN_MAX`] entries are looked at for one
    /// page.
    pub(crate) async fn search_journal<T>(
        &self,
        JournalSearch { kind, subject, since, mut before, limit }: JournalSearch<'_>,
        read: impl Fn(u64, JournalEntry) -> Option<T>,
    ) -> Result<Page<T, u64>, EngineError> {
        let (mut items, mut seen) = (Vec::new(), 0);
        while seen < SCAN_MAX {
            let query = JournalQuery { kind, subject: subject.cloned(), before, limit: PORTION };
            let found = self.on_disk(|| self.store.journal(&query)).await?;
            let is_end = found.len() < PORTION;
            seen += found.len();
            for (number, entry) in found {
                if since.is_some_and(|since| entry.at < since) {
                    return Ok(Page { items, next: None });
                }
                before = Some(number);
                items.extend(read(number, entry));
                if items.len() == limit {
                    return Ok(Page { items, next: before });
                }
            }
            if is_end {
                return Ok(Page { items, next: None });
            }
        }
        Ok(Page { items, next: before })
    }
}

//! What began under limits.

use std::collections::BTreeMap;

use windlass_core::{Millis, Name, Ready};

use crate::port::Limit;

/// When attempts began that count under limits by starts, in their order.
#[derive(Debug, Default)]
pub(super) struct Starts {
    of_limits: BTreeMap<Name, Vec<Start>>,
}

/// When an attempt began, and under which key.
type Start = (Millis, Option<Box<str>>);

impl Starts {
    /// An attempt begins.
    pub(super) fn start(&mut self, limit: &Limit, ready: &Ready, now: Millis) {
        if let (Some(_), Some(key)) = (limit.starts, limit.counts_ready(ready)) {
            self.of_limits.entry(limit.name.clone()).or_default().push((now, key.map(Into::into)));
        }
    }

    /// An attempt that was to begin did not.
    pub(super) fn take_back(&mut self, limit: &Limit, ready: &Ready, at: Millis) {
        let Some(key) = limit.counts_ready(ready) else { return };
        let Some(starts) = self.of_limits.get_mut(&limit.name) else { return };
        let index = starts.iter().position(|(other, of)| *other == at && of.as_deref() == key);
        index.into_iter().for_each(|index| drop(starts.remove(index)));
    }

    /// How many began within the last span: of a key, or of any.
    pub(super) fn count(&self, limit: &Limit, of: Option<Option<&str>>, now: Millis) -> usize {
        self.recent(limit, of, now).count()
    }

    /// When one more attempt of a key may begin, where its starts are used up.
    pub(super) fn next_start(&self, limit: &Limit, key: Option<&str>, now: Millis) -> Option<Millis> {
        let starts = limit.starts?;
        let used = self.recent(limit, Some(key), now).count();
        let free = used.checked_sub(starts.count as usize)?;
        let at = self.recent(limit, Some(key), now).nth(free)?;
        Some(Millis(at.0.saturating_add(starts.per.0)))
    }

    fn recent(&self, limit: &Limit, of: Option<Option<&str>>, now: Millis) -> impl Iterator<Item = Millis> {
        let per = limit.starts.map_or(0, |starts| starts.per.0);
        let starts = self.of_limits.get(&limit.name).into_iter().flatten();
        let recent = starts.filter(move |(at, _)| at.0.saturating_add(per) > now.0);
        recent.filter(move |(_, key)| of.is_none_or(|of| of == key.as_deref())).map(|(at, _)| *at)
    }
}

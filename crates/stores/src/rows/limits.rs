//! Limits with what counts under them, as a store tells it.

use std::collections::HashMap;

use windlass_core::{Millis, Name, Ready};
use windlass_store::{Claimed, Limit, LimitHolder, LimitState, Now};

use super::fairness_bytes;

/// All limits with what counts under them.
#[derive(Debug)]
pub(crate) struct Limits {
    /// By name.
    pub(crate) limits: Vec<Limit>,
    /// What sessions have in queues with limits, with its command and key, oldest first.
    pub(crate) held: Vec<(Claimed, Name, Option<String>)>,
    /// What began under limits within their last spans, with its key, oldest first.
    pub(crate) begun: HashMap<Name, Vec<(Vec<u8>, Millis)>>,
    pub(crate) now: Now,
}

impl Limits {
    /// The state of each limit, by name.
    pub(crate) fn states(&self) -> Vec<LimitState> {
        self.limits.iter().map(|limit| self.state(limit, None)).collect()
    }

    /// The limits that keep a ready attempt back.
    pub(crate) fn keeping_back(&self, ready: &Ready) -> Vec<LimitState> {
        let mut states = Vec::new();
        for limit in &self.limits {
            let Some(key) = limit.counts_ready(ready) else { continue };
            let state = self.state(limit, Some(key));
            let is_full = limit.running.is_some_and(|most| state.running >= u64::from(most));
            if is_full || state.next_start_at.is_some() {
                states.push(state);
            }
        }
        states
    }

    /// A limit with what counts under it: under a key, or under any.
    fn state(&self, limit: &Limit, of: Option<Option<&str>>) -> LimitState {
        let held = self.held.iter().filter(|(claimed, ..)| claimed.module == limit.queue);
        let holders = held.filter_map(|(claimed, command, fairness)| {
            let key = limit.counts(command, fairness.as_deref())?;
            let counts = of.is_none_or(|of| of == key);
            counts.then(|| LimitHolder { claimed: claimed.clone(), key: fairness.as_deref().map(Into::into) })
        });
        let holders: Vec<LimitHolder> = holders.collect();
        let begun = self.begun.get(&limit.name).into_iter().flatten();
        let of_key = begun.filter(|(key, _)| of.is_none_or(|of| fairness_bytes(of) == *key));
        let recent: Vec<Millis> = of_key.map(|(_, at)| *at).collect();
        let key = of.or((!limit.per_key).then_some(None));
        let next_start_at = key.and(limit.starts).and_then(|starts| {
            let at = recent.get(recent.len().checked_sub(starts.count as usize)?)?;
            let at = at.0.saturating_add(starts.per.0);
            Some(self.now.wall + Millis(at.saturating_sub(self.now.mono.0)))
        });
        LimitState {
            limit: limit.clone(),
            running: holders.len() as u64,
            started: recent.len() as u64,
            next_start_at,
            holders,
        }
    }
}

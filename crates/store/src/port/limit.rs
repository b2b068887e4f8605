//! Limits: how many attempts of a queue may run at once, and how many may begin in a span of time.

use windlass_core::{Millis, Name, Ready, SPAN_MAX, Timestamp};

use super::Claimed;

/// The most starts that a limit may allow in its span: the time of each is remembered for so long.
pub const STARTS_MAX: u32 = 100_000;

/// A limit, which people set and change while everything runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    /// Its name; another limit set under it replaces it.
    pub name: Name,
    /// The module whose attempts are limited.
    pub queue: Name,
    /// Only those of this command.
    pub command: Option<Name>,
    /// Attempts of each key are counted for themselves, and those without a key are not.
    pub per_key: bool,
    /// The maximum number that may run at once.
    pub running: Option<u32>,
    /// The maximum number that may begin in a span of time.
    pub starts: Option<Starts>,
}

/// How many attempts may begin in a span of time, wherever the span begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Starts {
    /// This number,
    pub count: u32,
    /// in so long.
    pub per: Millis,
}

/// A limit is set, or was removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitChange {
    /// Which.
    pub name: Name,
    /// As it is from now on; nothing = it is removed.
    pub limit: Option<Limit>,
}

/// A limit and what is counted under it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitState {
    /// The limit.
    pub limit: Limit,
    /// Running attempts.
    pub running: u64,
    /// Attempts that began within the last span.
    pub started: u64,
    /// Of a limit by starts that is reached: when the next may begin.
    pub next_start_at: Option<Timestamp>,
    /// Who has the running attempts, oldest first.
    pub holders: Vec<LimitHolder>,
}

/// An attempt that counts under a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitHolder {
    /// Which, who has it, and since when.
    pub claimed: Claimed,
    /// The key it counts under.
    pub key: Option<Box<str>>,
}

impl Limit {
    /// Checks what the types do not say.
    ///
    /// # Errors
    /// What is wrong and what to do.
    pub fn check(&self) -> Result<(), String> {
        if self.running.is_none() && self.starts.is_none() {
            return Err(
                "a limit needs `running`, or `starts`, or both: as it is, it limits nothing".to_owned()
            );
        }
        if self.running == Some(0) {
            return Err(format!(
                "`running` is 0, so nothing would ever be handed out: pause the queue {} for that",
                self.queue
            ));
        }
        let Some(Starts { count, per }) = self.starts else { return Ok(()) };
        if count == 0 {
            return Err(format!(
                "the count of `starts` is 0, so nothing would ever be handed out: pause the queue {} for that",
                self.queue
            ));
        }
        if count > STARTS_MAX {
            return Err(format!(
                "the count of `starts` is {count}, and may be {STARTS_MAX}: allow fewer in a shorter span"
            ));
        }
        if per == Millis(0) || per > SPAN_MAX {
            return Err("the span of `starts` must be longer than 0 and at most 366 days".to_owned());
        }
        Ok(())
    }

    /// The key under which an attempt of this command counts, if it counts: nothing is the key of all.
    #[must_use]
    pub fn counts<'k>(&self, command: &Name, key: Option<&'k str>) -> Option<Option<&'k str>> {
        if self.command.as_ref().is_some_and(|only| only != command) {
            return None;
        }
        match (self.per_key, key) {
            (false, _) => Some(None),
            (true, None) => None,
            (true, key) => Some(key),
        }
    }

    /// The key under which a ready attempt counts, if it counts: nothing is the key of all.
    #[must_use]
    pub fn counts_ready<'r>(&self, ready: &'r Ready) -> Option<Option<&'r str>> {
        if self.queue == ready.module { self.counts(&ready.command, ready.fairness.as_deref()) } else { None }
    }
}

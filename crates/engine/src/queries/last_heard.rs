//! The last worker of each module, to explain why no worker claims its attempts.
//!
//! Remembered sessions have this information themselves. This keeps it for forgotten sessions, and for modules that a
//! worker no longer serves.

use std::collections::BTreeMap;

use windlass_core::{Millis, Name, Timestamp};

use windlass_store::Now;

/// The last worker of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastHeard {
    /// Its name, or its session if it has no name.
    pub worker: Box<str>,
    /// The time of its last call.
    pub at: Timestamp,
}

/// The maximum number of modules whose last worker is remembered. Any caller can make up modules; beyond this limit the
/// oldest entries are forgotten.
const MODULES_MAX: usize = 1000;

/// The last workers of modules, by module.
#[derive(Debug, Default)]
pub(crate) struct LastWorkers {
    by_module: BTreeMap<Name, (Millis, Box<str>)>,
}

impl LastWorkers {
    /// Records that a worker served a module until `at`.
    pub(crate) fn note(&mut self, module: &Name, at: Millis, worker: &str) {
        let last = self.by_module.entry(module.clone()).or_insert_with(|| (at, worker.into()));
        if last.0 <= at {
            *last = (at, worker.into());
        }
        if self.by_module.len() > MODULES_MAX {
            let oldest =
                self.by_module.iter().min_by_key(|(_, (at, _))| *at).map(|(module, _)| module.clone());
            if let Some(oldest) = oldest {
                self.by_module.remove(&oldest);
            }
        }
    }

    pub(crate) fn get(&self, module: &Name) -> Option<(Millis, &str)> {
        self.by_module.get(module).map(|(at, worker)| (*at, &**worker))
    }
}

impl LastHeard {
    pub(crate) fn new(worker: &str, at: Millis, now: Now) -> Self {
        Self {
            worker: worker.into(),
            at: Timestamp(now.wall.0.saturating_sub_unsigned(now.mono.0 - at.0.min(now.mono.0))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_worker_of_a_module_is_remembered_and_modules_are_bounded() {
        let module = |n: usize| Name::new(&format!("m{n}")).unwrap();
        let mut last = LastWorkers::default();
        last.note(&module(0), Millis(5), "late");
        last.note(&module(0), Millis(3), "early");
        assert_eq!(last.get(&module(0)), Some((Millis(5), "late")));
        for n in 1..=MODULES_MAX {
            last.note(&module(n), Millis(10), "w");
        }
        assert_eq!(last.by_module.len(), MODULES_MAX);
        assert_eq!(last.get(&module(0)), None, "it was served the longest ago");
    }

    #[test]
    fn when_it_was_is_told_on_the_wall() {
        let now = Now { wall: Timestamp(1_000_000), mono: Millis(5_000) };
        assert_eq!(LastHeard::new("w", Millis(2_000), now).at, Timestamp(997_000));
        assert_eq!(LastHeard::new("w", Millis(6_000), now).at, now.wall, "never in the future");
    }
}

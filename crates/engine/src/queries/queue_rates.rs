//! The throughput of queues: attempts that this server handed out in the last minute, for estimates.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use windlass_core::{Millis, Name};

/// Attempts are counted in spans of this length.
const SPAN: Millis = Millis::from_secs(10);

/// The number of spans that count as recent.
const SPANS: usize = 6;

/// A rate observed for a shorter time is not used.
const SEEN_MIN: Millis = Millis::from_secs(1);

/// The throughput of each queue.
#[derive(Debug, Default)]
pub(crate) struct QueueRates {
    by_module: Mutex<BTreeMap<Name, Rate>>,
}

/// The recently handed out attempts of one queue.
#[derive(Debug, Default)]
struct Rate {
    /// The count of the current span, and those of the spans before it.
    counts: [u64; SPANS],
    /// The number of the current span since the clock began.
    span: u64,
    /// Since when there was no full minute without an attempt.
    since: Millis,
}

impl QueueRates {
    /// Counts one handed out attempt for each of `modules`.
    pub(crate) fn note<'a>(&self, modules: impl Iterator<Item = &'a Name>, now: Millis) {
        let mut by_module = self.by_module.lock().unwrap_or_else(PoisonError::into_inner);
        for module in modules {
            match by_module.get_mut(module) {
                Some(rate) => rate.note(now),
                None => by_module.entry(module.clone()).or_default().note(now),
            }
        }
    }

    /// The time in which a queue hands out `count` attempts at its current rate, if known.
    pub(crate) fn time_for(&self, module: &Name, count: u64, now: Millis) -> Option<Millis> {
        let mut by_module = self.by_module.lock().unwrap_or_else(PoisonError::into_inner);
        let rate = by_module.get_mut(module)?;
        rate.advance(now);
        let handed_out: u64 = rate.counts.iter().sum();
        let window = Millis((SPANS as u64 - 1) * SPAN.0 + now.0 % SPAN.0);
        let seen = Millis((now.0.saturating_sub(rate.since.0)).min(window.0));
        if handed_out == 0 || seen < SEEN_MIN {
            return None;
        }
        Some(Millis(
            u64::try_from(u128::from(count) * u128::from(seen.0) / u128::from(handed_out))
                .unwrap_or(u64::MAX),
        ))
    }
}

impl Rate {
    fn note(&mut self, now: Millis) {
        self.advance(now);
        if self.counts.iter().all(|count| *count == 0) {
            self.since = now;
        }
        self.counts[0] += 1;
    }

    /// Shifts the counts of completed spans.
    fn advance(&mut self, now: Millis) {
        let span = now.0 / SPAN.0;
        let passed = usize::try_from(span.saturating_sub(self.span)).unwrap_or(SPANS).min(SPANS);
        self.counts.rotate_right(passed % SPANS);
        self.counts[..passed].fill(0);
        self.span = self.span.max(span);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module() -> Name {
        Name::new("m").unwrap()
    }

    #[test]
    fn an_estimate_is_the_place_over_the_rate() {
        let rates = QueueRates::default();
        assert_eq!(rates.time_for(&module(), 1, Millis(0)), None, "nothing is known");
        for second in 0..30 {
            rates.note([&module(), &module()].into_iter(), Millis(second * 1000));
        }
        let estimate = rates.time_for(&module(), 20, Millis(30_000)).unwrap();
        assert_eq!(estimate, Millis(10_000), "two each second");
    }

    #[test]
    fn what_was_long_ago_says_nothing() {
        let rates = QueueRates::default();
        rates.note([&module()].into_iter(), Millis(5_000));
        assert_eq!(rates.time_for(&module(), 1, Millis(5_500)), None, "half a second is too short");
        assert_eq!(rates.time_for(&module(), 1, Millis(25_000)), Some(Millis(20_000)));
        assert_eq!(rates.time_for(&module(), 1, Millis(65_000)), None);
        rates.note([&module()].into_iter(), Millis(100_000));
        assert_eq!(rates.time_for(&module(), 1, Millis(110_000)), Some(Millis(10_000)), "it began again");
    }
}

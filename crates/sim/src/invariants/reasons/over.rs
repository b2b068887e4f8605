//! States over time: an answer was true if it was true at any time between the question and the answer.

/// A value over time.
#[derive(Debug)]
pub(super) struct Over<T> {
    /// Each value with the time of its start.
    values: Vec<(u64, T)>,
}

impl<T> Default for Over<T> {
    fn default() -> Self {
        Self { values: Vec::new() }
    }
}

impl<T> Over<T> {
    /// Sets the value from now on.
    pub(super) fn set(&mut self, now: u64, value: T) {
        self.values.push((now, value));
    }

    /// All values since then, including the one at that time.
    pub(super) fn since(&self, at: u64) -> impl Iterator<Item = &T> {
        let first = self.values.partition_point(|(from, _)| *from < at).saturating_sub(1);
        self.values[first..].iter().map(|(_, value)| value)
    }

    /// Whether there was a value at that time.
    pub(super) fn was_there(&self, at: u64) -> bool {
        self.values.first().is_some_and(|(from, _)| *from < at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_at_the_moment_counts_and_what_came_after() {
        let mut over = Over::default();
        for (at, value) in [(10, 'a'), (20, 'b'), (20, 'c'), (30, 'd')] {
            over.set(at, value);
        }
        let since = |at| over.since(at).collect::<String>();
        assert_eq!([since(5), since(15), since(20), since(25)], ["abcd", "abcd", "abcd", "cd"]);
        assert_eq!([since(30), since(31)], ["cd", "d"]);
        assert!(over.was_there(11) && !over.was_there(10));
    }
}

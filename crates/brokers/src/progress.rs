//! How far the messages of a queue have been settled.

use std::collections::BTreeMap;

/// How far the messages of a queue have been settled. Compare two of them: [`Progress::has_settled`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// The product numbers its messages: the positions of each partition. A queue without partitions has partition 0.
    Positions(BTreeMap<i32, Positions>),
    /// The product only counts: how many messages are not settled. `None` where it does not count either.
    Left(Option<u64>),
}

/// Positions in one partition of a queue. They only grow, until the queue is created again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Positions {
    /// Every message before this position is settled.
    pub settled: u128,
    /// The next message gets this position or a higher one.
    pub end: u128,
}

impl Progress {
    /// The progress of a queue that does not exist: nothing waits there.
    pub const NOTHING: Self = Self::Left(Some(0));

    /// Whether every message that was in the queue at the time of `mark` is settled now. For a product that
    /// only counts, this is true only once the queue is empty. A queue that was created again since has lost
    /// those messages, so they will never be settled: that counts as settled.
    #[must_use]
    pub fn has_settled(&self, mark: &Self) -> bool {
        match (self, mark) {
            (Self::Left(left), _) => left.is_none_or(|left| left == 0),
            (Self::Positions(now), Self::Positions(mark)) => mark.iter().all(|(partition, mark)| {
                now.get(partition).is_none_or(|now| now.settled >= mark.end || now.end < mark.end)
            }),
            // The queue did not exist then.
            (Self::Positions(_), Self::Left(_)) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(partitions: &[(u128, u128)]) -> Progress {
        let positions = partitions.iter().map(|(settled, end)| Positions { settled: *settled, end: *end });
        Progress::Positions((0..).zip(positions).collect())
    }

    #[test]
    fn what_was_there_is_settled_however_much_came_since() {
        let mark = at(&[(3, 7), (2, 2)]);
        assert!(!mark.has_settled(&mark));
        assert!(!at(&[(6, 9), (2, 2)]).has_settled(&mark));
        assert!(at(&[(7, 9), (2, 50)]).has_settled(&mark));
        assert!(!at(&[(7, 9), (1, 50)]).has_settled(&mark), "every partition counts");
    }

    #[test]
    fn a_queue_that_was_created_again_has_lost_what_was_there() {
        assert!(at(&[(0, 1)]).has_settled(&at(&[(3, 7)])));
        assert!(Progress::NOTHING.has_settled(&at(&[(3, 7)])));
        assert!(at(&[(0, 9)]).has_settled(&Progress::NOTHING));
    }

    #[test]
    fn a_product_that_only_counts_has_settled_all_when_nothing_is_left() {
        let mark = Progress::Left(Some(5));
        assert!(!Progress::Left(Some(1)).has_settled(&mark));
        assert!(Progress::Left(Some(0)).has_settled(&mark));
        assert!(Progress::Left(None).has_settled(&mark), "unknown");
    }
}

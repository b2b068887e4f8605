//! The delay before the next attempt.

use crate::{
    ActKey, Backoff, Direction, Millis, Retry, TaskId,
    planted::{Bug, is_planted},
    values::mix::mix,
};

/// The delay after failure number `failures` (from 1) of an execution: `base × 2^(failures-1)` up to `cap`, reduced by
/// up to a half, depending on a hash of the task, execution and failure. The same input gives the same delay.
#[must_use]
pub fn retry_delay(retry: &Retry, task: TaskId, key: ActKey, failures: u32) -> Millis {
    let full = match retry.backoff {
        Backoff::None => return Millis(0),
        Backoff::Fixed => retry.base.0,
        Backoff::Exponential if is_planted(Bug::BackoffNotDoubled) => retry.base.0,
        Backoff::Exponential => {
            let factor = 1_u64.checked_shl(failures.saturating_sub(1)).unwrap_or(u64::MAX);
            retry.base.0.saturating_mul(factor)
        }
    };
    let full = full.min(retry.cap.0.max(retry.base.0));
    let half = full / 2;
    Millis(half + jitter(task, key, failures) % (full - half + 1))
}

/// A hash that spreads the retries of tasks that failed at the same time.
fn jitter(task: TaskId, key: ActKey, failures: u32) -> u64 {
    #[expect(clippy::cast_possible_truncation, reason = "both halves are mixed in")]
    let folded = (task.0 >> 64) as u64 ^ task.0 as u64;
    let direction = u64::from(key.direction == Direction::Rollback);
    let act = ((key.step as u64) << 40) ^ (u64::from(key.member) << 8) ^ direction;
    mix(folded ^ act.rotate_left(17) ^ (u64::from(failures) << 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_cap_and_keep_at_least_half() {
        let retry = Retry { max: 9, ..Retry::default() };
        for failures in 1..=80 {
            let full = 1000_u64.saturating_mul(1 << (failures - 1).min(20)).min(60_000);
            for task in 0..50 {
                let delay = retry_delay(&retry, TaskId(task << 70 | task), ActKey::forward(0), failures).0;
                assert!((full / 2..=full).contains(&delay), "failure {failures}: {delay} of {full}");
            }
        }
    }

    #[test]
    fn tasks_that_failed_together_do_not_come_back_together() {
        let retry = Retry::default();
        let delays: std::collections::BTreeSet<u64> =
            (0..100).map(|task| retry_delay(&retry, TaskId(task), ActKey::forward(0), 1).0).collect();
        assert!(delays.len() > 50, "{delays:?}");
    }
}

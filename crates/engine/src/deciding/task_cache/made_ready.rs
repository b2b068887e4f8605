//! Tasks whose attempts this server made ready a moment ago, where servers share a store. It has them in its cache and
//! need not read them. While it has work of its own, it leaves to the other servers the attempts that they have just
//! made ready. It does so only for a moment: such a server may have no worker for them, or be dead.

use std::collections::BTreeMap;

use windlass_core::{Millis, TaskId, Timestamp};

use windlass_store::{Leave, Now};

/// How long a ready attempt is left to the server that made it ready. Shorter than the time after which a server that
/// was notified looks again.
const LEFT_FOR: Millis = Millis(15);

/// A server has work of its own if it has made this number of attempts ready within [`LEFT_FOR`].
const BUSY_WITH: usize = 8;

/// The maximum number of tasks recorded; other tasks are open to every server after [`LEFT_FOR`].
const TASKS_MAX: usize = 256;

/// Tasks of which this server made attempts ready a moment ago.
#[derive(Debug, Default)]
pub(super) struct MadeReady {
    tasks: BTreeMap<TaskId, Made>,
}

#[derive(Debug)]
struct Made {
    at: Millis,
    is_handed_out: bool,
}

impl MadeReady {
    /// Records that a commit decided at `now` made an attempt of this task ready.
    pub(super) fn note(&mut self, task: TaskId, now: Now) {
        self.forget_old(now);
        if self.tasks.len() < TASKS_MAX {
            self.tasks.insert(task, Made { at: now.mono, is_handed_out: false });
        }
    }

    /// Records that an attempt of this task was claimed.
    pub(super) fn hand_out(&mut self, task: TaskId) {
        if let Some(made) = self.tasks.get_mut(&task) {
            made.is_handed_out = true;
        }
    }

    /// The attempts left to others now. A server with little work leaves none.
    pub(super) fn leave(&mut self, now: Now) -> Leave {
        self.forget_old(now);
        if self.tasks.len() < BUSY_WITH {
            return Leave::default();
        }
        let since = Timestamp(now.wall.0.saturating_sub_unsigned(LEFT_FOR.0));
        let but = self.tasks.iter().filter(|(_, made)| !made.is_handed_out).map(|(task, _)| *task).collect();
        Leave { since: Some(since), but }
    }

    fn forget_old(&mut self, now: Now) {
        self.tasks.retain(|_, made| now.mono.0 < made.at.0.saturating_add(LEFT_FOR.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Now {
        Now { wall: Timestamp(1_000_000 + i64::try_from(ms).unwrap()), mono: Millis(ms) }
    }

    fn with_tasks(count: usize) -> MadeReady {
        let mut made_ready = MadeReady::default();
        (0..count).for_each(|task| made_ready.note(TaskId(task as u128), at(100)));
        made_ready
    }

    #[test]
    fn who_has_little_work_leaves_nothing() {
        let mut made_ready = with_tasks(BUSY_WITH - 1);
        assert_eq!(made_ready.leave(at(100)), Leave::default());
        made_ready.note(TaskId(99), at(100));
        assert!(made_ready.leave(at(100)).since.is_some());
    }

    #[test]
    fn what_others_made_ready_is_left_for_a_moment() {
        let mut made_ready = with_tasks(BUSY_WITH);
        made_ready.hand_out(TaskId(0));
        made_ready.hand_out(TaskId(99));
        let but = (1..BUSY_WITH).map(|task| TaskId(task as u128)).collect();
        let since = Some(Timestamp(1_000_000 + 110 - 15));
        assert_eq!(made_ready.leave(at(110)), Leave { since, but });
        assert_eq!(made_ready.leave(at(115)), Leave::default(), "nothing was made ready lately");
    }

    #[test]
    fn only_so_many_are_remembered() {
        let mut made_ready = with_tasks(TASKS_MAX + 5);
        assert_eq!(made_ready.leave(at(101)).but.len(), TASKS_MAX);
    }
}

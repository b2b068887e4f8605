//! The process groups that a guard watches, and what becomes of them: plain values, without processes or a
//! clock.

use std::collections::BTreeMap;

use rustix::process::{RawPid, Signal};

use super::deadline::Deadline;

/// The running groups, and the deadline of all of them if only a leader may run them.
#[derive(Debug, Default)]
pub(super) struct Groups {
    running: BTreeMap<RawPid, Stage>,
    deadline: Option<Deadline>,
}

/// The signals that a group got so far because of a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    None,
    Term,
    Kill,
}

impl Groups {
    /// Reads a line: `+PGID`, `-PGID` or `@TERM KILL`. Others are skipped.
    pub(super) fn read(&mut self, line: &[u8]) {
        let Some((sign, rest)) = line.split_first() else { return };
        let Ok(rest) = std::str::from_utf8(rest) else { return };
        if *sign == b'@' {
            self.deadline = Deadline::parse(rest).or(self.deadline);
            return;
        }
        // Group 1 is the system's or the container's first process: never a command's.
        let Some(group) = rest.parse().ok().filter(|group: &RawPid| *group > 1) else { return };
        match sign {
            b'+' => drop(self.running.insert(group, Stage::None)),
            b'-' => drop(self.running.remove(&group)),
            _ => {}
        }
    }

    /// The groups that get a signal now. Each gets each signal once.
    pub(super) fn due(&mut self, now_ms: u64) -> Vec<(RawPid, Signal)> {
        let Some(Deadline { term_ms, kill_ms }) = self.deadline else { return Vec::new() };
        let mut due = Vec::new();
        for (group, stage) in &mut self.running {
            if now_ms >= kill_ms && *stage != Stage::Kill {
                *stage = Stage::Kill;
                due.push((*group, Signal::KILL));
            } else if now_ms >= term_ms && *stage == Stage::None {
                *stage = Stage::Term;
                due.push((*group, Signal::TERM));
            }
        }
        due
    }

    /// How long nothing is due without another line. None = for ever.
    pub(super) fn quiet_ms(&self, now_ms: u64) -> Option<u64> {
        let deadline = self.deadline?;
        let due = self.running.values().filter_map(|stage| match stage {
            Stage::None => Some(deadline.term_ms.min(deadline.kill_ms)),
            Stage::Term => Some(deadline.kill_ms),
            Stage::Kill => None,
        });
        due.min().map(|due| due.saturating_sub(now_ms))
    }

    /// The groups that were added and not removed.
    pub(super) fn left(self) -> impl Iterator<Item = RawPid> {
        self.running.into_keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(lines: &str) -> Groups {
        let mut groups = Groups::default();
        lines.lines().for_each(|line| groups.read(line.as_bytes()));
        groups
    }

    fn left(lines: &str) -> Vec<RawPid> {
        after(lines).left().collect()
    }

    #[test]
    fn what_was_added_and_not_removed_is_left() {
        assert_eq!(left("+10\n+20\n-10\n+30\n"), [20, 30]);
        assert_eq!(left(""), Vec::<i32>::new());
    }

    #[test]
    fn lines_that_make_no_sense_are_skipped() {
        assert_eq!(left("+0\n+1\n+-5\n10\n*7\n\n+\n+x\n@\n@x 1\n+44\n"), [44]);
        assert_eq!(after("+44\n@x 1\n").quiet_ms(0), None);
        assert_eq!(after("+44\n@5 9\n@x 1\n").quiet_ms(0), Some(5), "the deadline before stays");
    }

    #[test]
    fn groups_without_a_deadline_are_left_alone() {
        let mut groups = after("+10\n");
        assert_eq!((groups.due(u64::MAX), groups.quiet_ms(7)), (vec![], None));
    }

    #[test]
    fn each_group_gets_each_signal_once() {
        let mut groups = after("@100 150\n+10\n+20\n");
        assert_eq!((groups.due(99), groups.quiet_ms(99)), (vec![], Some(1)));
        assert_eq!(groups.due(100), [(10, Signal::TERM), (20, Signal::TERM)]);
        groups.read(b"-20");
        assert_eq!((groups.due(149), groups.quiet_ms(149)), (vec![], Some(1)));
        assert_eq!(groups.due(151), [(10, Signal::KILL)]);
        assert_eq!((groups.due(200), groups.quiet_ms(200)), (vec![], None));
    }

    #[test]
    fn a_renewal_moves_the_deadline() {
        let mut groups = after("@100 150\n+10\n@200 250\n");
        assert_eq!((groups.due(199), groups.quiet_ms(199)), (vec![], Some(1)));
        assert_eq!(groups.due(200), [(10, Signal::TERM)]);
    }

    #[test]
    fn what_begins_after_the_deadline_is_killed_at_once() {
        let mut groups = after("@100 150\n");
        assert_eq!(groups.quiet_ms(300), None);
        groups.read(b"+10");
        assert_eq!((groups.quiet_ms(300), groups.due(300)), (Some(0), vec![(10, Signal::KILL)]));
    }
}

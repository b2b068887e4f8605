//! Until when commands may run that only a leader may run.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use windlass_client::Term;

/// When the commands of a leader get SIGTERM and SIGKILL, unless leadership is renewed before: milliseconds of
/// the machine's monotonic clock, which all processes share. Nobody else leads before the second time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Deadline {
    pub(super) term_ms: u64,
    pub(super) kill_ms: u64,
}

impl Deadline {
    /// The deadline of a leadership without another renewal: SIGTERM if the process itself has not sent it in
    /// time, SIGKILL so early that everything is gone when leadership is lost.
    pub(crate) fn of(term: &Term) -> Self {
        Self { term_ms: machine_ms_of(Self::term_at(term)), kill_ms: machine_ms_of(term.ends_work_at()) }
    }

    /// When the guard sends SIGTERM: half-way between the risk, when the process itself does, and SIGKILL.
    pub(crate) fn term_at(term: &Term) -> Instant {
        let (risk, end) = (term.at_risk_at(), term.ends_work_at());
        end - end.saturating_duration_since(risk) / 2
    }

    /// The same without SIGTERM.
    pub(crate) fn last_of(term: &Term) -> Self {
        let kill_ms = machine_ms_of(term.ends_work_at());
        Self { term_ms: kill_ms, kill_ms }
    }

    /// A line for the guard, without the end of the line.
    pub(super) fn line(self) -> String {
        format!("@{} {}", self.term_ms, self.kill_ms)
    }

    /// Reads the line after its first character.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let (term_ms, kill_ms) = line.split_once(' ')?;
        Some(Self { term_ms: term_ms.parse().ok()?, kill_ms: kill_ms.parse().ok()? })
    }
}

/// The time of the machine's monotonic clock.
pub(super) fn machine_ms() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let since = |seconds: i64, nanoseconds: i64| {
        Duration::new(u64::try_from(seconds).unwrap_or(0), u32::try_from(nanoseconds).unwrap_or(0))
    };
    u64::try_from(since(now.tv_sec, now.tv_nsec).as_millis()).unwrap_or(u64::MAX)
}

/// The same of another time than now. The pause between the two clocks makes it earlier, never later.
fn machine_ms_of(instant: Instant) -> u64 {
    let machine = machine_ms();
    let left = instant.saturating_duration_since(Instant::now());
    machine.saturating_add(u64::try_from(left.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let deadline = Deadline { term_ms: 17, kill_ms: 4711 };
        assert_eq!(deadline.line(), "@17 4711");
        assert_eq!(Deadline::parse("17 4711"), Some(deadline));
        for wrong in ["", "17", "17 ", "17 x", "-1 2"] {
            assert_eq!(Deadline::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_time_is_never_later_on_the_clock_of_the_machine() {
        let before = machine_ms();
        let at = machine_ms_of(Instant::now() + Duration::from_millis(500));
        assert!((before + 499..=machine_ms() + 500).contains(&at), "{at}");
        assert!(machine_ms_of(Instant::now()) <= machine_ms());
    }
}

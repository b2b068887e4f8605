//! What is to be done about the next instant of a trigger.

use crate::{CatchUp, Millis, Overlap, Timestamp, Trigger};

/// An instant that is older than this is missed: no server was there, or none had time. Within this time a new leader
/// has taken over from a dead one.
pub const LATE_AFTER: Millis = Millis::from_secs(60);

/// The most instants that may wait for the tasks of an earlier one. A schedule that runs late by more never recovers.
pub const WAITING_MAX: usize = 100;

/// Missed instants are counted up to this number.
pub const MISSED_COUNTED_MAX: u64 = 1_000;

/// The instants of a schedule. Implementations are pure: the same question has the same answer on every server.
pub trait Instants {
    /// The first instant after `time`; `None` = there is none.
    fn next_after(&self, time: Timestamp) -> Option<Timestamp>;

    /// The last instant until `time`, `time` included; `None` = there is none.
    fn last_until(&self, time: Timestamp) -> Option<Timestamp>;
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Nothing before this time; `None` = nothing until the trigger is changed.
    Wait(Option<Timestamp>),
    /// Record that these instants are missed.
    Pass(Missed),
    /// Record that this instant is skipped, because tasks of an earlier one run.
    Skip(Timestamp),
    /// Record that this instant waits for the end of those tasks.
    Queue(Timestamp),
    /// Fire.
    Fire(Firing),
}

/// Instants that were not fired in time, and will not be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missed {
    /// The last of them.
    pub until: Timestamp,
    /// How many; [`MISSED_COUNTED_MAX`] = that number or more.
    pub count: u64,
}

/// An instant to fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Firing {
    /// The instant.
    pub instant: Timestamp,
    /// The tasks of the previous firing are to be cancelled first.
    pub cancels: bool,
    /// Instants before this one that are missed.
    pub missed: u64,
}

impl Trigger {
    /// What is to be done now. `runs`: a task that the schedule started last has not ended.
    #[must_use]
    pub fn decide(&self, instants: &dyn Instants, runs: bool, now: Timestamp) -> Decision {
        let Some(schedule) = self.definition.schedule().filter(|_| self.paused.is_none()) else {
            return Decision::Wait(None);
        };
        if let Some(instant) = self.waiting.first().filter(|_| !runs) {
            return Decision::Fire(Firing { instant: *instant, cancels: false, missed: 0 });
        }
        let Some(next) = instants.next_after(self.decided) else { return Decision::Wait(None) };
        if let Some(decision) = self.late(instants, next, now) {
            return decision;
        }
        let due_at = next + self.jitter(next);
        if due_at > now {
            return Decision::Wait(Some(due_at));
        }
        self.fire(Firing { instant: next, cancels: false, missed: 0 }, schedule.overlap, runs)
    }

    /// What is to be done about instants that were not fired in time; `None` = the next one is to be fired.
    fn late(&self, instants: &dyn Instants, next: Timestamp, now: Timestamp) -> Option<Decision> {
        let schedule = self.definition.schedule()?;
        let allowed = Millis(LATE_AFTER.0 + schedule.jitter.0);
        let in_time = Timestamp(now.0.saturating_sub_unsigned(allowed.0));
        if next >= in_time {
            return None;
        }
        let last = instants.last_until(Timestamp(in_time.0 - 1)).filter(|last| *last >= next)?;
        let pass = |until| Some(Decision::Pass(Missed { until, count: self.missed(instants, until) }));
        match schedule.catch_up {
            CatchUp::None => pass(last),
            CatchUp::One { within } => match last + within >= now {
                true => Some(Decision::Fire(Firing {
                    instant: last,
                    cancels: false,
                    missed: self.missed(instants, last) - 1,
                })),
                false => pass(last),
            },
            CatchUp::All { within } => {
                let oldest = Timestamp(now.0.saturating_sub_unsigned(within.0));
                match instants.last_until(Timestamp(oldest.0 - 1)).filter(|last| *last >= next) {
                    Some(too_old) => pass(too_old),
                    None => None,
                }
            }
        }
    }

    fn fire(&self, firing: Firing, overlap: Overlap, runs: bool) -> Decision {
        match overlap {
            Overlap::Queue if self.waiting.len() >= WAITING_MAX => Decision::Skip(firing.instant),
            Overlap::Queue if runs || !self.waiting.is_empty() => Decision::Queue(firing.instant),
            Overlap::Skip if runs => Decision::Skip(firing.instant),
            Overlap::CancelOther if runs => Decision::Fire(Firing { cancels: true, ..firing }),
            _ => Decision::Fire(firing),
        }
    }

    /// The number of instants from the next one until `until`, from 1 to [`MISSED_COUNTED_MAX`].
    fn missed(&self, instants: &dyn Instants, until: Timestamp) -> u64 {
        let next = |time: &Timestamp| instants.next_after(*time).filter(|next| *next <= until);
        let counted = std::iter::successors(next(&self.decided), next);
        counted.take(usize::try_from(MISSED_COUNTED_MAX).unwrap_or(usize::MAX)).count().max(1) as u64
    }
}

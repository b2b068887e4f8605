//! The instants of schedules: of cron expressions in a time zone, and of intervals.
//!
//! Pure: the same schedule has the same instants on every server. The time zone database is a part of the program.

mod cron;
mod every;
#[cfg(test)]
mod reference;
mod time;

use thiserror::Error;
use windlass_core::{Instants, Timestamp, Timing};

pub use cron::Cron;
pub use every::Every;
pub use time::rfc3339;

/// The longest cron expression, in bytes.
pub const EXPRESSION_BYTES_MAX: usize = 256;

/// The instants of a trigger's schedule.
#[derive(Debug, Clone)]
pub enum Schedule {
    /// Those of a cron expression.
    Cron(Box<Cron>),
    /// Those of an interval.
    Every(Every),
}

/// Why a schedule was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ScheduleError {
    /// The expression cannot be read.
    #[error(
        "invalid cron expression {expression:?}: {reason}; use five fields, such as \"0 3 * * *\" for 03:00 each \
         day, or six that begin with seconds"
    )]
    Expression {
        /// The beginning of the expression.
        expression: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No date matches the expression.
    #[error("the cron expression {0:?} never fires: no date matches its day, month and weekday")]
    NeverFires(String),
    /// No time zone has this name.
    #[error("unknown time zone {0:?}: use a name of the IANA database, such as Europe/Berlin or UTC")]
    UnknownZone(String),
}

impl Schedule {
    /// The schedule of `timing`. Intervals are counted from `since`.
    ///
    /// # Errors
    /// When the expression is invalid or never fires after `since`, or the time zone is unknown.
    pub fn of(timing: &Timing, since: Timestamp) -> Result<Self, ScheduleError> {
        match timing {
            Timing::Cron { expression, timezone } => {
                let cron = Cron::parse(expression, timezone)?;
                match cron.next_after(since) {
                    Some(_) => Ok(Self::Cron(Box::new(cron))),
                    None => Err(ScheduleError::NeverFires(expression.to_string())),
                }
            }
            Timing::Every { interval } => Ok(Self::Every(Every { since, interval: *interval })),
        }
    }
}

impl Instants for Schedule {
    fn next_after(&self, time: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Cron(cron) => cron.next_after(time),
            Self::Every(every) => every.next_after(time),
        }
    }

    fn last_until(&self, time: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Cron(cron) => cron.last_until(time),
            Self::Every(every) => every.last_until(time),
        }
    }
}

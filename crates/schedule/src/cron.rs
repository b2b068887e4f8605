//! Cron expressions in a time zone.
//!
//! An expression lists times that a clock on a wall shows. A zone's clock does not show each time once: at the start of
//! summer time it leaves times out, at the end it shows some twice. Each listed time has one instant:
//!
//! ```text
//! instant of a listed time = the first instant at which the clock has shown that time, or a later one
//! ```
//!
//! So a time that is shown twice fires once, the first time. A time that is left out fires when the clock jumps over
//! it, and all listed times in the gap have that one instant. Between two such changes the instants are those of the
//! clock, and a schedule keeps its hour. The definition is monotonic: later listed times never have earlier instants.

use std::sync::LazyLock;

use croner::parser::{CronParser, Seconds, Year};
use jiff::{
    SignedDuration, Span,
    civil::DateTime,
    tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase},
};
use windlass_core::{Instants, Timestamp};

use crate::{EXPRESSION_BYTES_MAX, ScheduleError, time::instant};

/// How far back a clock may have been set: the longest steps in the database are whole days, where a country moved over
/// the date line.
const STEP_MAX: SignedDuration = SignedDuration::from_hours(26);

/// The zones, as they were when the program was built.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// A cron expression in a time zone.
#[derive(Debug, Clone)]
pub struct Cron {
    times: croner::Cron,
    zone: TimeZone,
}

impl Cron {
    /// Reads an expression of five fields, or of six that begin with seconds. Whether it ever fires is not checked.
    ///
    /// # Errors
    /// When the expression is invalid or the time zone is unknown.
    pub fn parse(expression: &str, zone: &str) -> Result<Self, ScheduleError> {
        let invalid = |reason: String| ScheduleError::Expression {
            expression: expression.chars().take(EXPRESSION_BYTES_MAX).collect(),
            reason,
        };
        if expression.len() > EXPRESSION_BYTES_MAX {
            return Err(invalid(format!("it is longer than {EXPRESSION_BYTES_MAX} bytes")));
        }
        let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
        let times = parser.parse(expression).map_err(|error| {
            let reason = error.to_string().to_lowercase();
            invalid(reason.trim_end_matches('.').to_owned())
        })?;
        let unknown = |_| ScheduleError::UnknownZone(zone.chars().take(64).collect());
        let zone = ZONES.get(zone).map_err(unknown)?;
        Ok(Self { times, zone })
    }

    /// The latest time that the zone's clock has shown up to `time`. During a repeated hour this is the end of that
    /// hour, which has been shown before.
    fn latest_shown(&self, time: jiff::Timestamp) -> DateTime {
        let since = time.saturating_sub(STEP_MAX).unwrap_or(jiff::Timestamp::MIN);
        let after = time.saturating_add(SignedDuration::from_nanos(1)).unwrap_or(jiff::Timestamp::MAX);
        let steps = self.zone.preceding(after).take_while(|step| step.timestamp() > since);
        let shown_before = steps.filter_map(|step| {
            let second_before = step.timestamp().checked_sub(SignedDuration::from_secs(1)).ok()?;
            Some(self.zone.to_datetime(second_before))
        });
        shown_before.chain([self.zone.to_datetime(time)]).max().unwrap_or(DateTime::MAX)
    }

    /// The first instant at which the clock has shown `time` or a later one.
    fn first_shown(&self, time: DateTime) -> Option<Timestamp> {
        let ambiguous = self.zone.to_ambiguous_timestamp(time);
        let instant = match ambiguous.offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(time).ok()?,
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(time).ok()?,
            AmbiguousOffset::Gap { before, .. } => {
                // By the clock from before, the time is shown after the step. So the step is the last one before that.
                let after_step = before.to_timestamp(time).ok()?;
                let after = after_step.checked_add(SignedDuration::from_nanos(1)).ok()?;
                self.zone.preceding(after).next()?.timestamp()
            }
        };
        Some(Timestamp(instant.as_millisecond()))
    }
}

impl Instants for Cron {
    fn next_after(&self, time: Timestamp) -> Option<Timestamp> {
        let shown = self.latest_shown(instant(time));
        let listed = self.times.find_next_occurrence(&on_paper(shown)?, false).ok()?;
        self.first_shown(listed.datetime())
    }

    fn last_until(&self, time: Timestamp) -> Option<Timestamp> {
        let shown = self.latest_shown(instant(time));
        let listed = self.times.find_previous_occurrence(&on_paper(shown)?, true).ok()?;
        self.first_shown(listed.datetime())
    }
}

/// A time of a clock that shows every time once. Fractions of a second are dropped: no expression lists them.
fn on_paper(time: DateTime) -> Option<jiff::Zoned> {
    let whole = time.checked_sub(Span::new().nanoseconds(time.subsec_nanosecond())).ok()?;
    whole.to_zoned(TimeZone::UTC).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rfc3339;

    fn ms(text: &str) -> Timestamp {
        Timestamp(text.parse::<jiff::Timestamp>().unwrap().as_millisecond())
    }

    /// The first instants after a time.
    fn instants(expression: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
        let cron = Cron::parse(expression, zone).unwrap();
        let next = |time: &Timestamp| cron.next_after(*time);
        std::iter::successors(next(&ms(after)), next).take(count).map(rfc3339).collect()
    }

    #[test]
    fn a_daily_schedule_keeps_its_hour_over_the_start_and_the_end_of_summer_time() {
        assert_eq!(
            instants("0 3 * * *", "Europe/Berlin", "2026-03-27T12:00:00Z", 3),
            ["2026-03-28T02:00:00Z", "2026-03-29T01:00:00Z", "2026-03-30T01:00:00Z"]
        );
        assert_eq!(
            instants("0 3 * * *", "Europe/Berlin", "2026-10-23T12:00:00Z", 3),
            ["2026-10-24T01:00:00Z", "2026-10-25T02:00:00Z", "2026-10-26T02:00:00Z"]
        );
    }

    #[test]
    fn a_time_that_the_clock_leaves_out_fires_when_the_clock_jumps_over_it_and_once() {
        // 02:00 becomes 03:00 at 01:00 UTC.
        assert_eq!(
            instants("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", 2),
            ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]
        );
        assert_eq!(
            instants("*/20 * * * *", "Europe/Berlin", "2026-03-29T00:30:00Z", 4),
            ["2026-03-29T00:40:00Z", "2026-03-29T01:00:00Z", "2026-03-29T01:20:00Z", "2026-03-29T01:40:00Z"]
        );
    }

    #[test]
    fn an_hour_that_occurs_twice_fires_each_listed_minute_once() {
        // 03:00 becomes 02:00 at 01:00 UTC.
        assert_eq!(
            instants("*/20 * * * *", "Europe/Berlin", "2026-10-24T23:50:00Z", 5),
            [
                "2026-10-25T00:00:00Z",
                "2026-10-25T00:20:00Z",
                "2026-10-25T00:40:00Z",
                "2026-10-25T02:00:00Z",
                "2026-10-25T02:20:00Z"
            ]
        );
        // Half an hour occurs twice there: 02:00 becomes 01:30 at 15:00 UTC.
        assert_eq!(
            instants("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00:00Z", 2),
            ["2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"]
        );
    }

    #[test]
    fn a_country_that_skips_a_day_fires_what_it_skips_once() {
        assert_eq!(
            instants("0 12 * * *", "Pacific/Apia", "2011-12-29T12:00:00Z", 3),
            ["2011-12-29T22:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T22:00:00Z"]
        );
    }

    #[test]
    fn the_last_instant_until_a_time() {
        let cron = Cron::parse("30 2 * * *", "Europe/Berlin").unwrap();
        let last = |text: &str| cron.last_until(ms(text)).map(rfc3339).unwrap();
        assert_eq!(last("2026-03-29T01:00:00Z"), "2026-03-29T01:00:00Z");
        assert_eq!(last("2026-03-29T00:59:59.999Z"), "2026-03-28T01:30:00Z");
        assert_eq!(last("2026-10-25T01:45:00Z"), "2026-10-25T00:30:00Z", "nothing fires at the second 02:30");
    }

    #[test]
    fn what_is_wrong_with_an_expression_is_said() {
        let error = |expression: &str, zone: &str| Cron::parse(expression, zone).unwrap_err().to_string();
        assert!(error("61 * * * *", "UTC").contains("out of bounds"), "{}", error("61 * * * *", "UTC"));
        assert!(error("every day", "UTC").contains("such as \"0 3 * * *\""));
        assert!(error(&"1,".repeat(200), "UTC").contains("longer than 256 bytes"));
        assert!(error("0 0 * * * * 2030", "UTC").contains("invalid cron expression"));
        assert!(error("* * * * *", "Europe/Bärlin").contains("unknown time zone \"Europe/Bärlin\""));
        let timing = |expression: &str| windlass_core::Timing::Cron {
            expression: expression.into(),
            timezone: "UTC".into(),
        };
        for never in ["0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6,9,11 *"] {
            let error = crate::Schedule::of(&timing(never), Timestamp(0)).unwrap_err();
            assert_eq!(error, ScheduleError::NeverFires(never.to_owned()));
        }
        assert!(crate::Schedule::of(&timing("0 0 29 2 *"), Timestamp(0)).is_ok());
        assert!(crate::Schedule::of(&timing("*/5 * * * * *"), Timestamp(0)).is_ok(), "with seconds");
        assert!(crate::Schedule::of(&timing("@daily"), Timestamp(0)).is_ok());
    }
}

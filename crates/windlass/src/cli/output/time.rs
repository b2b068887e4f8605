//! Times as people write and read them.

use jiff::{SignedDuration, SpanRelativeTo, Timestamp};

/// How long ago `at` was, roughly: `3m ago`, `in 2h`, `now`.
#[must_use]
pub(crate) fn age(at: Timestamp, now: Timestamp) -> String {
    let passed = now.duration_since(at);
    match passed.as_secs() {
        0 => "now".to_owned(),
        1.. => format!("{} ago", rough(passed)),
        _ => format!("in {}", rough(passed.abs())),
    }
}

/// The time from `from` to `to`: `350ms`, `1.2s`, `3m 20s`, `2h 5m`, `4d 1h`.
#[must_use]
pub(crate) fn elapsed(from: Timestamp, to: Timestamp) -> String {
    let passed = to.duration_since(from).max(SignedDuration::ZERO);
    let seconds = passed.as_secs();
    match seconds {
        0 => format!("{}ms", passed.as_millis()),
        1..10 => format!("{seconds}.{}s", passed.subsec_millis() / 100),
        10..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h {}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// Reads a start time: RFC 3339, or from now on: `+15m`.
pub(crate) fn parse_start(text: &str) -> Result<Timestamp, String> {
    parse_start_at(text, Timestamp::now())
}

/// Reads a time in the past: RFC 3339, or that long ago: `15m`.
pub(crate) fn parse_past(text: &str) -> Result<Timestamp, String> {
    parse_past_at(text, Timestamp::now())
}

pub(in crate::cli) fn parse_start_at(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    let hint = "write a time such as 2030-01-31T08:00:00Z, or +15m for 15 minutes from now";
    match text.strip_prefix('+') {
        Some(duration) => {
            now.checked_add(parse_duration(duration, hint)?).map_err(|_| format!("too far away: {hint}"))
        }
        None => text.parse().map_err(|_| hint.to_owned()),
    }
}

pub(in crate::cli) fn parse_past_at(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    let hint = "write a time such as 2030-01-31T08:00:00Z, or 15m for 15 minutes ago";
    if let Ok(time) = text.parse() {
        return Ok(time);
    }
    now.checked_sub(parse_duration(text, hint)?).map_err(|_| format!("too far away: {hint}"))
}

/// Reads a duration that is not negative; a day has 24 hours.
fn parse_duration(text: &str, hint: &str) -> Result<SignedDuration, String> {
    let span: jiff::Span = text.parse().map_err(|_| hint.to_owned())?;
    let duration = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| hint.to_owned())?;
    if duration.is_negative() { Err(hint.to_owned()) } else { Ok(duration) }
}

/// The largest unit of a duration: nobody needs the seconds of yesterday.
fn rough(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        ..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};

    use super::{age, elapsed, parse_past_at, parse_start_at};

    const NOW: Timestamp = Timestamp::constant(1_900_000_000, 0);

    #[test]
    fn ages_are_rough() {
        for (seconds, text) in [
            (0, "now"),
            (5, "5s ago"),
            (200, "3m ago"),
            (7_300, "2h ago"),
            (200_000, "2d ago"),
            (-90, "in 1m"),
        ] {
            assert_eq!(age(NOW - SignedDuration::from_secs(seconds), NOW), text);
        }
    }

    #[test]
    fn elapsed_time_has_two_figures() {
        for (ms, text) in [
            (0, "0ms"),
            (350, "350ms"),
            (1_260, "1.2s"),
            (59_999, "59s"),
            (200_000, "3m 20s"),
            (7_500_000, "2h 5m"),
            (349_200_000, "4d 1h"),
        ] {
            assert_eq!(elapsed(NOW, NOW + SignedDuration::from_millis(ms)), text);
        }
        assert_eq!(
            elapsed(NOW, NOW - SignedDuration::from_secs(1)),
            "0ms",
            "clocks of two machines may differ"
        );
    }

    #[test]
    fn start_times_are_absolute_or_from_now() {
        assert_eq!(parse_start_at("+15m", NOW).unwrap(), NOW + SignedDuration::from_mins(15));
        assert_eq!(parse_start_at("+2d", NOW).unwrap(), NOW + SignedDuration::from_hours(48));
        assert_eq!(parse_start_at("2030-03-17T17:46:40Z", NOW).unwrap(), NOW);
        for wrong in ["15m", "tomorrow", "+", "+-5m", "2030-03-17", "+9999999999h"] {
            assert!(parse_start_at(wrong, NOW).is_err(), "{wrong}");
        }
    }

    #[test]
    fn past_times_are_absolute_or_ago() {
        assert_eq!(parse_past_at("15m", NOW).unwrap(), NOW - SignedDuration::from_mins(15));
        assert_eq!(parse_past_at("1h30m", NOW).unwrap(), NOW - SignedDuration::from_mins(90));
        assert_eq!(parse_past_at("2030-03-17T17:46:40Z", NOW).unwrap(), NOW);
        for wrong in ["", "soon", "-15m", "+"] {
            assert!(parse_past_at(wrong, NOW).unwrap_err().contains("15m"), "{wrong}");
        }
    }
}

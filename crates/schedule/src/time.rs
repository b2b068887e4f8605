//! Points in time as text.

use windlass_core::Timestamp;

/// The time in RFC 3339, in UTC, such as `2026-03-29T01:00:00Z`.
#[must_use]
pub fn rfc3339(time: Timestamp) -> String {
    instant(time).to_string()
}

/// The same point in time for calculations; times beyond the year 9999 are the end of that year.
pub(crate) fn instant(time: Timestamp) -> jiff::Timestamp {
    let end = if time.0 < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
    jiff::Timestamp::from_millisecond(time.0).unwrap_or(end)
}

//! Durations in the format of users: `5m`, `1h 30m`, `250ms`, `2d`, or a number of seconds.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use utoipa::{PartialSchema, ToSchema, openapi::schema};

/// A duration in whole milliseconds, never negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// Milliseconds.
    pub ms: u64,
}

/// The longest duration that can be parsed: it must be possible to write it again.
const MS_MAX: u64 = i64::MAX as u64;

impl Span {
    /// A duration of this many milliseconds.
    #[must_use]
    pub const fn from_ms(ms: u64) -> Self {
        Self { ms }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = i64::try_from(self.ms).unwrap_or(i64::MAX);
        write!(f, "{:#}", jiff::SignedDuration::from_millis(ms))
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // A day has 24 hours: a duration has no time zone. Months and years have no fixed length.
        let duration = text
            .trim()
            .parse::<jiff::Span>()
            .and_then(|span| span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()))
            .map_err(|_| {
                format!("invalid duration \"{text}\": use for example 250ms, 30s, 5m, 1h30m or 2d")
            })?;
        if duration.is_negative() {
            return Err(format!("\"{text}\" is negative: a duration is 0 or more"));
        }
        if duration.subsec_nanos() % 1_000_000 != 0 {
            return Err(format!("\"{text}\" is finer than a millisecond: write whole ones, such as 250ms"));
        }
        let ms = u64::try_from(duration.as_millis()).ok().filter(|ms| *ms <= MS_MAX);
        ms.map(Self::from_ms).ok_or_else(|| format!("\"{text}\" is too long"))
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = Span;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as 5m, or a number of seconds")
            }

            fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<Span, E> {
                let ms = seconds.checked_mul(1000).filter(|ms| *ms <= MS_MAX);
                ms.map(Span::from_ms).ok_or_else(|| E::custom("the duration is too long"))
            }

            fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<Span, E> {
                let seconds = u64::try_from(seconds)
                    .map_err(|_| E::custom(format!("{seconds} is negative: a duration is 0 or more")))?;
                self.visit_u64(seconds)
            }

            fn visit_f64<E: de::Error>(self, seconds: f64) -> Result<Span, E> {
                if !(0.0..=1e12).contains(&seconds) {
                    return Err(E::custom(format!("invalid duration {seconds}: use 0 or more seconds")));
                }
                let ms = (seconds * 1000.0).round();
                // Division gives the same value as parsing the decimals, so this finds numbers with more than
                // three of them.
                #[expect(clippy::float_cmp, reason = "the same number, or another one")]
                if ms / 1000.0 != seconds {
                    return Err(E::custom(format!("{seconds} is finer than a millisecond")));
                }
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
                Ok(Span::from_ms(ms as u64))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Span, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

impl PartialSchema for Span {
    fn schema() -> utoipa::openapi::RefOr<schema::Schema> {
        schema::ObjectBuilder::new()
            .schema_type(schema::SchemaType::from_iter([schema::Type::String, schema::Type::Number]))
            .description(Some("A duration such as 250ms, 30s, 5m, 1h30m or 2d; a number means seconds."))
            .examples([serde_json::json!("5m")])
            .into()
    }
}

impl ToSchema for Span {}

#[cfg(test)]
mod tests {
    use super::Span;

    #[test]
    fn durations_are_read_and_written_as_people_do() {
        for (text, ms, back) in
            [("5m", 300_000, "5m"), ("1h30m", 5_400_000, "1h 30m"), ("250ms", 250, "250ms"), ("0s", 0, "0s")]
        {
            let span: Span = text.parse().unwrap();
            assert_eq!(span.ms, ms);
            assert_eq!(span.to_string(), back);
            assert_eq!(span.to_string().parse::<Span>().unwrap(), span);
        }
        assert_eq!(serde_json::from_str::<Span>("1800").unwrap().ms, 1_800_000);
        assert_eq!("2d".parse::<Span>().unwrap().ms, 172_800_000, "a day has 24 hours");
        assert_eq!("1d 12h".parse::<Span>().unwrap().to_string(), "36h");
        assert!("2 months".parse::<Span>().unwrap_err().contains("2d"), "nobody knows how long a month is");
        assert!("-5m".parse::<Span>().unwrap_err().contains("negative"));
        assert!(serde_json::from_str::<Span>("-1").unwrap_err().to_string().contains("negative"));
        for finer in ["1ns", "1.5ms", "250us"] {
            assert!(finer.parse::<Span>().unwrap_err().contains("finer"), "{finer}");
        }
        assert!("-0.5ms".parse::<Span>().unwrap_err().contains("negative"));
        assert_eq!(serde_json::from_str::<Span>("1.001").unwrap().ms, 1001, "rounded, not cut");
        assert!(serde_json::from_str::<Span>("1.0005").unwrap_err().to_string().contains("finer"));
        assert!(
            serde_json::from_str::<Span>("18446744073709551").unwrap_err().to_string().contains("too long")
        );
        assert!("soon".parse::<Span>().unwrap_err().contains("250ms"));
    }
}

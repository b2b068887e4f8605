//! Values of `[server]` that have limits. Flags, variables and the file are checked alike, where each is read, so that errors
//! name the flag, the variable or the line.

use std::{fmt, ops::RangeInclusive, str::FromStr};

use serde::{Deserialize, Deserializer, de};
use windlass_api::Span;

use crate::wire::StoreUrl;

/// The minimum of `keep_tasks`: one day, so that a request repeated within a day always finds its first task.
const KEEP_TASKS_MIN: Span = Span::from_ms(24 * 3600 * 1000);

/// The minimum of `keep_logs`: a minute, so that a line is there when somebody looks for it.
const KEEP_LOGS_MIN: Span = Span::from_ms(60 * 1000);

/// The minimum of `keep_audit`: one day, so that what was done at night is there in the morning.
const KEEP_AUDIT_MIN: Span = Span::from_ms(24 * 3600 * 1000);

/// The range of `client_connections`: its maximum is the limit on all connections.
const CLIENT_CONNECTIONS: RangeInclusive<usize> = 1..=4096;

/// The range of `client_body_mib`: from the largest body to the limit on all bodies.
const CLIENT_BODY_MIB: RangeInclusive<usize> = 8..=128;

/// The most that `resident_mib` may be: a TiB.
const RESIDENT_MIB_MAX: u64 = 1 << 20;

/// Reads the value of a flag or a variable.
///
/// # Errors
/// When it is not of this type, or `check` refuses it.
pub(crate) fn of_text<T: FromStr<Err: fmt::Display>>(
    text: &str,
    check: impl FnOnce(T) -> Result<T, String>,
) -> Result<T, String> {
    check(text.parse().map_err(|error: T::Err| error.to_string())?)
}

/// Checks `advertise`.
///
/// # Errors
/// When it is not the URL of a server.
pub(crate) fn advertise(text: String) -> Result<String, String> {
    let is_url = reqwest::Url::parse(&text)
        .is_ok_and(|url| ["http", "https"].contains(&url.scheme()) && url.has_host());
    if is_url {
        Ok(text)
    } else {
        Err(format!("{text:?} is not a URL such as https://windlass-1.internal:7700"))
    }
}

/// Checks `keep_tasks`.
///
/// # Errors
/// When it is too short.
pub(crate) fn keep_tasks(time: Span) -> Result<Span, String> {
    at_least(KEEP_TASKS_MIN, time).map_err(|error| {
        format!(
            "{error}. Idempotency keys are deleted with their tasks, so a request repeated later would start its task again"
        )
    })
}

/// Checks `keep_logs`.
///
/// # Errors
/// When it is too short.
pub(crate) fn keep_logs(time: Span) -> Result<Span, String> {
    at_least(KEEP_LOGS_MIN, time)
}

/// Checks `keep_audit`.
///
/// # Errors
/// When it is too short.
pub(crate) fn keep_audit(time: Span) -> Result<Span, String> {
    at_least(KEEP_AUDIT_MIN, time)
}

fn at_least(least: Span, time: Span) -> Result<Span, String> {
    if time < least { Err(format!("it is {time}; the minimum is {least}")) } else { Ok(time) }
}

/// Checks `client_connections`.
///
/// # Errors
/// When it is outside of its range.
pub(crate) fn client_connections(count: usize) -> Result<usize, String> {
    if CLIENT_CONNECTIONS.contains(&count) {
        return Ok(count);
    }
    Err(format!("use 1 to {}", CLIENT_CONNECTIONS.end()))
}

/// Checks `client_body_mib`.
///
/// # Errors
/// When it is outside of its range.
pub(crate) fn client_body_mib(mib: usize) -> Result<usize, String> {
    if CLIENT_BODY_MIB.contains(&mib) {
        return Ok(mib);
    }
    let (least, most) = (CLIENT_BODY_MIB.start(), CLIENT_BODY_MIB.end());
    Err(format!("use {least}, which is the largest body, to {most}"))
}

/// Checks `resident_mib`.
///
/// # Errors
/// When it is too large.
pub(crate) fn resident_mib(mib: u64) -> Result<u64, String> {
    if mib <= RESIDENT_MIB_MAX {
        return Ok(mib);
    }
    Err(format!("use 0 to {RESIDENT_MIB_MAX}"))
}

/// How the file is read.
pub(super) mod in_file {
    use super::*;

    fn checked<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
        deserializer: D,
        check: impl FnOnce(T) -> Result<T, String>,
    ) -> Result<Option<T>, D::Error> {
        Option::deserialize(deserializer)?.map(check).transpose().map_err(de::Error::custom)
    }

    pub(crate) fn store<'de, D: Deserializer<'de>>(store: D) -> Result<Option<String>, D::Error> {
        // A flag is checked later: clap would show its value, which may contain a password.
        checked(store, |url: String| match url.parse::<StoreUrl>() {
            Ok(_) => Ok(url),
            Err(error) => Err(format!("{error:#}")),
        })
    }

    pub(crate) fn advertise<'de, D: Deserializer<'de>>(url: D) -> Result<Option<String>, D::Error> {
        checked(url, super::advertise)
    }

    pub(crate) fn keep_tasks<'de, D: Deserializer<'de>>(time: D) -> Result<Option<Span>, D::Error> {
        checked(time, super::keep_tasks)
    }

    pub(crate) fn keep_logs<'de, D: Deserializer<'de>>(time: D) -> Result<Option<Span>, D::Error> {
        checked(time, super::keep_logs)
    }

    pub(crate) fn keep_audit<'de, D: Deserializer<'de>>(time: D) -> Result<Option<Span>, D::Error> {
        checked(time, super::keep_audit)
    }

    pub(crate) fn client_connections<'de, D: Deserializer<'de>>(count: D) -> Result<Option<usize>, D::Error> {
        checked(count, super::client_connections)
    }

    pub(crate) fn client_body_mib<'de, D: Deserializer<'de>>(mib: D) -> Result<Option<usize>, D::Error> {
        checked(mib, super::client_body_mib)
    }

    pub(crate) fn resident_mib<'de, D: Deserializer<'de>>(mib: D) -> Result<Option<u64>, D::Error> {
        checked(mib, super::resident_mib)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_kept_for_a_day_at_least() {
        let keep = |text: &str| keep_tasks(text.parse().unwrap());
        assert!(keep("23h").unwrap_err().contains("it is 23h; the minimum is 24h"));
        assert!(keep("1d").is_ok());
    }

    #[test]
    fn logs_and_the_audit_log_are_kept_for_a_while() {
        let time = |text: &str| text.parse().unwrap();
        assert_eq!(keep_logs(time("0s")).unwrap_err(), "it is 0s; the minimum is 1m");
        assert!(keep_logs(time("1m")).is_ok() && keep_audit(time("1d")).is_ok());
        assert!(keep_audit(time("23h")).unwrap_err().contains("the minimum is 24h"));
    }

    #[test]
    fn others_reach_a_server_by_a_url() {
        for url in ["http://10.0.0.1:7700", "https://windlass-1.internal/"] {
            assert_eq!(advertise(url.to_owned()).as_deref(), Ok(url));
        }
        for text in ["", "nonsense", "ftp://x", "http://", "10.0.0.1:7700"] {
            assert!(advertise(text.to_owned()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_client_gets_no_more_than_there_is() {
        assert!(client_connections(4096).is_ok() && client_body_mib(128).is_ok());
        assert!(client_connections(0).is_err() && client_connections(4097).is_err());
        assert!(client_body_mib(7).is_err() && client_body_mib(129).is_err());
        assert!(resident_mib(0).is_ok() && resident_mib((1 << 20) + 1).is_err());
    }
}

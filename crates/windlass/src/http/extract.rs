//! Reading requests: bodies within their limits, JSON with the place of every mistake, names, times and cursors.

use std::borrow::Cow;

use axum::{
    body::{Body, Bytes},
    extract::{FromRequestParts, Query},
    http::{HeaderMap, StatusCode, header, request::Parts},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use windlass_api::Span;
use windlass_core::{Actor, Json, Name, TaskId, Timestamp};

use super::{budget::BodyBudget, problem::Refused, receive::read_body, words};

/// The largest body of a submit.
pub(crate) const SUBMIT_BYTES_MAX: usize = 2 << 20;

/// The largest parameters of a submit.
pub(crate) const PARAMS_BYTES_MAX: usize = 1 << 20;

/// The largest body of a batch or of an exchange.
pub(crate) const BATCH_BYTES_MAX: usize = 8 << 20;

/// The largest body of what a person decides: parameters are the large part.
pub(crate) const RESOLVE_BYTES_MAX: usize = 2 << 20;

/// The largest result of an attempt.
pub(crate) const RESULT_BYTES_MAX: usize = 256 << 10;

/// The longest name a client may give itself in `Windlass-Actor`, in bytes.
const ACTOR_BYTES_MAX: usize = 128;

/// The most items of a page.
const PAGE_ITEMS_MAX: usize = 1000;

/// Reads a body that is to be JSON, as text.
pub(crate) async fn read_json(
    budget: &BodyBudget,
    parts: &Parts,
    body: Body,
    limit: usize,
) -> Result<JsonText, Refused> {
    check_json(&parts.headers)?;
    let bytes = read_body(budget, parts, body, limit).await?;
    if bytes.is_empty() {
        return Err(Refused::malformed("the body is empty: send a JSON object"));
    }
    JsonText::new(bytes)
}

/// Reads a body that is to be JSON where there is one: no body is an object without fields.
pub(crate) async fn read_json_if_any(
    budget: &BodyBudget,
    parts: &Parts,
    body: Body,
    limit: usize,
) -> Result<JsonText, Refused> {
    let bytes = read_body(budget, parts, body, limit).await?;
    if bytes.is_empty() {
        return Ok(JsonText(Bytes::from_static(b"{}")));
    }
    check_json(&parts.headers)?;
    JsonText::new(bytes)
}

/// Refuses what says of itself that it is no JSON. A browser cannot send JSON to another site unasked, so this
/// also keeps pages of other sites out.
fn check_json(headers: &HeaderMap) -> Result<(), Refused> {
    let Some(content_type) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let text = content_type.to_str().unwrap_or_default();
    let essence = text.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(Refused::unsupported_media_type(format!(
        "the body is said to be {text:?}: send JSON, with the header `Content-Type: application/json`"
    )))
}

/// A body that is UTF-8.
pub(crate) struct JsonText(Bytes);

impl JsonText {
    fn new(bytes: Bytes) -> Result<Self, Refused> {
        match std::str::from_utf8(&bytes) {
            Ok(_) => Ok(Self(bytes)),
            Err(error) => {
                let valid = error.valid_up_to();
                Err(Refused::malformed(format!("the body is not UTF-8 from byte {valid} on")))
            }
        }
    }

    /// The text.
    pub(crate) fn as_str(&self) -> &str {
        // Checked when it was read; checking again is cheaper than a copy.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Parses it.
    pub(crate) fn parse<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Refused> {
        parse(self.as_str())
    }
}

/// Parses a document.
pub(crate) fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Refused> {
    // An array would be read as the fields of a document in their order, which nobody means.
    let begins = text.len() - text.trim_start().len();
    if text[begins..].starts_with('[') {
        let (line, column) = place_of(text, begins);
        let array = "the body is not as it should be: it is an array, and must be an object";
        return Err(Refused::malformed(array).at(Some(line), Some(column)));
    }
    serde_json::from_str(text).map_err(|error| {
        let place = |n: usize| u64::try_from(n).ok().filter(|n| *n > 0);
        let (line, column) = (place(error.line()), place(error.column()));
        Refused::malformed(describe(&error, field::<T>(text).as_deref())).at(line, column)
    })
}

/// The line and character of a byte, both from 1.
pub(super) fn place_of(text: &str, at: usize) -> (u64, u64) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let column = before[start..].chars().count() + 1;
    (line as u64, column as u64)
}

/// The field of a document that cannot be read as a `T`, as `labels.team`. It is read once more to find it: good
/// documents, which are nearly all, pay nothing for that.
fn field<'a, T: Deserialize<'a>>(text: &'a str) -> Option<String> {
    let error =
        serde_path_to_error::deserialize::<_, T>(&mut serde_json::Deserializer::from_str(text)).err()?;
    Some(error.path().to_string()).filter(|path| path != ".")
}

/// What serde says of a document, or of a field of it, with its place at the end in our words.
pub(crate) fn describe(error: &serde_json::Error, field: Option<&str>) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let what = words::plain(text.strip_suffix(&place).unwrap_or(&text));
    let what = cut(&what);
    let kind = match error.classify() {
        serde_json::error::Category::Data => "the body is not as it should be",
        _ => "the body is no JSON",
    };
    let field = field.map(|field| format!("`{}`: ", cut(field))).unwrap_or_default();
    format!("{kind}: {field}{what} (line {}, column {})", error.line(), error.column())
}

/// A message that may have a piece of the request in it, not longer than anybody reads.
pub(crate) fn cut(message: &str) -> Cow<'_, str> {
    /// The fields that serde names after one that is not known fit in.
    const CHARS_MAX: usize = 500;

    match message.char_indices().nth(CHARS_MAX) {
        None => message.into(),
        Some((end, _)) => format!("{}…", &message[..end]).into(),
    }
}

/// The parts of a query. Names that the route does not know are refused.
pub(crate) struct Pairs(Vec<(String, String)>);

impl Pairs {
    pub(crate) fn of(parts: &Parts, known: &[&str]) -> Result<Self, Refused> {
        if parts.uri.query().is_none_or(str::is_empty) {
            return Ok(Self(Vec::new()));
        }
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri)
            .map_err(|error| Refused::malformed(format!("the query cannot be read: {error}")))?;
        if let Some((unknown, _)) = pairs.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(Refused::malformed(format!(
                "the query has {unknown:?}, and what is known here is {known}"
            )));
        }
        Ok(Self(pairs))
    }

    /// All values of a name.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// The only value of a name.
    pub(crate) fn one(&self, name: &str) -> Result<Option<&str>, Refused> {
        let mut values = self.0.iter().filter(|(found, _)| found == name);
        match (values.next(), values.next()) {
            (_, Some(_)) => Err(Refused::malformed(format!("the query has {name:?} twice: take one away"))),
            (first, None) => Ok(first.map(|(_, value)| value.as_str())),
        }
    }

    /// `true` or `false`; false where nothing is said.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, Refused> {
        match self.one(name)? {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(other) => {
                Err(Refused::malformed(format!("{name:?} is {other:?}, and must be true or false")))
            }
        }
    }

    /// A number.
    pub(crate) fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, Refused> {
        let Some(text) = self.one(name)? else { return Ok(None) };
        text.parse()
            .map(Some)
            .map_err(|_| Refused::malformed(format!("{name:?} is {text:?}, and must be a whole number")))
    }

    /// How many items a page has: 1 to 1,000.
    pub(crate) fn limit(&self, default: usize) -> Result<usize, Refused> {
        let limit = self.number("limit")?.unwrap_or(default);
        if (1..=PAGE_ITEMS_MAX).contains(&limit) {
            return Ok(limit);
        }
        Err(Refused::malformed(format!("\"limit\" is {limit}, and must be from 1 to {PAGE_ITEMS_MAX}")))
    }

    /// A point in time: RFC 3339, or how long ago.
    pub(crate) fn time(&self, name: &str, now: Timestamp) -> Result<Option<Timestamp>, Refused> {
        self.one(name)?.map(|text| past(name, text, now)).transpose()
    }
}

/// A point in time: RFC 3339, or how long ago.
pub(crate) fn past(name: &str, text: &str, now: Timestamp) -> Result<Timestamp, Refused> {
    if let Ok(at) = text.parse::<jiff::Timestamp>() {
        return Ok(Timestamp(at.as_millisecond()));
    }
    let Ok(ago) = text.parse::<Span>() else {
        return Err(Refused::malformed(format!(
            "{name:?} is {text:?}, and must be a time such as 2030-03-17T17:46:40Z, or how long ago, such as 15m"
        )));
    };
    Ok(Timestamp(now.0.saturating_sub_unsigned(ago.ms)))
}

/// The parameters in a path, decoded.
pub(crate) async fn path<T: DeserializeOwned + Send>(parts: &mut Parts) -> Result<T, Refused> {
    let extracted = axum::extract::Path::<T>::from_request_parts(parts, &()).await;
    extracted.map(|axum::extract::Path(value)| value).map_err(|rejection| {
        if rejection.status() == StatusCode::BAD_REQUEST {
            Refused::malformed(format!("the path cannot be read: {}", rejection.body_text()))
        } else {
            Refused::fault(rejection.body_text())
        }
    })
}

/// The id of a task in a path. What is no id names no task.
pub(crate) fn task_id(text: &str) -> Result<TaskId, Refused> {
    text.parse().map_err(|_| {
        let text: String = text.chars().take(64).collect();
        Refused::unknown_task(format!(
            "there is no task {text:?}: an id is a UUID, as POST /v1/tasks answers it"
        ))
    })
}

/// The id of the only task in a path.
pub(crate) async fn task_in_path(parts: &mut Parts) -> Result<TaskId, Refused> {
    task_id(&path::<String>(parts).await?)
}

/// A name in a document; `what` says whose.
pub(crate) fn name(what: &str, text: &str) -> Result<Name, Refused> {
    Name::new(text).map_err(|error| Refused::malformed(format!("{what}: {error}")))
}

/// A JSON object of at most `bytes_max` bytes in a document; `what` says which.
pub(crate) fn object(what: &str, raw: &RawValue, bytes_max: usize) -> Result<Json, Refused> {
    if raw.get().len() > bytes_max {
        let (bytes, most) = (raw.get().len(), bytes_in_words(bytes_max));
        return Err(Refused::too_large(format!(
            "{what} has {bytes} bytes, and may have {most}: keep large data elsewhere and send where it is"
        )));
    }
    Json::from_raw(raw).map_err(|error| Refused::malformed(format!("{what}: {error}")))
}

/// Who says to act.
pub(crate) fn actor(headers: &HeaderMap) -> Result<Option<Actor>, Refused> {
    let Some(value) = headers.get("windlass-actor") else { return Ok(None) };
    let name = std::str::from_utf8(value.as_bytes()).unwrap_or_default().trim();
    if name.is_empty() || name.len() > ACTOR_BYTES_MAX || name.chars().any(char::is_control) {
        return Err(Refused::malformed(format!(
            "the header `Windlass-Actor` must be 1 to {ACTOR_BYTES_MAX} bytes of printable UTF-8"
        )));
    }
    Ok(Some(Actor { name: name.into(), claimed: true }))
}

/// A number of bytes as people write it.
pub(crate) fn bytes_in_words(bytes: usize) -> String {
    if bytes >= 1 << 20 { format!("{} MiB", bytes >> 20) } else { format!("{} KiB", bytes >> 10) }
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn pairs(query: &str) -> Result<Pairs, Refused> {
        let (parts, ()) = Request::get(format!("/v1/tasks?{query}")).body(()).unwrap().into_parts();
        Pairs::of(&parts, &["since", "limit", "label"])
    }

    #[test]
    fn times_are_points_or_how_long_ago() {
        let now = Timestamp(1_900_000_000_000);
        let time = |text: &str| pairs(&format!("since={text}")).unwrap().time("since", now);
        assert_eq!(time("15m").unwrap(), Some(Timestamp(now.0 - 900_000)));
        assert_eq!(time("2030-03-17T17:46:40Z").unwrap(), Some(now));
        assert_eq!(time("2030-03-17T18:46:40%2B01:00").unwrap(), Some(now));
        assert!(time("yesterday").unwrap_err().problem().detail.contains("15m"));
    }

    #[test]
    fn a_query_has_only_what_is_known_and_that_once() {
        assert!(pairs("status=x").is_err_and(|refused| refused.problem().detail.contains("limit")));
        assert!(pairs("since=1m&since=2m").unwrap().one("since").is_err());
        assert_eq!(pairs("label=a:b&label=c%3Ad").unwrap().all("label").collect::<Vec<_>>(), ["a:b", "c:d"]);
        for bad in ["0", "1001", "-1", "x", ""] {
            assert!(pairs(&format!("limit={bad}")).unwrap().limit(100).is_err(), "{bad}");
        }
        assert_eq!(pairs("limit=7").unwrap().limit(100).unwrap(), 7);
        assert_eq!(pairs("").unwrap().limit(100).unwrap(), 100);
    }

    #[test]
    fn actors_are_short_and_printable() {
        let actor = |value: &[u8]| {
            let value = axum::http::HeaderValue::from_bytes(value).unwrap();
            actor(&HeaderMap::from_iter([("windlass-actor".parse().unwrap(), value)]))
        };
        assert_eq!(&*actor("Zoë".as_bytes()).unwrap().unwrap().name, "Zoë");
        assert!(actor(b"").is_err() && actor(b"\xff").is_err() && actor(&[b'a'; 129]).is_err());
    }
}

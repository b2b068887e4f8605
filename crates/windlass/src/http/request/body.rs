//! Bodies: JSON within its limit, with the place of every mistake.

use std::sync::Arc;

use axum::{
    body::Bytes,
    extract::{FromRequest, Request},
    http::{HeaderMap, header},
};
use serde::Deserialize;
use serde_json::value::RawValue;
use windlass_core::Json;

use crate::http::{
    App,
    answer::problem::Refused,
    request::bytes_in_words,
    serving::{budget::BodyBudget, receive::read_body},
};

/// A JSON body of at most `MAX` bytes, as text: what is parsed may borrow from it.
pub(crate) struct JsonBody<const MAX: usize>(pub(crate) JsonText);

impl<const MAX: usize> FromRequest<Arc<App>> for JsonBody<MAX> {
    type Rejection = Refused;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Refused> {
        read_json(&app.bodies, request, MAX).await.map(Self)
    }
}

/// The same; a request without a body counts as an object without fields.
pub(crate) struct OptionalJsonBody<const MAX: usize>(pub(crate) JsonText);

impl<const MAX: usize> FromRequest<Arc<App>> for OptionalJsonBody<MAX> {
    type Rejection = Refused;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Refused> {
        let (parts, body) = request.into_parts();
        let bytes = read_body(&app.bodies, &parts, body, MAX).await?;
        if bytes.is_empty() {
            return Ok(Self(JsonText(Bytes::from_static(b"{}"))));
        }
        check_content_type(&parts.headers)?;
        JsonText::new(bytes).map(Self)
    }
}

/// Reads a body that is to be JSON, as text, within `budget`.
pub(crate) async fn read_json(
    budget: &BodyBudget,
    request: Request,
    limit: usize,
) -> Result<JsonText, Refused> {
    let (parts, body) = request.into_parts();
    check_content_type(&parts.headers)?;
    let bytes = read_body(budget, &parts, body, limit).await?;
    if bytes.is_empty() {
        return Err(Refused::malformed("the body is empty: send a JSON object"));
    }
    JsonText::new(bytes)
}

/// Refuses bodies whose `Content-Type` is not JSON. Browsers do not send JSON to another site without asking it first, so
/// this also keeps pages of other sites out.
pub(crate) fn check_content_type(headers: &HeaderMap) -> Result<(), Refused> {
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
        let array = "invalid body: it is an array, and must be an object";
        return Err(Refused::malformed(array).at(Some(line), Some(column)));
    }
    serde_json::from_str(text).map_err(|error| {
        let place = |n: usize| u64::try_from(n).ok().filter(|n| *n > 0);
        let (line, column) = (place(error.line()), place(error.column()));
        Refused::malformed(describe(&error, field::<T>(text).as_deref())).at(line, column)
    })
}

/// The line and character of a byte, both from 1.
pub(in crate::http) fn place_of(text: &str, at: usize) -> (u64, u64) {
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

/// Serde's message about a document or one of its fields, with the place at the end.
pub(crate) fn describe(error: &serde_json::Error, field: Option<&str>) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let what = cut(text.strip_suffix(&place).unwrap_or(&text));
    let kind = match error.classify() {
        serde_json::error::Category::Data => "invalid body",
        _ => "the body is not valid JSON",
    };
    let field = field.map(|field| format!("`{}`: ", cut(field))).unwrap_or_default();
    format!("{kind}: {field}{what} (line {}, column {})", error.line(), error.column())
}

/// A message that may have a piece of the request in it, not longer than anybody reads.
pub(crate) fn cut(message: &str) -> std::borrow::Cow<'_, str> {
    /// The fields that serde names after one that is not known fit in.
    const CHARS_MAX: usize = 500;

    match message.char_indices().nth(CHARS_MAX) {
        None => message.into(),
        Some((end, _)) => format!("{}…", &message[..end]).into(),
    }
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

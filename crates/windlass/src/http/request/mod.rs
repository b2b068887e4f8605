//! Reading requests: typed extractors for what handlers need, and the limits of what is read.

mod at_most;
mod body;
mod caller;
pub(in crate::http) mod json_path;
mod pages;
mod path;
mod query;

use windlass_core::Name;

use crate::http::answer::problem::Refused;

pub(in crate::http) use at_most::AtMost;
pub(in crate::http) use body::place_of;
pub(crate) use body::{JsonBody, OptionalJsonBody, check_content_type, cut, object, parse, read_json};
pub(crate) use caller::{By, Caller, actor, traceparent};
pub(crate) use pages::{ByName, ByNumber};
pub(crate) use path::Path;
pub(crate) use query::{FromQuery, Pairs, Query, WithoutQuery, past, refuse_unread};

/// The largest body of a submit.
pub(crate) const SUBMIT_BYTES_MAX: usize = 2 << 20;

/// The largest parameters of a submit.
pub(crate) const PARAMS_BYTES_MAX: usize = 1 << 20;

/// The largest body of a batch or of an exchange.
pub(crate) const BATCH_BYTES_MAX: usize = 8 << 20;

/// The largest body of a resolve or a signal: parameters are the large part.
pub(crate) const RESOLVE_BYTES_MAX: usize = 2 << 20;

/// The largest result of an attempt.
pub(crate) const RESULT_BYTES_MAX: usize = 256 << 10;

/// A name in a document; `what` says whose.
pub(crate) fn name(what: &str, text: &str) -> Result<Name, Refused> {
    Name::new(text).map_err(|error| Refused::malformed(format!("{what}: {error}")))
}

/// A number of bytes as people write it.
pub(crate) fn bytes_in_words(bytes: usize) -> String {
    if bytes >= 1 << 20 { format!("{} MiB", bytes >> 20) } else { format!("{} KiB", bytes >> 10) }
}

//! Query parameters, each checked.

use std::{collections::HashSet, sync::Arc};

use axum::{
    extract::{FromRequestParts, MatchedPath, Request, State},
    http::{Method, request::Parts},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use utoipa::openapi::{
    OpenApi, RefOr,
    path::{Operation, Parameter, ParameterIn},
};
use windlass_api::Span;
use windlass_core::{Name, Timestamp};

use crate::http::{App, answer::problem::Refused, openapi::operations};

/// The most items of a page.
const PAGE_ITEMS_MAX: usize = 1000;

/// What a route reads of a query.
pub(crate) trait FromQuery: Sized {
    /// The names that it knows; others are refused.
    const NAMES: &'static [&'static str];

    /// Reads it.
    fn from_query(pairs: &Pairs, now: Timestamp) -> Result<Self, Refused>;
}

/// A query, read.
pub(crate) struct Query<T>(pub(crate) T);

impl<T: FromQuery> FromRequestParts<Arc<App>> for Query<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Refused> {
        T::from_query(&Pairs::of(parts, T::NAMES)?, app.now().wall).map(Self)
    }
}

/// The operations without query parameters that refuse requests with some: those under `/v1/` whose description in the
/// contract has none. Programs of others that call the address of a trigger may add parameters of their own.
pub(crate) struct WithoutQuery(HashSet<(String, Method)>);

/// The address of a trigger.
const WEBHOOK: &str = "/v1/triggers/{name}";

impl WithoutQuery {
    /// Reads the contract.
    pub(crate) fn of(contract: &OpenApi) -> Self {
        let mut without = HashSet::new();
        for (path, item) in contract.paths.paths.iter().filter(|(path, _)| path.starts_with("/v1/")) {
            for (method, operation) in operations(item) {
                let is_webhook = path == WEBHOOK && method == Method::POST;
                if !is_webhook && !has_query(operation) {
                    without.insert((path.clone(), method));
                }
            }
        }
        Self(without)
    }

    fn has(&self, path: &str, method: &Method) -> bool {
        let method = if method == Method::HEAD { &Method::GET } else { method };
        self.0.iter().any(|(known, of)| known == path && of == method)
    }
}

fn has_query(operation: &Operation) -> bool {
    let is_query = |parameter: &RefOr<Parameter>| match parameter {
        RefOr::T(parameter) => parameter.parameter_in == ParameterIn::Query,
        RefOr::Ref(_) => false,
    };
    operation.parameters.iter().flatten().any(is_query)
}

/// Refuses query parameters of operations that have none: one that is not read may be a mistake.
pub(crate) async fn refuse_unread(
    State(without): State<Arc<WithoutQuery>>,
    path: MatchedPath,
    request: Request,
    next: Next,
) -> Response {
    let has_query = request.uri().query().is_some_and(|query| !query.is_empty());
    if !has_query || !without.has(path.as_str(), request.method()) {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    match Pairs::of(&parts, &[]) {
        Ok(_) => next.run(Request::from_parts(parts, body)).await,
        Err(refused) => refused.into_response(),
    }
}

/// The parts of a query. Names that the route does not know are refused.
pub(crate) struct Pairs(Vec<(String, String)>);

impl Pairs {
    pub(crate) fn of(parts: &Parts, known: &[&str]) -> Result<Self, Refused> {
        if parts.uri.query().is_none_or(str::is_empty) {
            return Ok(Self(Vec::new()));
        }
        let axum::extract::Query(pairs) =
            axum::extract::Query::<Vec<(String, String)>>::try_from_uri(&parts.uri)
                .map_err(|error| Refused::malformed(format!("the query cannot be read: {error}")))?;
        if let Some((unknown, _)) = pairs.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            return Err(Refused::malformed(match known {
                [] => format!("unknown query parameter {unknown:?}: this operation has none"),
                _ => format!("unknown query parameter {unknown:?}: this operation has {}", known.join(", ")),
            }));
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

    /// A name.
    pub(crate) fn name(&self, name: &str) -> Result<Option<Name>, Refused> {
        self.one(name)?.map(|text| super::name(&format!("{name:?}"), text)).transpose()
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
}

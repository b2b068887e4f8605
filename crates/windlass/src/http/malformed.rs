//! What holds of every body of an exchange and of every query: see [`crate::malformed`].

use std::collections::BTreeMap;

use axum::http::Request;
use windlass_api as api;
use windlass_core::{Json, Outcome, Timestamp};
use windlass_engine::Said;

use crate::http::{
    answer::problem::Refused,
    exchange::call::{Body, call},
    request::{self, FromQuery as _, Pairs},
    tasks::{self, ListQuery},
};
use crate::malformed::check_message;

/// Takes the bytes as the body of `POST /v1/worker/exchange`.
pub fn exchange(bytes: &[u8]) {
    // What is not UTF-8 is refused before it is parsed.
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let body = match request::parse::<Body<'_>>(text) {
        Ok(body) => body,
        Err(refused) => {
            let problem = refused.problem();
            check_message(&problem.detail);
            return assert!(problem.line.is_some(), "no place: {}", problem.detail);
        }
    };
    let (call, nameless) = match call(body) {
        Ok(call) => call,
        Err(refused) => return check_refusal(refused),
    };
    for (index, detail) in &nameless {
        check_message(detail);
        assert!(call.reports[*index].said.is_err(), "a report without a token was taken");
    }
    for report in &call.reports {
        match &report.said {
            Err(detail) => check_message(detail),
            Ok(Said::Ended(Outcome::Succeeded(Some(result)))) => check_result(result),
            Ok(_) => {}
        }
    }
    // The contract's own document says the same.
    let document: api::ExchangeRequest = serde_json::from_str(text)
        .unwrap_or_else(|error| panic!("taken against the contract: {error}: {text}"));
    assert_eq!((document.seq, document.reports.len()), (call.seq, call.reports.len()));
}

/// A result that was taken can be merged with others without losing anything.
fn check_result(result: &Json) {
    let members = |text: &str| -> BTreeMap<String, api::Payload> {
        serde_json::from_str(text).unwrap_or_else(|error| panic!("cannot be read again: {error}: {text}"))
    };
    let Ok(other) = Json::parse(r#"{"another":1}"#) else { return };
    let merged = members(Json::merge([&other, result]).as_str());
    for (name, value) in members(result.as_str()) {
        let kept = merged.get(&name).map(|value| value.get());
        assert_eq!(kept, Some(value.get()), "{name:?} was lost from {result}");
    }
}

/// Takes the bytes as the query of `GET /v1/tasks`.
pub fn query(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    // The HTTP library refuses malformed URIs.
    let Ok(request) = Request::get(format!("/v1/tasks?{text}")).body(()) else { return };
    let (parts, ()) = request.into_parts();
    let read = Pairs::of(&parts, ListQuery::NAMES)
        .and_then(|pairs| ListQuery::from_query(&pairs, Timestamp(1_900_000_000_000)));
    match read {
        // The message may repeat what was sent, which the HTTP library has bounded, with escapes for what cannot be
        // printed.
        Err(refused) => {
            let problem = refused.problem();
            assert!((1..=10 * text.len() + 1_000).contains(&problem.detail.len()), "{}", problem.detail);
        }
        Ok(query) => {
            assert!((1..=1000).contains(&query.limit));
            if let Some(before) = query.before() {
                assert!(parts.uri.query().is_some_and(|query| {
                    // A cursor has no character that a query would have to escape, but a client may escape it.
                    query.contains(&tasks::cursor(before)) || query.contains('%')
                }));
            }
        }
    }
}

fn check_refusal(refused: Refused) {
    let problem = refused.problem();
    check_message(&problem.detail);
    assert!((400..500).contains(&problem.status), "{}", problem.status);
}

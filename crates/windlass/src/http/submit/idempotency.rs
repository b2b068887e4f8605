//! Idempotency keys: what makes a repeated submit the same submit.

use axum::{extract::FromRequestParts, http::request::Parts};
use sha2::{Digest as _, Sha256};
use windlass_core::{Input, Json, Name, TaskId};
use windlass_store::SubmitKey;

use crate::http::{answer::problem::Refused, submit::canonical::canonical};

/// The longest key, in bytes.
pub(crate) const KEY_BYTES_MAX: usize = 255;

/// Who submits: callers have no names until there are tokens, and share their keys.
const CALLER: &str = "";

/// The key in the headers of a request.
pub(crate) struct IdempotencyKey(pub(crate) Option<String>);

impl<S: Send + Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refused> {
        let mut values = parts.headers.get_all("idempotency-key").iter();
        let (Some(value), other) = (values.next(), values.next()) else { return Ok(Self(None)) };
        if other.is_some() {
            return Err(Refused::malformed("the header `Idempotency-Key` is there twice"));
        }
        let key = std::str::from_utf8(value.as_bytes()).map_err(|_| {
            Refused::malformed("the header `Idempotency-Key` is not UTF-8: use letters and digits")
        })?;
        Ok(Self(Some(key.to_owned())))
    }
}

/// The key of a submit. The header and the field `key` of the body are the same thing.
pub(crate) fn key<'a>(header: Option<&'a str>, field: Option<&'a str>) -> Result<Option<&'a str>, Refused> {
    let key = match (header, field) {
        (Some(header), Some(field)) if header != field => {
            return Err(Refused::malformed(format!(
                "the header `Idempotency-Key` is {header:?} and the field `key` is {field:?}: they are the same \
                 thing, so give one of them"
            )));
        }
        (header, field) => header.or(field),
    };
    match key {
        Some("") => Err(Refused::malformed("the idempotency key is empty: leave it out, or give it a value")),
        Some(key) if key.len() > KEY_BYTES_MAX => Err(Refused::malformed(format!(
            "the idempotency key has {} bytes, and may have {KEY_BYTES_MAX}",
            key.len()
        ))),
        key => Ok(key),
    }
}

/// Where keys of tasks that bring their steps along count: no flow has such a name.
pub(crate) const ADHOC: &str = "adhoc:";

/// A key as the store keeps it, and the fingerprint that earlier versions made of the same content: of the text of its
/// parameters, where this one takes their canonical form.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Keyed {
    key: SubmitKey,
    fingerprint_before: [u8; 32],
}

impl Keyed {
    pub(crate) fn into_parts(self) -> (SubmitKey, [u8; 32]) {
        (self.key, self.fingerprint_before)
    }

    /// `fingerprint` makes the fingerprint of a text of the parameters.
    fn new(scope: Hash, params: Option<&Json>, fingerprint: impl Fn(&str) -> [u8; 32]) -> Self {
        let text = params.map_or("", Json::as_str);
        let canonical = if text.is_empty() { String::new() } else { canonical(text) };
        let fingerprint_before = fingerprint(text);
        let fingerprint = if canonical == text { fingerprint_before } else { fingerprint(&canonical) };
        Self { key: SubmitKey { scope: scope.finish(), fingerprint }, fingerprint_before }
    }
}

/// What the store keeps of a key: hashes of where it counts, the flow as a rule, and of what was submitted.
pub(crate) fn submit_key(key: &str, scope: &str, flow: &Name, version: Option<u32>, input: &Input) -> Keyed {
    Keyed::new(scope_hash(key, scope), Some(&input.params), |params| {
        let mut fingerprint = Hash::default();
        fingerprint.text(flow).number(version.map(i64::from)).text(params);
        fingerprint.number(input.at.map(|at| at.0)).number(Some(input.priority.into()));
        for (name, value) in &input.labels {
            fingerprint.text(name).text(value);
        }
        // What is seldom there is hashed only where it is, so that keys of earlier versions keep their fingerprints.
        if let Some(deadline) = input.deadline {
            fingerprint.text("deadline").number(i64::try_from(deadline.0).ok());
        }
        fingerprint.finish()
    })
}

/// Where a key counts, as the store keeps it.
pub(in crate::http) fn scope(key: &str, scope: &str) -> [u8; 32] {
    scope_hash(key, scope).finish()
}

fn scope_hash(key: &str, scope: &str) -> Hash {
    let mut hash = Hash::default();
    hash.text(CALLER).text(scope).text(key);
    hash
}

/// What the store keeps of a task that was enqueued without a key: its id.
pub(crate) fn enqueued_key(task: TaskId) -> SubmitKey {
    let mut scope = Hash::default();
    scope.text(CALLER).text("enqueued").text(&task.to_string());
    let scope = scope.finish();
    SubmitKey { scope, fingerprint: scope }
}

/// What the store keeps of the key of a new run of a task.
pub(crate) fn rerun_key(key: &str, task: TaskId, from: Option<&str>, params: Option<&Json>) -> Keyed {
    let mut scope = Hash::default();
    scope.text(CALLER).text("rerun").text(&task.to_string()).text(key);
    Keyed::new(scope, params, |text| {
        let mut fingerprint = Hash::default();
        fingerprint.number(from.map(|_| 1)).text(from.unwrap_or_default());
        fingerprint.number(params.map(|_| 1)).text(text);
        fingerprint.finish()
    })
}

/// A hash of parts that cannot run into one another.
#[derive(Default)]
struct Hash(Sha256);

impl Hash {
    fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.0.update((text.len() as u64).to_be_bytes());
        self.0.update(text);
        self
    }

    fn number(&mut self, number: Option<i64>) -> &mut Self {
        self.0.update([u8::from(number.is_some())]);
        self.0.update(number.unwrap_or_default().to_be_bytes());
        self
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use windlass_core::{Json, Millis, Timestamp};

    use super::*;

    fn input() -> Input {
        Input {
            labels: BTreeMap::from([("a".to_owned(), "bc".to_owned())]),
            ..Input::new(Json::parse(r#"{"a":1}"#).unwrap(), Timestamp(7))
        }
    }

    #[test]
    fn only_what_was_submitted_makes_the_fingerprint() {
        let flow = Name::new("f").unwrap();
        let of = |input: &Input| submit_key("k", &flow, &flow, None, input).key;
        let before = of(&input());
        let later = Input { created_at: Timestamp(8), traceparent: Some("x".into()), ..input() };
        assert_eq!(of(&later), before);
        let changed = [
            Input { params: Json::parse(r#"{"a":2}"#).unwrap(), ..input() },
            Input { labels: BTreeMap::from([("ab".to_owned(), "c".to_owned())]), ..input() },
            Input { priority: 1, ..input() },
            Input { at: Some(Timestamp(0)), ..input() },
            Input { deadline: Some(Millis(1)), ..input() },
        ];
        for input in changed {
            let key = of(&input);
            assert_eq!(key.scope, before.scope);
            assert_ne!(key.fingerprint, before.fingerprint, "{input:?}");
        }
        let version = submit_key("k", &flow, &flow, Some(1), &input()).key;
        assert_eq!(version.scope, before.scope);
        assert_ne!(version.fingerprint, before.fingerprint);
        let other_flow = submit_key("k", "g", &Name::new("g").unwrap(), None, &input()).key;
        assert_ne!(
            other_flow.scope, before.scope,
            "keys of different flows have nothing to do with one another"
        );
    }

    #[test]
    fn white_space_and_order_of_keys_are_not_content() {
        let flow = Name::new("f").unwrap();
        let of = |params: &str| {
            let input = Input { params: Json::parse(params).unwrap(), ..input() };
            submit_key("k", &flow, &flow, None, &input)
        };
        let (compact, loose) = (of(r#"{"a":1,"b":2}"#), of(r#"{ "b": 2, "a": 1 }"#));
        assert_eq!(compact.key, loose.key);
        assert_eq!(
            compact.key.fingerprint, compact.fingerprint_before,
            "as earlier versions hashed this text"
        );
        assert_ne!(loose.key.fingerprint, loose.fingerprint_before);
        let rerun = |params: &str| rerun_key("k", TaskId(1), None, Some(&Json::parse(params).unwrap()));
        assert_eq!(rerun(r#"{"a":1,"b":2}"#).key, rerun(r#"{ "b": 2, "a": 1 }"#).key);
        assert_ne!(rerun("{}").key, rerun_key("k", TaskId(1), None, None).key);
    }

    #[test]
    fn header_and_field_are_the_same_thing() {
        assert_eq!(key(Some("a"), None).unwrap(), Some("a"));
        assert_eq!(key(Some("a"), Some("a")).unwrap(), Some("a"));
        assert_eq!(key(None, Some("a")).unwrap(), Some("a"));
        assert_eq!(key(None, None).unwrap(), None);
        assert!(key(Some("a"), Some("b")).unwrap_err().problem().detail.contains("same thing"));
        assert!(key(Some(""), None).is_err() && key(Some(&"x".repeat(256)), None).is_err());
    }
}

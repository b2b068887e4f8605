//! JSON objects that are passed on unchanged.

use std::{collections::HashMap, fmt, sync::Arc};

use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use thiserror::Error;

use crate::MEMBERS_MAX;

/// The maximum nesting depth of a payload.
pub const JSON_DEPTH_MAX: usize = 64;

/// A JSON object stored as text: keys keep their order, numbers their digits. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Json(Arc<str>);

/// Why a text is not a valid payload.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum JsonError {
    /// It is JSON, but not an object.
    #[error("it is {0}, and must be a JSON object such as {{\"size\": 3}}")]
    NotAnObject(&'static str),
    /// It nests too deep.
    #[error("it nests deeper than {JSON_DEPTH_MAX} levels")]
    TooDeep,
    /// A string in it has an escape without a valid character.
    #[error("a text in it has half of a surrogate pair, such as \"\\ud83d\" alone, which is not a character")]
    HalfCharacter,
    /// It is not valid JSON.
    #[error("it is not valid JSON: {0}")]
    Malformed(String),
}

impl Json {
    /// The object without members.
    #[must_use]
    pub fn empty() -> Self {
        Self("{}".into())
    }

    /// Accepts a syntactically valid value if it is an object within the maximum depth and its strings are readable.
    ///
    /// # Errors
    /// When it is not an object, nests too deep, or has a string with half of a surrogate pair.
    pub fn from_raw(raw: &RawValue) -> Result<Self, JsonError> {
        let text = raw.get();
        match text.bytes().next() {
            Some(b'{') => {}
            Some(b'[') => return Err(JsonError::NotAnObject("an array")),
            Some(b'"') => return Err(JsonError::NotAnObject("a string")),
            Some(b't' | b'f') => return Err(JsonError::NotAnObject("a boolean")),
            Some(b'n') => return Err(JsonError::NotAnObject("null")),
            _ => return Err(JsonError::NotAnObject("a number")),
        }
        if depth(text) > JSON_DEPTH_MAX {
            return Err(JsonError::TooDeep);
        }
        if has_half_character(text) {
            return Err(JsonError::HalfCharacter);
        }
        Ok(Self(text.into()))
    }

    /// Parses `text`.
    ///
    /// # Errors
    /// When it is not JSON, not an object, or nests too deep.
    pub fn parse(text: &str) -> Result<Self, JsonError> {
        let raw: &RawValue =
            serde_json::from_str(text.trim()).map_err(|error| JsonError::Malformed(error.to_string()))?;
        Self::from_raw(raw)
    }

    /// Accepts a stored text that was a valid payload before.
    #[must_use]
    pub fn from_stored(text: &str) -> Self {
        Self(text.into())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it certainly has no members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.bytes().filter(|byte| !byte.is_ascii_whitespace()).take(3).count() == 2
    }

    /// Merges objects: the members of a later one replace those of an earlier one with the same name, at the earlier
    /// position.
    #[must_use]
    pub fn merge<'a>(objects: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut full: Vec<&Self> = objects.into_iter().filter(|object| !object.is_empty()).collect();
        match full.len() {
            0 => return Self::empty(),
            1 => return full.remove(0).clone(),
            _ => {}
        }
        let mut merged = Members::default();
        for object in &full {
            let mut reader = serde_json::Deserializer::from_str(object.as_str());
            // A `Json` was checked when it was created, so this cannot fail; if it did, the rest would be skipped.
            let _ = reader.deserialize_map(Collect(&mut merged));
        }
        Self::of_members(merged.list.into_iter())
    }
}

/// Members of objects: their names and the text of their values.
impl Json {
    /// The elements of the list in the member `name`, as text.
    ///
    /// # Errors
    /// When there is no such member, or it is not a list, or too long for a fanned-out step: as a message.
    pub fn elements(&self, name: &str) -> Result<Vec<Box<str>>, String> {
        let Some(value) = self.member(name) else {
            return Err(format!("there is no parameter \"{name}\": `each` needs it as a list"));
        };
        let elements: Vec<&RawValue> = serde_json::from_str(value).map_err(|_| {
            format!("the parameter \"{name}\" is not a list, and `each` of the step needs one")
        })?;
        if elements.len() > MEMBERS_MAX {
            return Err(format!(
                "the parameter \"{name}\" has {} elements; the limit is {MEMBERS_MAX}",
                elements.len()
            ));
        }
        Ok(elements.into_iter().map(|element| element.get().into()).collect())
    }

    /// Whether it has a member `name`.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.members().iter().any(|(member, _)| member == name)
    }

    /// The object without the member `name`.
    #[must_use]
    pub fn without(&self, name: &str) -> Self {
        self.filtered(|member| member != name)
    }

    /// The object with only the members whose names are `wanted`.
    #[must_use]
    pub(crate) fn filtered(&self, wanted: impl Fn(&str) -> bool) -> Self {
        Self::of_members(self.members().into_iter().filter(|(member, _)| wanted(member)))
    }

    /// The object with only the members that `other` has as well.
    #[must_use]
    pub fn only(&self, other: &Self) -> Self {
        let other = other.members();
        let has = |name: &str| other.iter().any(|(member, _)| member == name);
        self.filtered(has)
    }

    /// `text` as a JSON string.
    #[must_use]
    pub fn quote(text: &str) -> String {
        serde_json::to_string(text).unwrap_or_default()
    }

    /// The text of the member `name`.
    pub(crate) fn member(&self, name: &str) -> Option<&str> {
        self.members().into_iter().find(|(member, _)| member == name).map(|(_, value)| value)
    }

    fn members(&self) -> Vec<(String, &str)> {
        let mut members = Members::default();
        let mut reader = serde_json::Deserializer::from_str(self.as_str());
        // A `Json` was checked when it was created, so this cannot fail; if it did, the rest would be skipped.
        let _ = reader.deserialize_map(Collect(&mut members));
        members.list
    }

    /// An object of these names and values; the values are valid JSON.
    pub(crate) fn of_members<'a>(members: impl Iterator<Item = (String, &'a str)>) -> Self {
        let mut text = String::new();
        for (name, value) in members {
            text.push(if text.is_empty() { '{' } else { ',' });
            text.push_str(&Self::quote(&name));
            text.push(':');
            text.push_str(value);
        }
        if text.is_empty() {
            return Self::empty();
        }
        text.push('}');
        Self(text.into())
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Default)]
struct Members<'a> {
    list: Vec<(String, &'a str)>,
    places: HashMap<String, usize>,
}

struct Collect<'a, 'm>(&'m mut Members<'a>);

impl<'de: 'a, 'a> Visitor<'de> for Collect<'a, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some((name, value)) = map.next_entry::<String, &'de RawValue>()? {
            let members = &mut *self.0;
            if let Some(place) = members.places.get(&name) {
                members.list[*place].1 = value.get();
            } else {
                members.places.insert(name.clone(), members.list.len());
                members.list.push((name, value.get()));
            }
        }
        Ok(())
    }
}

/// The nesting depth of valid JSON.
fn depth(text: &str) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Whether a string of valid JSON has one half of a surrogate pair without the other. The syntax allows it, but no
/// string type can represent it: every reader of the payload would fail, even one that only merges it.
fn has_half_character(text: &str) -> bool {
    let unit = |at: usize| {
        let hex = text.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(hex, 16).ok()
    };
    let mut at = 0;
    while let Some(found) = text.get(at..).and_then(|rest| rest.find('\\')) {
        at += found;
        at += match unit(at) {
            None => 2,
            Some(0xD800..=0xDBFF) if matches!(unit(at + 6), Some(0xDC00..=0xDFFF)) => 12,
            Some(0xD800..=0xDFFF) => return true,
            Some(_) => 6,
        };
    }
    false
}

/// A payload as a string in a record.
pub(crate) mod as_text {
    use std::borrow::Cow;

    use serde::{Deserialize, Deserializer, Serializer};

    use super::Json;

    pub(crate) fn serialize<S: Serializer>(json: &Json, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(json.as_str())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
        Ok(Json::from_stored(&Cow::<'de, str>::deserialize(deserializer)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::parse(text).unwrap()
    }

    #[test]
    fn merging_keeps_the_order_of_keys_and_the_text_of_values() {
        let merged = Json::merge([
            &json(r#"{"z":1.0,"a":{"b":[1,  2]}}"#),
            &json("{ }"),
            &json(r#"{"a":null,"new \"one\"":1e400}"#),
        ]);
        assert_eq!(merged.as_str(), r#"{"z":1.0,"a":null,"new \"one\"":1e400}"#);
        assert_eq!(Json::merge([]).as_str(), "{}");
    }

    #[test]
    fn half_characters_are_refused_where_they_come_in() {
        for bad in [
            r#"{"\ud800":1,"b":2}"#,
            r#"{"a":"\udc00"}"#,
            r#"{"a":["\ud83d\ud83d\ude00"]}"#,
            r#"{"a":"\uD83Dx"}"#,
        ] {
            assert_eq!(Json::parse(bad), Err(JsonError::HalfCharacter), "{bad}");
        }
        for good in [r#"{"a":"\ud83d\ude00 \\ud800 \u0041\n"}"#, r#"{"a\\":"ud800"}"#] {
            let merged = Json::merge([&json(good), &json(r#"{"b":2}"#)]);
            assert!(merged.as_str().ends_with(r#","b":2}"#), "{merged}");
        }
    }

    #[test]
    fn only_objects_of_modest_depth_are_payloads() {
        assert_eq!(Json::parse("[1]"), Err(JsonError::NotAnObject("an array")));
        assert_eq!(Json::parse("7"), Err(JsonError::NotAnObject("a number")));
        assert!(matches!(Json::parse("{"), Err(JsonError::Malformed(_))));
        let nested =
            |levels: usize| format!("{}{{}}{}", "{\"a\":".repeat(levels - 1), "}".repeat(levels - 1));
        assert!(Json::parse(&nested(JSON_DEPTH_MAX)).is_ok());
        assert_eq!(Json::parse(&nested(JSON_DEPTH_MAX + 1)), Err(JsonError::TooDeep));
        assert!(Json::parse(r#"{"text":"[[[[{{{{\"]]"}"#).is_ok());
    }
}

//! JSON pointers (RFC 6901) into JSON text: the value found is the unchanged text, digit for digit.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// A JSON pointer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pointer {
    text: String,
    /// The unescaped names of members and indexes of elements on the path.
    names: Vec<String>,
}

impl Pointer {
    /// Parses a pointer such as `/data/0`.
    ///
    /// # Errors
    /// The reason why the text is not a pointer.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let rest = text.strip_prefix('/').ok_or("begins with a slash, such as /data/order")?;
        let names = rest.split('/').map(unescaped).collect::<Option<_>>();
        let names = names.ok_or("has a ~ only as ~0, which is a ~, or ~1, which is a slash in a name")?;
        Ok(Self { text: text.to_owned(), names })
    }

    /// The pointer as it was written.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Finds the value in a document. Of members with the same name, the last one counts, as in most JSON
    /// parsers.
    ///
    /// # Errors
    /// When a part of the document on the path cannot be parsed, such as a name with half of a surrogate
    /// pair.
    pub(crate) fn find<'t>(&self, document: &'t RawValue) -> serde_json::Result<Option<&'t RawValue>> {
        let mut value = document;
        for name in &self.names {
            let text = value.get();
            let mut reader = serde_json::Deserializer::from_str(text);
            let found = match text.as_bytes().first() {
                Some(b'{') => reader.deserialize_map(Member(name))?,
                Some(b'[') => {
                    index(name).map(|index| reader.deserialize_seq(Element(index))).transpose()?.flatten()
                }
                _ => None,
            };
            match found {
                Some(found) => value = found,
                None => return Ok(None),
            }
        }
        Ok(Some(value))
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Unescapes a name. None where a `~` is followed by neither `0` nor `1`.
fn unescaped(name: &str) -> Option<String> {
    let mut parts = name.split('~');
    let mut unescaped = parts.next()?.to_owned();
    for part in parts {
        let (escaped, rest) = match part.as_bytes().first()? {
            b'0' => ('~', &part[1..]),
            b'1' => ('/', &part[1..]),
            _ => return None,
        };
        unescaped.push(escaped);
        unescaped.push_str(rest);
    }
    Some(unescaped)
}

/// Parses the index of an element: digits without leading zeros.
fn index(name: &str) -> Option<usize> {
    let is_number = name.bytes().all(|byte| byte.is_ascii_digit()) && (name == "0" || !name.starts_with('0'));
    if is_number { name.parse().ok() } else { None }
}

/// Finds a member of an object by its name.
struct Member<'n>(&'n str);

impl<'de> Visitor<'de> for Member<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(is_it) = members.next_key_seed(Named(self.0))? {
            if is_it {
                found = Some(members.next_value()?);
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// Compares a name with this one.
struct Named<'n>(&'n str);

impl<'de> DeserializeSeed<'de> for Named<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Named<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.0)
    }
}

/// Finds an element of an array by its index.
struct Element(usize);

impl<'de> Visitor<'de> for Element {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        for _ in 0..self.0 {
            if elements.next_element::<IgnoredAny>()?.is_none() {
                return Ok(None);
            }
        }
        let found = elements.next_element()?;
        while elements.next_element::<IgnoredAny>()?.is_some() {}
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find<'t>(pointer: &str, document: &'t str) -> Option<&'t str> {
        let document: &RawValue = serde_json::from_str(document).unwrap();
        Pointer::parse(pointer).unwrap().find(document).unwrap().map(RawValue::get)
    }

    #[test]
    fn what_is_there_comes_out_as_it_stands() {
        let data = r#"{ "z": 12345678901234567890123.10, "a": 1e0, "z2": "\u00e4" }"#;
        let document = format!(r#" {{"other": [[1]], "data" : {data} }} "#);
        assert_eq!(find("/data", &document), Some(data));
        assert_eq!(find("/data/z", &document), Some("12345678901234567890123.10"));
        assert_eq!(find("/data/a", &document), Some("1e0"));
        assert_eq!(find("/data/none", &document), None);
        assert_eq!(find("/data/a/b", &document), None, "a number has no members");
    }

    #[test]
    fn names_may_have_slashes_tildes_and_escapes() {
        let document = r#"{"a/b": 1, "~": 2, "~1": 3, "": {"": 4}, "\u0061": 5, "x": 6, "x": 7}"#;
        assert_eq!(find("/a~1b", document), Some("1"));
        assert_eq!(find("/~0", document), Some("2"));
        assert_eq!(find("/~01", document), Some("3"));
        assert_eq!(find("//", document), Some("4"));
        assert_eq!(find("/a", document), Some("5"));
        assert_eq!(find("/x", document), Some("7"), "of two the last");
        for bad in ["", "a", "/~", "/~2", "/a~", "#/a"] {
            assert!(Pointer::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn elements_are_found_by_their_places() {
        let document = r#"{"list": [10, [20, 21], {"a": 30}]}"#;
        assert_eq!(find("/list/0", document), Some("10"));
        assert_eq!(find("/list/1/1", document), Some("21"));
        assert_eq!(find("/list/2/a", document), Some("30"));
        for none in ["/list/3", "/list/-", "/list/00", "/list/+1", "/list/", "/list/99999999999999999999999"]
        {
            assert_eq!(find(none, document), None, "{none}");
        }
    }

    #[test]
    fn however_deep_a_document_is_it_is_walked() {
        let document = format!(r#"{{"deep": {}1{}, "a": 1}}"#, "[".repeat(10_000), "]".repeat(10_000));
        assert_eq!(find("/a", &document), Some("1"));
        assert_eq!(find("/deep/0/0/0", &document).map(|text| text.len()), Some(2 * 9_997 + 1));
    }

    #[test]
    fn half_a_character_in_a_name_is_told() {
        let document: &RawValue = serde_json::from_str(r#"{"\ud83d": 1, "a": 2}"#).unwrap();
        assert!(Pointer::parse("/a").unwrap().find(document).is_err());
    }
}

//! Reads JSON into a tree. Accepts comments and trailing commas, as in the classic catalogue.
//!
//! `serde_json` does not report the place of a value, but a [`RawValue`] borrows its text, and the offset of
//! that text is the place. A first pass checks the syntax of the whole text; a second one descends level by
//! level.

use std::{borrow::Cow, collections::HashSet, fmt};

use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::{Number, value::RawValue};

use super::{
    error::{Fault, cut, not_exact, twice},
    tree::{DEPTH_MAX, Entry, Node, Value, float},
};

/// Reads the text.
pub(super) fn tree(text: &str) -> Result<Node, Fault> {
    let blank = without_comments(text)?;
    let raw: &RawValue = serde_json::from_str(&blank).map_err(|error| fault(&error, &blank, 0))?;
    Reader { text: &blank }.node(raw, 1)
}

/// The text with the same number of bytes, with spaces in place of comments and trailing commas.
fn without_comments(text: &str) -> Result<String, Fault> {
    let mut bytes = text.as_bytes().to_vec();
    if json_strip_comments::strip_slice(&mut bytes).is_err() {
        // The offending slash is the last byte that was blanked.
        let at = bytes.iter().zip(text.bytes()).rposition(|(new, old)| *new != old).unwrap_or(0);
        return Err(Fault::new(at, "a `/` that does not start a comment: write `//` or `/* … */`"));
    }
    String::from_utf8(bytes).map_err(|error| {
        Fault::new(error.utf8_error().valid_up_to(), "a comment that does not end where a character ends")
    })
}

/// A syntax error in a `part` of the text that starts at byte `from`.
fn fault(error: &serde_json::Error, part: &str, from: usize) -> Fault {
    let line_start =
        part.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum::<usize>();
    let at = from + line_start + error.column().saturating_sub(1);
    let message = error.to_string();
    let message = message.split(" at line ").next().unwrap_or_default();
    Fault::new(at, format!("cannot read this JSON: {}", cut(message)))
}

struct Reader<'a> {
    text: &'a str,
}

impl<'a> Reader<'a> {
    fn place(&self, raw: &RawValue) -> usize {
        (raw.get().as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize)
    }

    fn node(&self, raw: &'a RawValue, depth: usize) -> Result<Node, Fault> {
        let (at, part) = (self.place(raw), raw.get());
        if depth > DEPTH_MAX {
            return Err(Fault::new(at, format!("this nests deeper than {DEPTH_MAX} levels")));
        }
        let value = match part.as_bytes().first() {
            Some(b'{') => Value::Map(self.entries(part, at, depth)?),
            Some(b'[') => {
                let items: Vec<&RawValue> = self.parse(part, at)?;
                Value::List(items.into_iter().map(|raw| self.node(raw, depth + 1)).collect::<Result<_, _>>()?)
            }
            Some(b'"') => Value::Text(self.parse::<Cow<'_, str>>(part, at)?.into_owned()),
            Some(b't' | b'f') => Value::Bool(self.parse(part, at)?),
            Some(b'n') => Value::Null,
            _ => number(part).map_err(|message| Fault::new(at, message))?,
        };
        Ok(Node { value, at })
    }

    fn parse<T: serde::Deserialize<'a>>(&self, part: &'a str, at: usize) -> Result<T, Fault> {
        serde_json::from_str(part).map_err(|error| fault(&error, part, at))
    }

    fn entries(&self, part: &'a str, at: usize, depth: usize) -> Result<Vec<Entry>, Fault> {
        let mut reader = serde_json::Deserializer::from_str(part);
        let members = Members.deserialize(&mut reader).map_err(|error| fault(&error, part, at))?;
        let (mut entries, mut seen) = (Vec::with_capacity(members.len()), HashSet::new());
        for (key, value) in members {
            let key_at = self.place(key);
            let key: String = self.parse(key.get(), key_at)?;
            if !seen.insert(key.clone()) {
                return Err(Fault::new(key_at, twice(&key)));
            }
            entries.push(Entry { key, key_at, value: self.node(value, depth + 1)? });
        }
        Ok(entries)
    }
}

/// Parses numbers itself: `serde_json` may be wrong in the last bit.
fn number(text: &str) -> Result<Value, String> {
    if let Ok(value) = text.parse::<u64>() {
        return Ok(Value::Number(value.into()));
    }
    if let Ok(value) = text.parse::<i64>() {
        return Ok(Value::Number(Number::from(value)));
    }
    if !text.contains(['.', 'e', 'E']) {
        return Err(not_exact(text));
    }
    float(text.parse().unwrap_or(f64::NAN))
}

/// The members of an object, in the order of the text.
struct Members;

impl<'de> DeserializeSeed<'de> for Members {
    type Value = Vec<(&'de RawValue, &'de RawValue)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Members {
    type Value = Vec<(&'de RawValue, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(members)
    }
}

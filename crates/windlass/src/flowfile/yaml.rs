//! Reads YAML into trees, one for each document of the text.

use std::{collections::HashSet, fmt};

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Error, Location, MessageFormatter as _, Options, Spanned, UserMessageFormatter};

use super::{
    FILE_BYTES_MAX,
    error::{Fault, cut, not_exact, twice},
    tree::{DEPTH_MAX, Entry, Node, Value, float},
};

/// The deepest nesting of YAML: half that of other formats. Its reader takes 35 KB of stack for each level in
/// a build without optimisation, and a thread has 2 MiB.
const YAML_DEPTH_MAX: usize = DEPTH_MAX / 2;

/// The most values of a text after its aliases are expanded: far more than 256 steps need, and far fewer than
/// an alias bomb makes.
const NODES_MAX: usize = 100_000;

/// The most bytes of text that these values may have together.
const TEXT_BYTES_MAX: usize = 4 * FILE_BYTES_MAX;

/// Reads all documents; skips empty ones.
pub(super) fn trees(text: &str) -> Result<Vec<Node>, Fault> {
    serde_saphyr::from_multiple_with_options::<Spanned<Value>>(text, options())
        .map_err(|error| fault(&error, text))?
        .into_iter()
        .map(Node::from)
        .map(|node| check(&node, text).map(|()| node))
        .collect()
}

/// Refuses values that the parser accepts but a tree cannot represent: keys that only differ in their type
/// (`1` and `"1"`), and whole numbers that it has rounded or read as fractions (`012`).
fn check(node: &Node, text: &str) -> Result<(), Fault> {
    match &node.value {
        Value::Map(entries) => {
            let mut seen = HashSet::new();
            for entry in entries {
                if !seen.insert(entry.key.as_str()) {
                    return Err(Fault::new(entry.key_at, twice(&entry.key)));
                }
                check(&entry.value, text)?;
            }
            Ok(())
        }
        Value::List(nodes) => nodes.iter().try_for_each(|node| check(node, text)),
        Value::Number(number) if number.is_f64() => match whole_number(text, node.at) {
            Some(digits) => Err(Fault::new(node.at, not_exact(digits))),
            None => Ok(()),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => Ok(()),
    }
}

/// The whole number at a place of the text. None for other values and for aliases.
fn whole_number(text: &str, at: usize) -> Option<&str> {
    let rest = text.get(at..)?;
    let word = rest.split(|c: char| c.is_whitespace() || matches!(c, ',' | ']' | '}' | ':')).next()?;
    let digits = word.strip_prefix(['-', '+']).unwrap_or(word);
    (!digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_')).then_some(word)
}

/// Only `true` and `false` are booleans, so that `name: on` and `zone: no` remain strings.
fn options() -> Options {
    serde_saphyr::options! {
        strict_booleans: true,
        reject_unsupported_tags: true,
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_depth: YAML_DEPTH_MAX,
            max_nodes: NODES_MAX,
            max_total_scalar_bytes: TEXT_BYTES_MAX,
        },
    }
}

fn fault(error: &Error, text: &str) -> Fault {
    // A mistake inside an alias is shown where the alias is used, with the message of the inner error.
    let mut inner = error.without_snippet();
    while let Error::AliasError { error, .. } = inner {
        inner = error;
    }
    let message = match inner {
        Error::DuplicateMappingKey { key: Some(key), .. } => twice(key),
        Error::UnknownAnchor { .. } => "this alias names an unknown anchor".to_owned(),
        Error::Budget { .. } | Error::AliasReplayLimitExceeded { .. } => format!(
            "the YAML is too large with its aliases expanded: the limit is {NODES_MAX} values, \
             {TEXT_BYTES_MAX} bytes of text and {YAML_DEPTH_MAX} levels"
        ),
        error => format!("cannot read this YAML: {}", cut(&UserMessageFormatter.format_message(error))),
    };
    Fault::new(error.location().map_or(text.len(), |location| byte_in(text, location)), message)
}

/// The byte offset of a node; the parser records it for texts in memory.
fn byte(location: Location) -> usize {
    location.span().byte_offset().and_then(|byte| usize::try_from(byte).ok()).unwrap_or(0)
}

/// The byte offset of an error: syntax errors only have a line and a column.
fn byte_in(text: &str, location: Location) -> usize {
    if location.span().byte_offset().is_some() {
        return byte(location);
    }
    let before = |number: u64| usize::try_from(number.saturating_sub(1)).unwrap_or(usize::MAX);
    let line_start: usize = text.split_inclusive('\n').take(before(location.line())).map(str::len).sum();
    let line = text.get(line_start..).and_then(|rest| rest.lines().next()).unwrap_or_default();
    line_start + line.char_indices().nth(before(location.column())).map_or(line.len(), |(byte, _)| byte)
}

impl From<Spanned<Value>> for Node {
    fn from(spanned: Spanned<Value>) -> Self {
        Self { at: byte(spanned.referenced), value: spanned.value }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ValueVisitor;

        impl<'de> Visitor<'de> for ValueVisitor {
            type Value = Value;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_unit<E>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }

            fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
                Ok(Value::Bool(value))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
                Ok(Value::Number(value.into()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
                Ok(Value::Number(value.into()))
            }

            fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
                float(value).map_err(E::custom)
            }

            fn visit_str<E>(self, value: &str) -> Result<Value, E> {
                Ok(Value::Text(value.to_owned()))
            }

            fn visit_string<E>(self, value: String) -> Result<Value, E> {
                Ok(Value::Text(value))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
                let mut nodes = Vec::new();
                while let Some(node) = list.next_element::<Spanned<Value>>()? {
                    nodes.push(node.into());
                }
                Ok(Value::List(nodes))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(key) = map.next_key::<Spanned<String>>()? {
                    let value = map.next_value::<Spanned<Value>>()?.into();
                    entries.push(Entry { key_at: byte(key.referenced), key: key.value, value });
                }
                Ok(Value::Map(entries))
            }
        }

        deserializer.deserialize_any(ValueVisitor)
    }
}

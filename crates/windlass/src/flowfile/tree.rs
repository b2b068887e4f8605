//! The common tree of all formats: values with their places in the text.

use serde_json::Number;

use super::error::Fault;

/// The deepest nesting of a flow file; deeper than any payload may be.
pub(super) const DEPTH_MAX: usize = 64;

/// A value and the byte offset of its start.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) at: usize,
}

/// The common values of all formats. Dates, which only TOML has, are read as strings.
#[derive(Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A key of a map with its value. Entries are in the order of the text; the readers have refused duplicate
/// keys.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) key_at: usize,
    pub(super) value: Node,
}

impl Node {
    /// The kind of value, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match &self.value {
            Value::Null => "nothing",
            Value::Bool(_) => "true or false",
            Value::Number(_) => "a number",
            Value::Text(_) => "a string",
            Value::List(_) => "a list",
            Value::Map(_) => "a map of keys",
        }
    }

    /// The mistake that `what` has the wrong kind of value.
    pub(super) fn unexpected(&self, what: &str, expected: &str) -> Fault {
        Fault::new(self.at, format!("`{what}` is {}, and must be {expected}", self.kind()))
    }

    /// The value as JSON, without places.
    pub(super) fn into_json(self) -> serde_json::Value {
        match self.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(value) => value.into(),
            Value::Number(value) => value.into(),
            Value::Text(value) => value.into(),
            Value::List(nodes) => nodes.into_iter().map(Self::into_json).collect(),
            Value::Map(entries) => {
                entries.into_iter().map(|entry| (entry.key, entry.value.into_json())).collect()
            }
        }
    }
}

/// A floating-point number that JSON can represent.
pub(super) fn float(value: f64) -> Result<Value, String> {
    Number::from_f64(value)
        .map(Value::Number)
        .ok_or_else(|| "the number is infinite or not a number, which parameters cannot contain".to_owned())
}

//! The tree all formats are read into: values that know where in the text they are.

use serde_json::Number;

use super::error::Fault;

/// How deep a flow file may nest; deeper than any payload that can be handed on.
pub(super) const DEPTH_MAX: usize = 64;

/// A value and the byte of the text where it begins.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) at: usize,
}

/// What the formats have in common. Dates, which only TOML knows, are read as text.
#[derive(Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// One key of a map and its value, in the order of the text. The readers have refused keys that are there twice.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) key_at: usize,
    pub(super) value: Node,
}

impl Node {
    /// What it is, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match &self.value {
            Value::Null => "nothing",
            Value::Bool(_) => "true or false",
            Value::Number(_) => "a number",
            Value::Text(_) => "a text",
            Value::List(_) => "a list",
            Value::Map(_) => "a map of keys",
        }
    }

    /// That `what` should be something else.
    pub(super) fn unexpected(&self, what: &str, expected: &str) -> Fault {
        Fault::new(self.at, format!("`{what}` is {}, and must be {expected}", self.kind()))
    }

    /// The value without its place.
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

/// A floating-point number that JSON can carry.
pub(super) fn float(value: f64) -> Result<Value, String> {
    Number::from_f64(value)
        .map(Value::Number)
        .ok_or_else(|| "the number is infinite or none at all, which parameters cannot carry".to_owned())
}

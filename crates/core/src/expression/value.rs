//! Values of an evaluation. Copying a value takes constant time.

use std::{cell::Cell, collections::BTreeMap, fmt, rc::Rc};

use serde::{
    Deserializer, Serialize, Serializer,
    de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor},
    ser::{Error as SerError, SerializeMap as _},
};

/// A value.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Rc<str>),
    List(Rc<Vec<Self>>),
    Map(Rc<Map>),
    /// The type of a value, by its name.
    Type(&'static str),
}

/// Sorted, so that every iteration has the same order.
pub(super) type Map = BTreeMap<Key, Value>;

/// A key of a map. Numbers with the same value are the same key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Bool(bool),
    Number(i128),
    Text(Rc<str>),
}

/// The number of bytes of text that one step reads.
pub(super) const BYTES_PER_STEP: usize = 64;

/// CEL's types: an expression can compare `type(x)` with them.
pub(super) const TYPES: [&str; 9] =
    ["null_type", "bool", "int", "uint", "double", "string", "list", "map", "type"];

/// The number of steps to read a text, in addition to the one of every operation.
pub(super) fn steps_of_text(text: &str) -> u64 {
    (text.len() / BYTES_PER_STEP) as u64
}

/// The number of steps to find a key among `entries` keys, in addition to the one of every operation. A map compares it
/// with one key after the other on the path to it, and these may have a common prefix.
pub(super) fn steps_to_find_key(key: &Key, entries: usize) -> u64 {
    match key {
        Key::Text(text) => steps_of_text(text) * u64::from(usize::BITS - entries.leading_zeros()),
        Key::Bool(_) | Key::Number(_) => 0,
    }
}

impl Value {
    /// The name of its type.
    pub(super) fn type_name(&self) -> &'static str {
        let [null, boolean, int, uint, double, string, list, map, of_type] = TYPES;
        match self {
            Self::Null => null,
            Self::Bool(_) => boolean,
            Self::Int(_) => int,
            Self::Uint(_) => uint,
            Self::Double(_) => double,
            Self::Text(_) => string,
            Self::List(_) => list,
            Self::Map(_) => map,
            Self::Type(_) => of_type,
        }
    }

    /// A description for a message: never its content, which may be large or secret.
    pub(super) fn described(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "true or false",
            Self::Int(_) | Self::Uint(_) => "a whole number",
            Self::Double(_) => "a number with a fraction",
            Self::Text(text) if text.is_empty() => "an empty text",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
            Self::Type(_) => "a type",
        }
    }

    /// The number of steps to read all of it, if it has no parts.
    pub(super) fn steps(&self) -> u64 {
        match self {
            Self::Text(text) => 1 + steps_of_text(text),
            _ => 1,
        }
    }

    /// The value as a key, if it can be one.
    pub(super) fn as_key(&self) -> Option<Key> {
        match self {
            Self::Bool(value) => Some(Key::Bool(*value)),
            Self::Text(text) => Some(Key::Text(text.clone())),
            Self::Int(_) | Self::Uint(_) | Self::Double(_) => super::number::as_whole(self).map(Key::Number),
            _ => None,
        }
    }
}

impl Serialize for Value {
    /// As JSON. Types and numbers that are not finite have no form in it; keys must be texts.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Int(number) => serializer.serialize_i64(*number),
            Self::Uint(number) => serializer.serialize_u64(*number),
            Self::Double(number) if number.is_finite() => serializer.serialize_f64(*number),
            Self::Double(_) => Err(S::Error::custom("a number that is not finite")),
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(values) => serializer.collect_seq(values.iter()),
            Self::Map(map) => {
                let mut entries = serializer.serialize_map(Some(map.len()))?;
                for (key, value) in map.iter() {
                    let Key::Text(key) = key else {
                        return Err(SerError::custom("a map with a key that is not a text"));
                    };
                    entries.serialize_entry(&**key, value)?;
                }
                entries.end()
            }
            Self::Type(_) => Err(S::Error::custom("a type")),
        }
    }
}

impl From<&Key> for Value {
    fn from(key: &Key) -> Self {
        match key {
            Key::Bool(value) => Self::Bool(*value),
            Key::Text(text) => Self::Text(text.clone()),
            Key::Number(number) => match (i64::try_from(*number), u64::try_from(*number)) {
                (Ok(number), _) => Self::Int(number),
                (_, Ok(number)) => Self::Uint(number),
                // A key comes from a value, and values have 64 bits.
                (Err(_), Err(_)) => Self::Double(*number as f64),
            },
        }
    }
}

/// Reads a value, and uses one of `left` for it and for each value and key in it. Fails if none are left.
#[derive(Clone, Copy)]
pub(super) struct ReadValue<'l> {
    pub(super) left: &'l Cell<Option<u64>>,
}

impl ReadValue<'_> {
    fn count<E: Error>(self) -> Result<(), E> {
        self.left.set(self.left.get().and_then(|left| left.checked_sub(1)));
        self.left.get().map(drop).ok_or_else(|| E::custom("too many values"))
    }
}

impl<'de> DeserializeSeed<'de> for ReadValue<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.count()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ReadValue<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Int(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(i64::try_from(number).map_or(Value::Uint(number), Value::Int))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Value::Double(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = elements.next_element_seed(self)? {
            list.push(element);
        }
        Ok(Value::List(Rc::new(list)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            self.count()?;
            let value = members.next_value_seed(self)?;
            map.insert(Key::Text(name.into()), value);
        }
        Ok(Value::Map(Rc::new(map)))
    }
}

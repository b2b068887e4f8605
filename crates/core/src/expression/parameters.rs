//! The parameters that an expression needs: only these are converted to values.

use std::{borrow::Cow, cell::Cell, collections::BTreeSet, fmt, rc::Rc};

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use super::value::{Key, Map, ReadValue};
use crate::Json;

/// The name of the map of all parameters.
pub(super) const PARAMS: &str = "params";

/// Which parameters an expression needs.
#[derive(Debug, Default)]
pub(super) struct Needs {
    all: bool,
    names: BTreeSet<Box<str>>,
    results: BTreeSet<Box<str>>,
}

impl Needs {
    pub(super) fn all(&mut self) {
        self.all = true;
    }

    pub(super) fn one(&mut self, name: &str) {
        self.names.insert(name.into());
    }

    /// `results.NAME`: the result of that step, or a field of a parameter called `results`.
    pub(super) fn result(&mut self, name: &str) {
        self.results.insert(name.into());
    }

    pub(super) fn results(&self) -> impl Iterator<Item = &str> {
        self.results.iter().map(|name| &**name)
    }

    /// The parameters it reads by name.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.all && self.names.is_empty()
    }

    pub(super) fn includes(&self, name: &str) -> bool {
        self.all || self.names.contains(name)
    }

    /// The needed ones of `params` as a map, and their number of values. The rest is skipped.
    pub(super) fn read(&self, params: &Json, values_max: u64) -> Result<(Rc<Map>, u64), ReadError> {
        let left = Cell::new(Some(values_max));
        let read = serde_json::Deserializer::from_str(params.as_str())
            .deserialize_map(ReadNeeded { needs: self, left: &left });
        match (read, left.get()) {
            (Ok(map), Some(left)) => Ok((Rc::new(map), values_max - left)),
            (Ok(_), None) => Err(ReadError { words: String::new(), is_over_limit: true }),
            (Err(error), left) => {
                let words = format!("the parameters cannot be read: {error}");
                Err(ReadError { words, is_over_limit: left.is_none() })
            }
        }
    }
}

/// Why the parameters could not be read.
pub(super) struct ReadError {
    pub(super) words: String,
    /// They have more values than allowed.
    pub(super) is_over_limit: bool,
}

struct ReadNeeded<'n> {
    needs: &'n Needs,
    left: &'n Cell<Option<u64>>,
}

impl<'de> Visitor<'de> for ReadNeeded<'_> {
    type Value = Map;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Map, A::Error> {
        let mut map = Map::new();
        while let Some(name) = members.next_key::<Cow<'de, str>>()? {
            if self.needs.includes(&name) {
                let value = members.next_value_seed(ReadValue { left: self.left })?;
                map.insert(Key::Text(name.as_ref().into()), value);
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(map)
    }
}

//! The parameters that an expression needs: only they are made into values.

use std::{borrow::Cow, collections::BTreeSet, fmt, rc::Rc};

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use super::value::{Key, Map, Value};
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

    /// The parameters it names one by one.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.all && self.names.is_empty()
    }

    pub(super) fn includes(&self, name: &str) -> bool {
        self.all || self.names.contains(name)
    }

    /// Those of `params`, as a map. The rest is passed over.
    pub(super) fn read(&self, params: &Json) -> Result<Rc<Map>, String> {
        serde_json::Deserializer::from_str(params.as_str())
            .deserialize_map(ReadNeeded(self))
            .map(Rc::new)
            .map_err(|error| format!("the parameters cannot be read: {error}"))
    }
}

struct ReadNeeded<'n>(&'n Needs);

impl<'de> Visitor<'de> for ReadNeeded<'_> {
    type Value = Map;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Map, A::Error> {
        let mut map = Map::new();
        while let Some(name) = members.next_key::<Cow<'de, str>>()? {
            if self.0.includes(&name) {
                map.insert(Key::Text(name.as_ref().into()), members.next_value::<Value>()?);
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(map)
    }
}

//! The fields of a JSON object: what is not changed stays as it was written, and in its place.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor},
    ser::SerializeMap as _,
};
use serde_json::value::RawValue;

/// The fields of a JSON object.
#[derive(Debug, Clone)]
pub(super) struct Fields(Vec<(String, Box<RawValue>)>);

impl Fields {
    /// A field. Of several with the same name the last one counts, as in most JSON parsers.
    pub(super) fn get(&self, name: &str) -> Option<&RawValue> {
        self.0.iter().rev().find(|(field, _)| field == name).map(|(_, value)| &**value)
    }

    /// Writes a field: in its place, or at the end.
    pub(super) fn set(&mut self, name: &str, value: impl Serialize) -> serde_json::Result<()> {
        let value = serde_json::value::to_raw_value(&value)?;
        match self.0.iter_mut().rev().find(|(field, _)| field == name) {
            Some((_, place)) => *place = value,
            None => self.0.push((name.to_owned(), value)),
        }
        Ok(())
    }

    /// Takes a field out.
    pub(super) fn remove(&mut self, name: &str) {
        self.0.retain(|(field, _)| field != name);
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(Object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_changed_stays_as_it_was_written() {
        let mut fields: Fields = serde_json::from_str(
            r#" {"b": 1.10, "a": {"z":12345678901234567890123, "y": "\u00e4"}, "c":1} "#,
        )
        .unwrap();
        fields.set("a2", true).unwrap();
        fields.set("c", "x").unwrap();
        fields.remove("none");
        let text = serde_json::to_string(&fields).unwrap();
        assert_eq!(text, r#"{"b":1.10,"a":{"z":12345678901234567890123, "y": "\u00e4"},"c":"x","a2":true}"#);
        assert!(serde_json::from_str::<Fields>("[1]").unwrap_err().to_string().contains("a JSON object"));
    }

    #[test]
    fn of_two_fields_with_one_name_the_last_one_counts() {
        let mut fields: Fields = serde_json::from_str(r#"{"a":1,"a":2}"#).unwrap();
        assert_eq!(fields.get("a").unwrap().get(), "2");
        fields.set("a", 3).unwrap();
        assert_eq!(fields.get("a").unwrap().get(), "3");
        assert_eq!(serde_json::to_string(&fields).unwrap(), r#"{"a":1,"a":3}"#);
    }
}

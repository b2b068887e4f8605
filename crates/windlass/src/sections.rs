//! Sections of the configuration file that there can be several of.

use std::{fmt, marker::PhantomData};

use serde::{Deserialize, Deserializer, de};

/// Reads sections such as `[[intake]]`. The error for a single section shows the array syntax, since other sections
/// have one pair of brackets.
pub(crate) fn several<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    deserializer.deserialize_seq(Sections(PhantomData))
}

struct Sections<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> de::Visitor<'de> for Sections<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sections: write `[[intake]]`, `[[task_list]]` or `[[webhook]]`, with two pairs of brackets, since there can be several")
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, sections: A) -> Result<Self::Value, A::Error> {
        Vec::deserialize(de::value::SeqAccessDeserializer::new(sections))
    }
}

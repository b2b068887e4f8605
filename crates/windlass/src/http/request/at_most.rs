//! Lists of limited length.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, SeqAccess, Visitor},
};

/// A list of at most `MAX` entries. Reading it stops at the first one too many, so that a long list costs no more time
/// and memory than the longest one that is allowed.
#[derive(Debug)]
pub(in crate::http) struct AtMost<T, const MAX: usize>(pub(in crate::http) Vec<T>);

impl<T, const MAX: usize> Default for AtMost<T, MAX> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for AtMost<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Entries(PhantomData))
    }
}

struct Entries<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Entries<T, MAX> {
    type Value = AtMost<T, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MAX} entries")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = list.next_element()? {
            if entries.len() == MAX {
                return Err(A::Error::custom(format_args!("there are more than {MAX} entries")));
            }
            entries.push(entry);
        }
        Ok(AtMost(entries))
    }
}

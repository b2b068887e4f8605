//! Pages of lists: where they begin, and their lengths.

use windlass_core::{Name, Timestamp};

use super::{FromQuery, Pairs};
use crate::http::answer::problem::Refused;

/// The items of a page where the request does not say.
const PAGE_ITEMS: usize = 100;

/// A page by name.
pub(crate) struct ByName {
    /// Only items with names after this one.
    pub(crate) after: Option<Name>,
    /// At most this many.
    pub(crate) limit: usize,
}

impl FromQuery for ByName {
    const NAMES: &'static [&'static str] = &["cursor", "limit"];

    fn from_query(pairs: &Pairs, _: Timestamp) -> Result<Self, Refused> {
        Ok(Self { after: pairs.name("cursor")?, limit: pairs.limit(PAGE_ITEMS)? })
    }
}

/// A page by number, newest first.
pub(crate) struct ByNumber {
    /// Only items with lower numbers.
    pub(crate) before: Option<u64>,
    /// At most this many.
    pub(crate) limit: usize,
}

impl FromQuery for ByNumber {
    const NAMES: &'static [&'static str] = &["cursor", "limit"];

    fn from_query(pairs: &Pairs, _: Timestamp) -> Result<Self, Refused> {
        Ok(Self { before: pairs.number("cursor")?, limit: pairs.limit(PAGE_ITEMS)? })
    }
}

//! Versions of what stores keep their rows in.

/// The version of a store's tables, and the one that this program makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schema {
    /// The version that is there; 0 = there is nothing yet.
    pub found: i64,
    /// The lowest version that a program must know to work on it.
    pub readable_from: i64,
    /// The version that this program makes and writes.
    pub known: i64,
}

impl Schema {
    /// Whether opening it brings it to another version.
    #[must_use]
    pub fn is_older(&self) -> bool {
        self.found < self.known
    }

    /// Whether this program knows too little to work on it.
    #[must_use]
    pub fn is_too_new(&self) -> bool {
        self.readable_from > self.known
    }
}

//! Values in statements.
//!
//! Every value is written as a number or as hexadecimal digits: nothing that people or workers wrote is ever part of a
//! statement, whatever the server's settings for quoting are.

use std::{borrow::Cow, fmt::Write as _};

use windlass_core::{Name, TaskId};

/// A value in a statement.
#[derive(Debug, Clone)]
pub(super) enum Cell<'a> {
    Null,
    Number(i64),
    Bytes(Cow<'a, [u8]>),
    /// The claim's number with this place among those that are handed out together: see [`NEXT_CLAIMS`].
    Claim(usize),
}

/// Gets numbers for [`CLAIMS_AT_ONCE`] claims. They grow with each use, on all connections: the counter is not
/// taken back with a transaction, and a number is got after the rows are locked that it is for.
pub(super) const NEXT_CLAIMS: [&str; 3] = [
    "INSERT INTO windlass_claim (n) VALUES (NULL)",
    "SET @claims = LAST_INSERT_ID() << 10",
    "DELETE FROM windlass_claim WHERE n = @claims >> 10",
];

/// The number of claims that get numbers together.
pub(super) const CLAIMS_AT_ONCE: usize = 1 << 10;

impl From<i64> for Cell<'_> {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for Cell<'_> {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<bool> for Cell<'_> {
    fn from(value: bool) -> Self {
        Self::Number(value.into())
    }
}

/// Identifiers, as 16 bytes in the order of their numbers.
impl From<u128> for Cell<'_> {
    fn from(id: u128) -> Self {
        Self::Bytes(id.to_be_bytes().to_vec().into())
    }
}

impl From<TaskId> for Cell<'_> {
    fn from(id: TaskId) -> Self {
        id.0.into()
    }
}

impl<'a> From<&'a [u8]> for Cell<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(bytes.into())
    }
}

impl<'a> From<&'a [u8; 32]> for Cell<'a> {
    fn from(bytes: &'a [u8; 32]) -> Self {
        Self::Bytes(bytes[..].into())
    }
}

impl<'a> From<&'a str> for Cell<'a> {
    fn from(text: &'a str) -> Self {
        Self::Bytes(text.as_bytes().into())
    }
}

impl<'a> From<&'a Name> for Cell<'a> {
    fn from(name: &'a Name) -> Self {
        name.as_str().into()
    }
}

impl From<Vec<u8>> for Cell<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes.into())
    }
}

impl<'a, T: Into<Cell<'a>>> From<Option<T>> for Cell<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// A row of values.
macro_rules! cells {
    ($($cell:expr),* $(,)?) => { vec![$($crate::mysql::cell::Cell::from($cell)),*] };
}
pub(super) use cells;

/// Writes a value.
pub(super) fn write(text: &mut String, cell: &Cell<'_>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    match cell {
        Cell::Null => text.push_str("NULL"),
        Cell::Number(number) => {
            // Writing to a string cannot fail.
            let _ = write!(text, "{number}");
        }
        Cell::Claim(place) => {
            let _ = write!(text, "@claims + {place}");
        }
        Cell::Bytes(bytes) => {
            text.reserve(2 * bytes.len() + 3);
            text.push_str("x'");
            for byte in bytes.iter() {
                text.push(char::from(DIGITS[usize::from(byte >> 4)]));
                text.push(char::from(DIGITS[usize::from(byte & 15)]));
            }
            text.push('\'');
        }
    }
}

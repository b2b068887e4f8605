//! Errors of flow files, with their places.

use std::borrow::Cow;

use thiserror::Error;
use windlass_core::STEPS_MAX;

/// The reason why a flow file was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct FlowError {
    /// The problem and the fix.
    pub message: String,
    /// The line, from 1; none if there is no source text.
    pub line: Option<u64>,
    /// The character in that line, from 1.
    pub column: Option<u64>,
    /// The first mistakes of further steps.
    pub others: Vec<FlowError>,
}

impl FlowError {
    /// An error of a file as a whole.
    #[must_use]
    pub const fn new(message: String) -> Self {
        Self { message, line: None, column: None, others: Vec::new() }
    }

    /// This one, then the others.
    pub fn all(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.others)
    }

    /// An error at a byte of `text`.
    pub(super) fn at(text: &str, byte: usize, message: String) -> Self {
        let before = text.get(..byte).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        let column = before[line_start..].chars().count() + 1;
        let (line, column) = (u64::try_from(line).ok(), u64::try_from(column).ok());
        Self { line, column, ..Self::new(message) }
    }
}

/// A mistake found without access to the whole text: its place is a byte of that text.
#[derive(Debug)]
pub(super) struct Fault {
    /// The byte at fault.
    pub(super) at: usize,
    /// The problem and the fix.
    pub(super) message: String,
}

impl Fault {
    pub(super) fn new(at: usize, message: impl Into<String>) -> Self {
        Self { at, message: message.into() }
    }

    pub(super) fn locate(self, text: &str) -> FlowError {
        FlowError::at(text, self.at, self.message)
    }
}

/// The message for a duplicate key, in every format.
pub(super) fn twice(key: &str) -> String {
    format!("duplicate key {}: remove one", quote(key))
}

/// The message for a whole number that parameters cannot represent exactly.
pub(super) fn not_exact(number: &str) -> String {
    format!(
        "the number {} is too large or begins with 0: it must fit into 64 bits, or be in quotes",
        quote(number)
    )
}

/// Shortens a parser's message, which may quote the text.
pub(super) fn cut(message: &str) -> Cow<'_, str> {
    const CHARS_MAX: usize = 300;

    match message.char_indices().nth(CHARS_MAX) {
        None => message.into(),
        Some((end, _)) => format!("{}…", &message[..end]).into(),
    }
}

/// The message for a flow with too many steps.
pub(super) fn too_many_steps(count: usize) -> String {
    format!("the flow has {count} steps; the limit is {STEPS_MAX}")
}

/// A piece of the user's text for a message: in quotes, on one line, and shortened.
pub(super) fn quote(text: &str) -> String {
    /// A longer piece would hide the message; a name has at most 128 characters anyway.
    const CHARS_MAX: usize = 64;

    match text.char_indices().nth(CHARS_MAX) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}", format!("{}…", &text[..end])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_lines_and_characters_from_one() {
        let place = |byte| {
            let error = FlowError::at("größe: 1\n  x\n", byte, String::new());
            (error.line.unwrap(), error.column.unwrap())
        };
        assert_eq!(place(0), (1, 1));
        assert_eq!(place("größe".len()), (1, 6));
        assert_eq!(place("größe: 1\n  ".len()), (2, 3));
        assert_eq!(place(1_000), (3, 1), "past the end is the end");
    }

    #[test]
    fn quoted_pieces_are_short_and_on_one_line() {
        assert_eq!(quote("a\nb"), r#""a\nb""#);
        assert_eq!(quote(&"ü".repeat(65)), format!("\"{}…\"", "ü".repeat(64)));
    }
}

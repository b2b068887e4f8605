//! What is wrong with a flow file, and where.

use std::borrow::Cow;

use thiserror::Error;
use windlass_core::STEPS_MAX;

/// Why a flow file was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct FlowError {
    /// What is wrong, and what to write instead.
    pub message: String,
    /// The line it is on, from 1, where there is a text to point into.
    pub line: Option<u64>,
    /// The character of that line, from 1.
    pub column: Option<u64>,
}

impl FlowError {
    /// An error of a file as a whole.
    pub(super) const fn new(message: String) -> Self {
        Self { message, line: None, column: None }
    }

    /// An error at a byte of `text`.
    pub(super) fn at(text: &str, byte: usize, message: String) -> Self {
        let before = text.get(..byte).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        let column = before[line_start..].chars().count() + 1;
        Self { message, line: u64::try_from(line).ok(), column: u64::try_from(column).ok() }
    }
}

/// A mistake found while the text is at hand only elsewhere: where it is, as a byte of that text.
#[derive(Debug)]
pub(super) struct Fault {
    /// The byte at fault.
    pub(super) at: usize,
    /// What is wrong, and what to write instead.
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

/// What is said of a key that is there twice, in every format.
pub(super) fn twice(key: &str) -> String {
    format!("the key {} is there twice: take one away", quote(key))
}

/// What is said of a whole number that parameters cannot carry as it is written.
pub(super) fn not_exact(number: &str) -> String {
    format!(
        "the number {} is too large or begins with 0: it must fit into 64 bits, or be in quotes",
        quote(number)
    )
}

/// A message of a parser, which may have a piece of the text in it, not longer than anybody reads.
pub(super) fn cut(message: &str) -> Cow<'_, str> {
    const CHARS_MAX: usize = 300;

    match message.char_indices().nth(CHARS_MAX) {
        None => message.into(),
        Some((end, _)) => format!("{}…", &message[..end]).into(),
    }
}

/// What is said of a flow with more steps than any may have.
pub(super) fn too_many_steps(count: usize) -> String {
    format!("the flow has {count} steps; the most is {STEPS_MAX}")
}

/// A piece of the user's text inside a message: in quotes, on one line, and not too long.
pub(super) fn quote(text: &str) -> String {
    /// Longer pieces would hide the message; a name has at most 128 characters anyway.
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

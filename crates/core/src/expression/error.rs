//! Errors in the text of an expression, and their places.

use thiserror::Error;

/// Why a text is not a valid expression.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}{}", self.place())]
pub struct ExpressionError {
    /// The problem and its fix.
    pub message: String,
    /// The line within the text, from 1.
    pub line: Option<usize>,
    /// The character within that line, from 1.
    pub column: Option<usize>,
}

impl ExpressionError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), line: None, column: None }
    }

    /// An error at byte `offset` of `source`.
    pub(super) fn at(source: &str, offset: usize, message: impl Into<String>) -> Self {
        let before = source.get(..offset).unwrap_or(source);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            message: message.into(),
            line: Some(before.matches('\n').count() + 1),
            column: Some(before[line_start..].chars().count() + 1),
        }
    }

    fn place(&self) -> String {
        match (self.line, self.column) {
            (Some(1) | None, Some(column)) => format!(" (column {column})"),
            (Some(line), Some(column)) => format!(" (line {line}, column {column})"),
            _ => String::new(),
        }
    }
}

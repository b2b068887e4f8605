//! What is wrong with the text of an expression, and where.

use cel::ParseErrors;
use thiserror::Error;

/// Why a text is no expression.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}{}", self.place())]
pub struct ExpressionError {
    /// What is wrong, and what to do about it.
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

    /// About what begins at byte `offset` of `source`.
    pub(super) fn at(source: &str, offset: usize, message: impl Into<String>) -> Self {
        let before = source.get(..offset).unwrap_or(source);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            message: message.into(),
            line: Some(before.matches('\n').count() + 1),
            column: Some(before[line_start..].chars().count() + 1),
        }
    }

    /// The first that the parser found.
    pub(super) fn from_parser(source: &str, errors: &ParseErrors) -> Self {
        let placed = errors.errors.iter().find(|error| error.pos.0 > 0);
        let Some(error) = placed.or(errors.errors.first()) else {
            return Self::new("it is no CEL");
        };
        let message = in_words(&error.msg);
        let (Ok(line), Ok(column)) = (usize::try_from(error.pos.0), usize::try_from(error.pos.1)) else {
            return Self::new(message);
        };
        if line == 0 || column == 0 {
            return Self::new(message);
        }
        let line_start: usize = source.split_inclusive('\n').take(line - 1).map(str::len).sum();
        Self::at(source, line_start + column - 1, message)
    }

    fn place(&self) -> String {
        match (self.line, self.column) {
            (Some(1) | None, Some(column)) => format!(" (column {column})"),
            (Some(line), Some(column)) => format!(" (line {line}, column {column})"),
            _ => String::new(),
        }
    }
}

/// The parser's message for a person who does not know how parsers talk.
fn in_words(message: &str) -> String {
    let message = message.strip_prefix("Syntax error: ").unwrap_or(message);
    match message {
        "mismatched input '<EOF>' expecting expression" => "it ends where a value should be".to_owned(),
        "unexpected token" | "expected identifier" => "a value should be here".to_owned(),
        "invalid argument to has() macro" => {
            "`has` takes a field, as in `has(params.size)` or `has(order.customer)`".to_owned()
        }
        "argument must be a simple name" => {
            "the first argument names the element, as in `items.all(item, item > 0)`".to_owned()
        }
        _ if message.starts_with("unsupported syntax") => {
            "optional values are not supported: test with `has(params.size)` first".to_owned()
        }
        _ => {
            match message.strip_prefix("mismatched input ").and_then(|rest| rest.split_once(" expecting ")) {
                Some((found, "<EOF>")) => {
                    format!(
                        "{found} does not belong here: an operator is missing before it, or it is too much"
                    )
                }
                Some(("<EOF>", expected)) => format!("it ends where {expected} should be"),
                Some((found, expected)) => format!("{found} stands where {expected} should be"),
                None => message.to_owned(),
            }
        }
    }
}

//! A look at the text of an expression before the parser sees it: length, characters, nesting.
//!
//! The parser recurses, and so does everything that handles its tree. How deep the tree will be is found here
//! without recursion, from the tokens alone: never less than it is, sometimes a little more.

use std::mem;

use super::{EXPRESSION_BYTES_MAX, EXPRESSION_DEPTH_MAX, ExpressionError};

/// A name in the text, and where it begins.
pub(super) type Word<'s> = (usize, &'s str);

/// The names in `source`, in order.
pub(super) fn scan(source: &str) -> Result<Vec<Word<'_>>, ExpressionError> {
    if source.len() > EXPRESSION_BYTES_MAX {
        return Err(ExpressionError::new(format!(
            "it is {} bytes long, and at most {EXPRESSION_BYTES_MAX} are possible: let a step find out what is \
             to be known, and look at its result",
            source.len()
        )));
    }
    let mut scan =
        Scan { source, at: 0, after_operand: false, levels: vec![Level::default()], words: Vec::new() };
    while scan.at < source.len() {
        scan.token()?;
    }
    match scan.levels.as_slice() {
        [_] if source.trim().is_empty() => Err(ExpressionError::new("it is empty: write a CEL expression")),
        [outermost] => scan.limit(outermost.depth(), 0).map(|()| scan.words),
        [.., level] => Err(scan.error(level.start, "this bracket is never closed")),
        [] => Err(scan.error(0, "a bracket is closed that was never opened")),
    }
}

struct Scan<'s> {
    source: &'s str,
    at: usize,
    /// A bracket here would be a call or an index, rather than a group or a list.
    after_operand: bool,
    levels: Vec<Level>,
    words: Vec<Word<'s>>,
}

/// What is between two brackets. Operands that `&&`, `||`, `?`, `:` or a comma part do not hang on one another.
#[derive(Default)]
struct Level {
    start: usize,
    closing: u8,
    hangs_on_operand: bool,
    /// Operators since the last separator, and the deepest brackets among them.
    operators: usize,
    inner: usize,
    /// The deepest operand before.
    deepest: usize,
    /// Each `?` is below the one before; `&&` and `||` make balanced trees.
    choices: usize,
    connectives: usize,
}

impl Level {
    fn separate(&mut self) {
        self.deepest = self.deepest.max(self.operators + self.inner);
        self.operators = 0;
        self.inner = 0;
    }

    fn depth(&self) -> usize {
        let balanced = (usize::BITS - self.connectives.leading_zeros()) as usize;
        self.deepest.max(self.operators + self.inner) + self.choices + balanced
    }
}

impl<'s> Scan<'s> {
    fn token(&mut self) -> Result<(), ExpressionError> {
        let rest = &self.source.as_bytes()[self.at..];
        let start = self.at;
        self.at += 1;
        let hangs_on_operand = mem::take(&mut self.after_operand);
        match (rest[0], rest.get(1).copied()) {
            (b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c, _) => self.after_operand = hangs_on_operand,
            (b'/', Some(b'/')) => {
                self.at = start + rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
                self.after_operand = hangs_on_operand;
            }
            (b'"' | b'\'', _) => self.text(start, Escapes::Meant)?,
            (b'r' | b'R', Some(b'"' | b'\'')) => {
                self.at += 1;
                self.text(start + 1, Escapes::Literal)?;
            }
            (b'b' | b'B', Some(b'"' | b'\'')) => return Err(self.error(start, NO_BYTES)),
            (b'A'..=b'Z' | b'a'..=b'z' | b'_', _) => self.word(start)?,
            (b'0'..=b'9', _) => self.number(start)?,
            (b'.', Some(b'0'..=b'9')) => self.number(start)?,
            (opening @ (b'(' | b'[' | b'{'), _) => {
                let closing = if opening == b'(' { b')' } else { opening + 2 };
                self.levels.push(Level { start, closing, hangs_on_operand, ..Level::default() });
                self.limit(self.levels.len() - 1, start)?;
            }
            (closing @ (b')' | b']' | b'}'), _) => self.close(start, closing)?,
            (b'&', Some(b'&')) | (b'|', Some(b'|')) => {
                self.at += 1;
                self.level(|level| {
                    level.separate();
                    level.connectives += 1;
                });
            }
            (b'&', _) => return Err(self.error(start, "`&` is no operator: write `&&`")),
            (b'|', _) => return Err(self.error(start, "`|` is no operator: write `||`")),
            (b'?', _) => {
                self.level(|level| {
                    level.separate();
                    level.choices += 1;
                });
            }
            (b':' | b',', _) => self.level(Level::separate),
            (b'=' | b'!' | b'<' | b'>', Some(b'=')) => {
                self.at += 1;
                self.level(|level| level.operators += 1);
            }
            (b'=', _) => return Err(self.error(start, "`=` compares nothing: write `==`")),
            (b'!' | b'<' | b'>' | b'+' | b'-' | b'*' | b'/' | b'%' | b'.', _) => {
                self.level(|level| level.operators += 1);
            }
            (b'`', _) => return Err(self.error(start, "names cannot be quoted: write `params['odd name']`")),
            _ => {
                let character = self.source[start..].chars().next().unwrap_or_default();
                let message = format!("{character:?} has no meaning here: texts stand between quotes");
                return Err(self.error(start, message));
            }
        }
        Ok(())
    }

    fn close(&mut self, start: usize, closing: u8) -> Result<(), ExpressionError> {
        match self.levels.pop() {
            Some(level) if level.closing == closing => {
                let depth = level.depth() + 1;
                self.limit(depth, level.start)?;
                self.level(|outer| {
                    outer.inner = outer.inner.max(depth);
                    outer.operators += usize::from(level.hangs_on_operand);
                });
                self.after_operand = true;
                Ok(())
            }
            Some(level) if level.closing != 0 => {
                let message =
                    format!("a `{}` should be here, not `{}`", level.closing as char, closing as char);
                Err(self.error(start, message))
            }
            _ => Err(self.error(start, "this bracket is closed, but was never opened")),
        }
    }

    /// A text whose first quote is at `start`.
    fn text(&mut self, start: usize, escapes: Escapes) -> Result<(), ExpressionError> {
        let bytes = self.source.as_bytes();
        let quote = bytes[start];
        let quotes = if bytes[start..].starts_with(&[quote; 3]) { 3 } else { 1 };
        let mut at = start + quotes;
        while at < bytes.len() {
            match bytes[at] {
                b'\\' if escapes == Escapes::Meant => at += 2,
                _ if bytes[at..].starts_with(&[quote; 3][..quotes]) => {
                    self.at = at + quotes;
                    self.after_operand = true;
                    return Ok(());
                }
                _ => at += 1,
            }
        }
        Err(self.error(start, "this text never ends: its closing quote is missing"))
    }

    fn word(&mut self, start: usize) -> Result<(), ExpressionError> {
        let word = self.run(start, |byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let is_field = self.source[..start].trim_end().ends_with('.');
        match (word, self.source.as_bytes().get(self.at)) {
            (_, Some(b'"' | b'\'')) if word.eq_ignore_ascii_case("br") || word.eq_ignore_ascii_case("rb") => {
                Err(self.error(start, NO_BYTES))
            }
            (_, Some(b'"' | b'\'')) => Err(self.error(self.at, "an operator is missing before this text")),
            ("and", _) if !is_field => Err(self.error(start, "`and` is no operator: write `&&`")),
            ("or", _) if !is_field => Err(self.error(start, "`or` is no operator: write `||`")),
            ("not", _) if !is_field => Err(self.error(start, "`not` is no operator: write `!`")),
            ("in", _) => {
                self.level(|level| level.operators += 1);
                Ok(())
            }
            _ => {
                self.words.push((start, word));
                self.after_operand = true;
                Ok(())
            }
        }
    }

    /// A number: the parser reads it. What must not be is that something else begins in its midst.
    fn number(&mut self, start: usize) -> Result<(), ExpressionError> {
        let number = self.run(start, |byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.');
        // In `1.a.b` the dots are operators. That `1.5` is no such case does not matter here.
        self.level(|level| level.operators += number.matches('.').count());
        self.after_operand = true;
        match self.source.as_bytes().get(self.at) {
            Some(b'"' | b'\'') => Err(self.error(self.at, "an operator is missing before this text")),
            Some(b'+' | b'-') if number.ends_with(['e', 'E']) && !number.starts_with("0x") => {
                self.at += 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn run(&mut self, start: usize, belongs: impl Fn(u8) -> bool) -> &'s str {
        let length = self.source.bytes().skip(start).take_while(|byte| belongs(*byte)).count();
        self.at = start + length.max(1);
        &self.source[start..self.at]
    }

    fn level(&mut self, change: impl FnOnce(&mut Level)) {
        if let Some(level) = self.levels.last_mut() {
            change(level);
        }
    }

    fn limit(&self, depth: usize, start: usize) -> Result<(), ExpressionError> {
        if depth <= EXPRESSION_DEPTH_MAX {
            return Ok(());
        }
        let message =
            format!("it nests deeper than {EXPRESSION_DEPTH_MAX} levels: write it in a simpler way");
        Err(self.error(start, message))
    }

    fn error(&self, offset: usize, message: impl Into<String>) -> ExpressionError {
        ExpressionError::at(self.source, offset, message)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Escapes {
    Meant,
    Literal,
}

const NO_BYTES: &str = "bytes are not supported: parameters are JSON, which has texts";

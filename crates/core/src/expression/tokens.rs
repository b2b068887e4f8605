//! The tokens of an expression's source.

use super::ExpressionError;

/// A token, and its bytes in the source: from `at`, up to `end`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token<'s> {
    pub(super) kind: Kind<'s>,
    pub(super) at: usize,
    pub(super) end: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind<'s> {
    Name(&'s str),
    /// The digits of a whole number, or `0x` and hexadecimal digits.
    Int(&'s str),
    /// The digits of an unsigned number, without its `u`.
    Uint(&'s str),
    Double(&'s str),
    /// A text, with its escapes replaced.
    Text(Box<str>),
    /// An operator or a bracket: one of [`SYMBOLS`], or `in`.
    Symbol(&'static str),
    End,
}

/// A symbol that begins with another symbol comes first.
const SYMBOLS: [&str; 24] = [
    "&&", "||", "==", "!=", "<=", ">=", "(", ")", "[", "]", "{", "}", ",", ":", "?", "+", "-", "*", "/", "%",
    "!", "<", ">", ".",
];

const NO_BYTES: &str = "bytes are not supported: parameters are JSON, which has texts";

/// The tokens of `source`, in order; the last one is [`Kind::End`].
///
/// # Errors
/// When a part of `source` is not a token of CEL.
pub(super) fn tokens(source: &str) -> Result<Vec<Token<'_>>, ExpressionError> {
    let mut lexer = Lexer { source, at: 0 };
    let mut tokens: Vec<Token<'_>> = Vec::new();
    loop {
        lexer.skip_blanks();
        let at = lexer.at;
        let is_field = tokens.last().is_some_and(|token| token.kind == Kind::Symbol("."));
        let kind = lexer.token(is_field)?;
        let is_end = kind == Kind::End;
        tokens.push(Token { kind, at, end: lexer.at });
        if is_end {
            return Ok(tokens);
        }
    }
}

struct Lexer<'s> {
    source: &'s str,
    at: usize,
}

impl<'s> Lexer<'s> {
    fn rest(&self) -> &'s str {
        &self.source[self.at..]
    }

    /// The next byte, or 0 at the end.
    fn peek(&self, ahead: usize) -> u8 {
        self.source.as_bytes().get(self.at + ahead).copied().unwrap_or_default()
    }

    fn error<T>(&self, at: usize, message: impl Into<String>) -> Result<T, ExpressionError> {
        Err(ExpressionError::at(self.source, at, message))
    }

    /// Skips the run of matching bytes that begins here, and returns it.
    fn run(&mut self, belongs: impl Fn(u8) -> bool) -> &'s str {
        let length = self.rest().bytes().take_while(|byte| belongs(*byte)).count();
        let run = &self.rest()[..length];
        self.at += length;
        run
    }

    fn skip_blanks(&mut self) {
        loop {
            self.run(|byte| byte.is_ascii_whitespace() || byte == 0x0b);
            if !self.rest().starts_with("//") {
                return;
            }
            self.run(|byte| byte != b'\n');
        }
    }

    fn token(&mut self, is_field: bool) -> Result<Kind<'s>, ExpressionError> {
        let at = self.at;
        match (self.peek(0), self.peek(1)) {
            (b'"' | b'\'', _) => self.text(false),
            (b'r' | b'R', b'"' | b'\'') => {
                self.at += 1;
                self.text(true)
            }
            (b'b' | b'B', b'"' | b'\'') => self.error(at, NO_BYTES),
            (b'A'..=b'Z' | b'a'..=b'z' | b'_', _) => self.word(is_field),
            (b'0'..=b'9', _) | (b'.', b'0'..=b'9') => self.number(),
            (b'`', _) => self.error(at, "names cannot be quoted: write `params['odd name']`"),
            _ => self.symbol(),
        }
    }

    fn symbol(&mut self) -> Result<Kind<'s>, ExpressionError> {
        let Some(character) = self.rest().chars().next() else { return Ok(Kind::End) };
        if let Some(symbol) = SYMBOLS.iter().find(|symbol| self.rest().starts_with(**symbol)) {
            self.at += symbol.len();
            return Ok(Kind::Symbol(symbol));
        }
        let message = match character {
            '&' => "`&` is not an operator: write `&&`".to_owned(),
            '|' => "`|` is not an operator: write `||`".to_owned(),
            '=' => "`=` compares nothing: write `==`".to_owned(),
            _ => format!("{character:?} has no meaning here: texts stand between quotes"),
        };
        self.error(self.at, message)
    }

    fn word(&mut self, is_field: bool) -> Result<Kind<'s>, ExpressionError> {
        let at = self.at;
        let word = self.run(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let is_before_text = matches!(self.peek(0), b'"' | b'\'');
        match word {
            _ if is_before_text && (word.eq_ignore_ascii_case("br") || word.eq_ignore_ascii_case("rb")) => {
                self.error(at, NO_BYTES)
            }
            "in" => Ok(Kind::Symbol("in")),
            "and" if !is_field => self.error(at, "`and` is not an operator: write `&&`"),
            "or" if !is_field => self.error(at, "`or` is not an operator: write `||`"),
            "not" if !is_field => self.error(at, "`not` is not an operator: write `!`"),
            _ => Ok(Kind::Name(word)),
        }
    }

    fn number(&mut self) -> Result<Kind<'s>, ExpressionError> {
        let at = self.at;
        let digit = |byte: u8| byte.is_ascii_digit();
        let mut is_double = false;
        if self.peek(0) == b'0' && matches!(self.peek(1), b'x' | b'X') {
            self.at += 2;
            if self.run(|byte| byte.is_ascii_hexdigit()).is_empty() {
                return self.error(at, "hexadecimal digits are missing after `0x`");
            }
        } else {
            self.run(digit);
            if self.peek(0) == b'.' && self.peek(1).is_ascii_digit() {
                is_double = true;
                self.at += 1;
                self.run(digit);
            }
            if matches!(self.peek(0), b'e' | b'E') {
                is_double = true;
                self.at += 1 + usize::from(matches!(self.peek(1), b'+' | b'-'));
                if self.run(digit).is_empty() {
                    return self.error(at, "digits are missing after the exponent's `e`");
                }
            }
        }
        let number = &self.source[at..self.at];
        let kind = match self.peek(0) {
            _ if is_double => Kind::Double(number),
            b'u' | b'U' => {
                self.at += 1;
                Kind::Uint(number)
            }
            _ => Kind::Int(number),
        };
        if self.peek(0).is_ascii_alphanumeric() || self.peek(0) == b'_' {
            return self.error(self.at, "an operator is missing between a number and a name");
        }
        Ok(kind)
    }

    /// A text whose first quote is the next byte.
    fn text(&mut self, is_raw: bool) -> Result<Kind<'s>, ExpressionError> {
        let (source, start) = (self.source, self.at);
        let bytes = source.as_bytes();
        let quote = bytes[start];
        let quotes = if bytes[start..].starts_with(&[quote; 3]) { 3 } else { 1 };
        let content = start + quotes;
        let mut at = content;
        while at < bytes.len() {
            if bytes[at] == b'\\' && !is_raw {
                at += 2;
            } else if bytes[at..].starts_with(&[quote; 3][..quotes]) {
                self.at = at + quotes;
                // Line ends are normalized.
                let written = source[content..at].replace("\r\n", "\n").replace('\r', "\n");
                if is_raw || !written.contains('\\') {
                    return Ok(Kind::Text(written.into()));
                }
                return match unescaped(&written) {
                    Some(text) => Ok(Kind::Text(text.into())),
                    None => self.error(
                        start,
                        "this text has an escape that CEL does not know: write `\\\\` for one `\\`",
                    ),
                };
            } else {
                at += 1;
            }
        }
        self.error(start, "this text never ends: its closing quote is missing")
    }
}

/// `written` with its escapes replaced. `None` if one of them is invalid.
fn unescaped(written: &str) -> Option<String> {
    let mut text = String::with_capacity(written.len());
    let mut rest = written;
    while let Some((before, escape)) = rest.split_once('\\') {
        text.push_str(before);
        let letter = escape.chars().next()?;
        rest = &escape[letter.len_utf8()..];
        let code = |radix: u32, digits: &str| {
            let is_plain = digits.chars().all(|digit| digit.is_digit(radix));
            is_plain.then(|| u32::from_str_radix(digits, radix).ok().and_then(char::from_u32)).flatten()
        };
        let digits = match letter {
            'x' | 'X' => 2,
            'u' => 4,
            'U' => 8,
            '0'..='3' => {
                text.push(code(8, escape.get(..3)?)?);
                rest = &escape[3..];
                continue;
            }
            _ => {
                text.push(plain_escape(letter)?);
                continue;
            }
        };
        text.push(code(16, rest.get(..digits)?)?);
        rest = &rest[digits..];
    }
    text.push_str(rest);
    Some(text)
}

/// The character that a backslash before `letter` means.
fn plain_escape(letter: char) -> Option<char> {
    Some(match letter {
        'a' => '\u{7}',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\u{b}',
        '\\' | '\'' | '"' | '`' | '?' => letter,
        _ => return None,
    })
}

//! The nesting depth of an expression.
//!
//! The parser recurses, and so does everything that handles its tree. The depth of the tree is therefore computed
//! beforehand, without recursion, from the tokens alone: never too low, sometimes slightly too high.

use super::{
    EXPRESSION_DEPTH_MAX, ExpressionError,
    tokens::{Kind, Token},
};

/// Checks that the brackets of `source` match, and that it nests no deeper than [`EXPRESSION_DEPTH_MAX`].
///
/// # Errors
/// When one of these checks fails, with the place.
pub(super) fn check(source: &str, tokens: &[Token<'_>]) -> Result<(), ExpressionError> {
    let mut nesting = Nesting { source, after_operand: false, levels: vec![Level::default()] };
    tokens.iter().try_for_each(|token| nesting.token(token))?;
    match nesting.levels.as_slice() {
        [outermost] => nesting.limit(outermost.depth(), 0),
        [.., level] => Err(nesting.error(level.start, "this bracket is never closed")),
        [] => Err(nesting.error(0, "a bracket is closed that was never opened")),
    }
}

struct Nesting<'s> {
    source: &'s str,
    /// A bracket here would be a call or an index, rather than a group or a list.
    after_operand: bool,
    levels: Vec<Level>,
}

/// The tokens between two brackets. Operands separated by `&&`, `||`, `?`, `:` or a comma do not nest in one another.
#[derive(Default)]
struct Level {
    start: usize,
    closing: &'static str,
    hangs_on_operand: bool,
    /// Operators since the last separator, and the deepest brackets among them.
    operators: usize,
    inner: usize,
    /// The deepest earlier operand.
    deepest: usize,
    /// Each `?` is below the previous one.
    choices: usize,
    /// The operands of all `&&` are below one node, and those nodes below the one of all `||`.
    connectives: usize,
}

impl Level {
    fn separate(&mut self) {
        self.deepest = self.deepest.max(self.operators + self.inner);
        self.operators = 0;
        self.inner = 0;
    }

    fn depth(&self) -> usize {
        self.deepest.max(self.operators + self.inner) + self.choices + self.connectives.min(2)
    }
}

impl Nesting<'_> {
    fn token(&mut self, token: &Token<'_>) -> Result<(), ExpressionError> {
        let hangs_on_operand = std::mem::take(&mut self.after_operand);
        match token.kind {
            Kind::Name(_) | Kind::Int(_) | Kind::Uint(_) | Kind::Double(_) | Kind::Text(_) => {
                self.after_operand = true;
            }
            Kind::Symbol("(") => return self.open(token.at, ")", hangs_on_operand),
            Kind::Symbol("[") => return self.open(token.at, "]", hangs_on_operand),
            Kind::Symbol("{") => return self.open(token.at, "}", hangs_on_operand),
            Kind::Symbol(closing @ (")" | "]" | "}")) => return self.close(token.at, closing),
            Kind::Symbol("&&" | "||") => self.level(|level| {
                level.separate();
                level.connectives += 1;
            }),
            Kind::Symbol("?") => self.level(|level| {
                level.separate();
                level.choices += 1;
            }),
            Kind::Symbol(":" | ",") => self.level(Level::separate),
            Kind::Symbol(_) => self.level(|level| level.operators += 1),
            Kind::End => {}
        }
        Ok(())
    }

    fn open(
        &mut self,
        start: usize,
        closing: &'static str,
        hangs_on_operand: bool,
    ) -> Result<(), ExpressionError> {
        self.levels.push(Level { start, closing, hangs_on_operand, ..Level::default() });
        self.limit(self.levels.len() - 1, start)
    }

    fn close(&mut self, start: usize, closing: &str) -> Result<(), ExpressionError> {
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
            Some(level) if !level.closing.is_empty() => {
                Err(self.error(start, format!("a `{}` should be here, not `{closing}`", level.closing)))
            }
            _ => Err(self.error(start, "this bracket is closed, but was never opened")),
        }
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

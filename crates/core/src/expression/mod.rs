//! Expressions of flows: conditions, concurrency keys and lock names, written in CEL over a task's parameters.
//!
//! An expression comes from a flow, the parameters from a client that submits a task. Neither may bring a server down,
//! and the same two must always give the same answer on every server:
//!
//! ```text
//! text ──▶ tokens ──▶ nesting ──▶ parse ──▶ tree ──▶ check: functions, loops, names it needs
//!                                            │
//! parameters ──▶ values of the needed ones ──▶ evaluate ──▶ an answer, or an error message
//! ```
//!
//! Everything that can be refused is refused when a flow is applied. Each evaluation has a limit of steps, iterates
//! over maps in the order of their keys, and has no access to a clock or to randomness.

mod budget;
mod check;
mod error;
mod evaluate;
mod functions;
mod grammar;
mod nesting;
mod number;
mod operators;
mod parameters;
mod parse;
#[cfg(test)]
mod tests;
mod tokens;
mod tree;
mod value;

use std::{borrow::Cow, fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

pub use budget::EvaluationBudget;
pub use error::ExpressionError;

use crate::Json;
use evaluate::Evaluation;
use parameters::Needs;
use parse::parse;
use tree::Node;
use value::{BYTES_PER_STEP, Value};

/// The maximum length of an expression's text, in bytes. Longer computations belong in a step.
pub const EXPRESSION_BYTES_MAX: usize = 1_024;

/// The maximum nesting depth of an expression: brackets, and chained operators as in `a.b.c` or `-a + b + c`. Parsing
/// and evaluating use stack for each level: this depth needs a small part of a thread's 2 MiB, unoptimized.
pub const EXPRESSION_DEPTH_MAX: usize = 32;

/// The maximum nesting of `all`, `exists`, `exists_one`, `map` and `filter`.
pub const EXPRESSION_LOOPS_MAX: usize = 2;

/// The maximum number of steps of an evaluation: one for each operation, each element and each 64 bytes of text that it
/// reads, and before that one for each 64 bytes of parameters that it searches. Enough for a condition on each of
/// 50,000 elements; some hundredths of a second.
pub const EXPRESSION_STEPS_MAX: u64 = 1_000_000;

/// The maximum number of these steps for the concurrency key or a lock name of one item: a fan-out computes those of a
/// thousand items at once.
pub const EXPRESSION_MEMBER_STEPS_MAX: u64 = 1_000;

/// The maximum number of steps if no parameter can change the result. A flow file can have thousands of such
/// expressions, and each is evaluated when the file is read.
pub const EXPRESSION_CONSTANT_STEPS_MAX: u64 = 10_000;

/// The maximum number of steps of all expressions that one command evaluates. Here each value that is read from the
/// parameters counts as well, and each 64 bytes of results that are merged into them. It is twice the limit of a single
/// expression, so that a single expression reaches its own limit first. 255 conditions on 1,000 values each use a
/// quarter of it.
pub const EVALUATION_STEPS_PER_TRANSITION_MAX: u64 = 2_000_000;

/// The number of steps to find the needed parameters in this JSON.
pub(crate) fn steps_to_find(params: &Json) -> u64 {
    (params.as_str().len() / BYTES_PER_STEP) as u64
}

/// The maximum length of a concurrency key, unique key or lock name, in bytes.
pub const EXPRESSION_TEXT_BYTES_MAX: usize = 256;

/// A CEL expression over a task's parameters: its text, compiled once.
///
/// Each parameter is a variable of its own name, and all of them are in the map `params`. In the expressions of steps,
/// the results of earlier steps are in the map `results` by step name.
///
/// ```
/// use windlass_core::{Expression, Json};
///
/// let params = Json::parse(r#"{"size": 3, "customer": "acme"}"#)?;
/// assert_eq!(Expression::compile("size > 2 && !has(params.dry_run)")?.holds(&params), Ok(true));
/// assert_eq!(Expression::compile("'customer-' + customer")?.text(&params), Ok("customer-acme".into()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Expression {
    source: Box<str>,
    program: Arc<Program>,
}

struct Program {
    tree: Node,
    needs: Needs,
    has_loops: bool,
}

impl Expression {
    /// Compiles `source`.
    ///
    /// # Errors
    /// When it is too long or nests too deep, is not valid CEL, or uses an unknown function.
    pub fn compile(source: &str) -> Result<Self, ExpressionError> {
        let tree = parse(source)?;
        let (needs, has_loops) = check::check(&tree, source)?;
        Ok(Self { source: source.into(), program: Arc::new(Program { tree, needs, has_loops }) })
    }

    /// Its text.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether its value is the same for all parameters.
    #[must_use]
    pub fn is_constant(&self) -> bool {
        self.program.needs.is_empty()
    }

    /// Whether it is true for `params`.
    ///
    /// # Errors
    /// When it cannot be evaluated, or is neither true nor false: as a message that quotes it.
    pub fn holds(&self, params: &Json) -> Result<bool, String> {
        self.holds_within(params, &EvaluationBudget::unlimited())
    }

    /// Whether it is true for `params`, using steps of `budget`.
    ///
    /// # Errors
    /// As [`Self::holds`], and when the budget has too few steps left.
    pub fn holds_within(&self, params: &Json, budget: &EvaluationBudget) -> Result<bool, String> {
        self.condition(params, EXPRESSION_STEPS_MAX, budget)
    }

    /// Whether it is true, if no parameter can change that: in few steps, since flow files have many of these.
    ///
    /// # Errors
    /// As [`Self::holds`].
    pub fn holds_always(&self) -> Result<bool, String> {
        self.condition(&Json::empty(), EXPRESSION_CONSTANT_STEPS_MAX, &EvaluationBudget::unlimited())
    }

    fn condition(&self, params: &Json, steps_max: u64, budget: &EvaluationBudget) -> Result<bool, String> {
        match self.evaluate(params, steps_max, budget)? {
            Value::Bool(holds) => Ok(holds),
            other => Err(format!(
                "{} evaluates to {}: a condition must be true or false, as in `size > 3`",
                self.quoted(),
                other.described()
            )),
        }
    }

    /// The concurrency key, unique key or lock name that it evaluates to for `params`.
    ///
    /// # Errors
    /// When it cannot be evaluated, or its value cannot be a key: as a message that quotes it.
    pub fn text(&self, params: &Json) -> Result<Box<str>, String> {
        self.text_within(params, &EvaluationBudget::unlimited())
    }

    /// As [`Self::text`], using steps of `budget`.
    ///
    /// # Errors
    /// As [`Self::text`], and when the budget has too few steps left.
    pub fn text_within(&self, params: &Json, budget: &EvaluationBudget) -> Result<Box<str>, String> {
        self.text_in(params, EXPRESSION_STEPS_MAX, budget)
    }

    /// The key or name that it evaluates to, if no parameter can change that: in few steps, since flow files have many
    /// of these.
    ///
    /// # Errors
    /// As [`Self::text`].
    pub fn constant_text(&self) -> Result<Box<str>, String> {
        self.text_in(&Json::empty(), EXPRESSION_CONSTANT_STEPS_MAX, &EvaluationBudget::unlimited())
    }

    /// Its value for `params` as JSON, using steps of `budget`.
    ///
    /// # Errors
    /// When it cannot be evaluated, or its value is none that JSON has: as a message that quotes it.
    pub fn json_within(&self, params: &Json, budget: &EvaluationBudget) -> Result<String, String> {
        let value = self.evaluate(params, EXPRESSION_STEPS_MAX, budget)?;
        serde_json::to_string(&value)
            .map_err(|what| format!("{} evaluates to {what}, which JSON does not have", self.quoted()))
    }

    /// As [`Self::text`], using at most `steps_max` steps of `budget`.
    ///
    /// # Errors
    /// As [`Self::text_within`].
    pub(crate) fn text_in(
        &self,
        params: &Json,
        steps_max: u64,
        budget: &EvaluationBudget,
    ) -> Result<Box<str>, String> {
        let unsuitable = match self.evaluate(params, steps_max, budget)? {
            Value::Text(text) if text.len() > EXPRESSION_TEXT_BYTES_MAX => {
                format!("a text of {} bytes", text.len())
            }
            Value::Text(text) if !text.is_empty() => return Ok(text.as_ref().into()),
            Value::Int(number) => return Ok(number.to_string().into()),
            Value::Uint(number) => return Ok(number.to_string().into()),
            Value::Bool(value) => return Ok(value.to_string().into()),
            Value::Null => "nothing".to_owned(),
            other => other.described().to_owned(),
        };
        Err(format!(
            "{} evaluates to {unsuitable}: a key or a name must be a text of 1 to {EXPRESSION_TEXT_BYTES_MAX} \
             bytes, a whole number, true or false",
            self.quoted()
        ))
    }

    /// The JSON object that it evaluates to for `params`.
    ///
    /// # Errors
    /// When it cannot be evaluated, or its value is not a map with texts as keys: as a message that quotes it.
    pub fn object(&self, params: &Json) -> Result<Json, String> {
        let value = self.evaluate(params, EXPRESSION_STEPS_MAX, &EvaluationBudget::unlimited())?;
        let unsuitable = |what: &str| {
            format!("{} evaluates to {what}: it must be a map, as in `{{'level': level}}`", self.quoted())
        };
        if !matches!(value, Value::Map(_)) {
            return Err(unsuitable(value.described()));
        }
        let text = serde_json::to_string(&value).map_err(|error| unsuitable(&error.to_string()))?;
        Json::parse(&text).map_err(|error| unsuitable(&error.to_string()))
    }

    /// Whether it iterates over lists or maps with `all`, `exists`, `exists_one`, `map` or `filter`.
    #[must_use]
    pub fn has_loops(&self) -> bool {
        self.program.has_loops
    }

    /// Whether it reads the parameter `name`.
    pub(crate) fn looks_at(&self, name: &str) -> bool {
        self.program.needs.includes(name)
    }

    /// The steps whose results it reads, as in `results.NAME.field`.
    pub fn results(&self) -> impl Iterator<Item = &str> {
        self.program.needs.results()
    }

    /// The parameters it reads by name.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.program.needs.names()
    }

    fn evaluate(&self, params: &Json, steps_max: u64, budget: &EvaluationBudget) -> Result<Value, String> {
        let Program { tree, needs, .. } = &*self.program;
        let mut evaluation = Evaluation::new(steps_max, budget);
        evaluation
            .read(needs, params)
            .and_then(|()| evaluation.run(tree))
            .map_err(|reason| format!("{} cannot be evaluated: {reason}", self.quoted()))
    }

    /// How a message quotes it: its text, or the beginning of its text.
    fn quoted(&self) -> String {
        const CHARACTERS_MAX: usize = 80;
        match self.source.char_indices().nth(CHARACTERS_MAX) {
            Some((end, _)) => format!("the expression `{}…`", &self.source[..end]),
            None => format!("the expression `{}`", self.source),
        }
    }
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for Expression {}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.source, f)
    }
}

impl Serialize for Expression {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.source)
    }
}

impl<'de> Deserialize<'de> for Expression {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let source = Cow::<'de, str>::deserialize(deserializer)?;
        Self::compile(&source).map_err(D::Error::custom)
    }
}

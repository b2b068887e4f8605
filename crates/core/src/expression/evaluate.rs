//! Evaluates a tree, in a limited number of steps.

use std::rc::Rc;

use cel::{
    IdedExpr,
    common::ast::{
        CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, MapExpr, SelectExpr, operators,
    },
};

use super::{
    budget::{BudgetExceeded, EvaluationBudget},
    functions,
    operators::arithmetic,
    parameters::{Needs, PARAMS},
    steps_to_find,
    value::{BYTES_PER_STEP, Key, Map, TYPES, Value, steps_of_text, steps_to_find_key},
};
use crate::Json;

/// Why there is no value.
#[derive(Debug, Clone)]
pub(super) enum Failure {
    /// An error of CEL, in words: `&&` and `||` pass over it when the other side decides.
    Words(Rc<str>),
    /// No steps are left: nothing passes over that.
    OutOfSteps,
}

/// How many steps it takes to word an error, where `&&`, `||` or a loop then goes on without it.
const STEPS_OF_ERROR: u64 = 8;

impl Failure {
    pub(super) fn words(words: impl Into<Rc<str>>) -> Self {
        Self::Words(words.into())
    }
}

pub(super) type Answer = Result<Value, Failure>;

/// One evaluation.
pub(super) struct Evaluation<'t> {
    params: Rc<Map>,
    /// Elements and accumulators of the loops that run, the innermost last.
    bound: Vec<(&'t str, Answer)>,
    steps_left: u64,
    steps_max: u64,
    budget: &'t EvaluationBudget,
}

impl<'t> Evaluation<'t> {
    /// An evaluation that may take so many steps of `budget`, over no parameters yet.
    pub(super) fn new(steps_max: u64, budget: &'t EvaluationBudget) -> Self {
        Self { params: Rc::default(), bound: Vec::new(), steps_left: steps_max, steps_max, budget }
    }

    /// Reads those of `params` that are needed: a step for each 64 bytes that are looked through. Of the budget also one
    /// for each value that is made, which may be two bytes.
    pub(super) fn read(&mut self, needs: &Needs, params: &Json) -> Result<(), String> {
        if needs.is_empty() {
            return Ok(());
        }
        let steps = steps_to_find(params);
        self.spend(steps).map_err(|failure| self.words(&failure))?;
        let read = needs.read(params, self.budget.left());
        let (params, values) = match read {
            Ok(read) => read,
            Err(error) if error.is_over_limit => {
                let _ = self.budget.spend(u64::MAX);
                return Err(self.budget.words());
            }
            Err(error) => return Err(error.words),
        };
        self.params = params;
        self.budget.spend(values).map_err(|BudgetExceeded| self.budget.words())
    }

    /// The value of `tree`.
    pub(super) fn run(mut self, tree: &'t IdedExpr) -> Result<Value, String> {
        let answer = self.node(tree);
        answer.map_err(|failure| self.words(&failure))
    }

    fn words(&self, failure: &Failure) -> String {
        match failure {
            Failure::Words(words) => words.to_string(),
            Failure::OutOfSteps => {
                if self.budget.is_exceeded() {
                    return self.budget.words();
                }
                format!("it takes more than {} steps: its lists or texts are too long for it", self.steps_max)
            }
        }
    }

    fn node(&mut self, node: &'t IdedExpr) -> Answer {
        self.spend(1)?;
        match &node.expr {
            Expr::Literal(literal) => {
                if let LiteralValue::String(text) = literal {
                    self.spend(steps_of_text(text.inner()))?;
                }
                literal_value(literal)
            }
            Expr::Ident(name) => self.name(name),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::List(list) => {
                let elements: Result<Vec<_>, _> = list.elements.iter().map(|node| self.node(node)).collect();
                Ok(Value::List(Rc::new(elements?)))
            }
            Expr::Map(map) => self.map(map),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            // Refused when the expression was compiled.
            Expr::Struct(_) | Expr::Unspecified => Err(Failure::words("it has a part that is no value")),
        }
    }

    pub(super) fn spend(&mut self, steps: u64) -> Result<(), Failure> {
        self.steps_left = self.steps_left.checked_sub(steps).ok_or(Failure::OutOfSteps)?;
        self.budget.spend(steps).map_err(|BudgetExceeded| Failure::OutOfSteps)
    }

    /// Looks for a key of so many entries: long keys are compared with several others.
    pub(super) fn spend_to_find(&mut self, key: &Key, entries: usize) -> Result<(), Failure> {
        self.spend(steps_to_find_key(key, entries))
    }

    fn name(&mut self, name: &str) -> Answer {
        self.spend(steps_of_text(name))?;
        if let Some((_, answer)) = self.bound.iter().rev().find(|(bound, _)| *bound == name) {
            return answer.clone();
        }
        if name == PARAMS {
            return Ok(Value::Map(self.params.clone()));
        }
        if let Some(value) = self.params.get(&Key::Text(name.into())) {
            return Ok(value.clone());
        }
        if let Some(found) = TYPES.iter().find(|found| **found == name) {
            return Ok(Value::Type(found));
        }
        Err(Failure::words(format!(
            "the task has no parameter `{name}`: where it may be missing, test with `has(params.{name})` first"
        )))
    }

    fn select(&mut self, select: &'t SelectExpr) -> Answer {
        let operand = self.node(&select.operand)?;
        let field = &select.field;
        let Value::Map(map) = &operand else {
            let words = format!("{} has no fields, so no `{field}`", operand.described());
            return Err(Failure::words(words));
        };
        let key = Key::Text(field.as_str().into());
        self.spend_to_find(&key, map.len())?;
        match map.get(&key) {
            found if select.test => Ok(Value::Bool(found.is_some())),
            Some(value) => Ok(value.clone()),
            None => Err(Failure::words(match &select.operand.expr {
                Expr::Ident(name) => format!(
                    "`{name}` has no `{field}`: where it may be missing, test with `has({name}.{field})` first"
                ),
                _ => format!("a field `{field}` is missing: where it may be, test with `has(…)` first"),
            })),
        }
    }

    fn map(&mut self, literal: &'t MapExpr) -> Answer {
        let mut map = Map::new();
        for entry in &literal.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
            let key = self.node(&entry.key)?;
            let value = self.node(&entry.value)?;
            let key = match &key {
                Value::Double(_) => None,
                key => key.as_key(),
            };
            let key =
                key.ok_or_else(|| Failure::words("a key of a map is no text, whole number or boolean"))?;
            self.spend_to_find(&key, map.len())?;
            if map.insert(key, value).is_some() {
                return Err(Failure::words("a map has the same key twice"));
            }
        }
        Ok(Value::Map(Rc::new(map)))
    }

    fn call(&mut self, call: &'t CallExpr) -> Answer {
        match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::CONDITIONAL, [condition, yes, no]) => {
                let condition = self.node(condition)?;
                self.node(if truth("? :", &condition)? { yes } else { no })
            }
            (operators::LOGICAL_AND, [left, right]) => self.connective("&&", left, right),
            (operators::LOGICAL_OR, [left, right]) => self.connective("||", left, right),
            (operators::NOT_STRICTLY_FALSE, [operand]) => match self.node(operand) {
                Ok(Value::Bool(value)) => Ok(Value::Bool(value)),
                Err(Failure::OutOfSteps) => Err(Failure::OutOfSteps),
                _ => Ok(Value::Bool(true)),
            },
            (operators::LOGICAL_NOT, [operand]) => {
                let operand = self.node(operand)?;
                truth("!", &operand).map(|value| Value::Bool(!value))
            }
            (operators::NEGATE, [operand]) => match self.node(operand)? {
                Value::Int(number) => number
                    .checked_neg()
                    .map(Value::Int)
                    .ok_or_else(|| Failure::words("a number becomes too large for 64 bits")),
                Value::Double(number) => Ok(Value::Double(-number)),
                other => Err(Failure::words(format!("`-` cannot take {}", other.described()))),
            },
            (operators::ADD, [left, right]) => self.add(left, right),
            (operator, [left, right]) if call.target.is_none() => {
                let left = self.node(left)?;
                let right = self.node(right)?;
                self.binary(operator, &left, &right)
            }
            (name, arguments) => {
                let values: Result<Vec<_>, _> =
                    call.target.as_deref().into_iter().chain(arguments).map(|node| self.node(node)).collect();
                let values = values?;
                self.spend(values.iter().map(Value::steps).sum())?;
                let value = functions::call(name, &values)?;
                // The text of a number may be long.
                self.spend(value.steps() - 1)?;
                Ok(value)
            }
        }
    }

    /// `&&` and `||`: when one side decides, the other may fail.
    fn connective(&mut self, operator: &'static str, left: &'t IdedExpr, right: &'t IdedExpr) -> Answer {
        let decisive = operator == "||";
        let left = self.node(left).and_then(|value| truth(operator, &value));
        match left {
            Ok(value) if value == decisive => return Ok(Value::Bool(decisive)),
            Err(Failure::OutOfSteps) => return Err(Failure::OutOfSteps),
            Err(Failure::Words(_)) => self.spend(STEPS_OF_ERROR)?,
            Ok(_) => {}
        }
        let right = self.node(right).and_then(|value| truth(operator, &value));
        match (left, right) {
            (_, Ok(value)) if value == decisive => Ok(Value::Bool(decisive)),
            (_, Err(Failure::OutOfSteps)) => Err(Failure::OutOfSteps),
            (Err(failure), _) | (_, Err(failure)) => Err(failure),
            (Ok(_), Ok(_)) => Ok(Value::Bool(!decisive)),
        }
    }

    fn add(&mut self, left: &'t IdedExpr, right: &'t IdedExpr) -> Answer {
        // What a loop has collected is taken rather than copied: the sum is put back in its place.
        let left = match &left.expr {
            Expr::Ident(name) if name.starts_with('@') => self.take(name)?,
            _ => self.node(left)?,
        };
        let right = self.node(right)?;
        match (left, right) {
            (Value::Text(left), Value::Text(right)) => {
                // Before it is made: texts that are added to themselves double each time.
                self.spend(1 + ((left.len() + right.len()) / BYTES_PER_STEP) as u64)?;
                Ok(Value::Text([&*left, &*right].concat().into()))
            }
            (Value::List(mut left), Value::List(right)) => {
                self.spend(right.len() as u64)?;
                if Rc::get_mut(&mut left).is_none() {
                    self.spend(left.len() as u64)?;
                }
                Rc::make_mut(&mut left).extend(right.iter().cloned());
                Ok(Value::List(left))
            }
            (left, right) => arithmetic('+', &left, &right),
        }
    }

    fn take(&mut self, name: &str) -> Answer {
        match self.bound.iter_mut().rev().find(|(bound, _)| *bound == name) {
            Some((_, answer)) => std::mem::replace(answer, Ok(Value::Null)),
            None => Err(Failure::words("it has a part that is no value")),
        }
    }

    fn comprehension(&mut self, comprehension: &'t ComprehensionExpr) -> Answer {
        let range = match self.node(&comprehension.iter_range)? {
            Value::List(list) => list,
            Value::Map(map) => {
                self.spend(map.len() as u64)?;
                Rc::new(map.keys().map(Value::from).collect())
            }
            other => {
                let words = format!("{} has no elements: a list or a map is needed", other.described());
                return Err(Failure::words(words));
            }
        };
        let start = self.node(&comprehension.accu_init);
        // An error may yet be outweighed by another element only where the loop looks at what it has so far.
        let fails_at_once = matches!(comprehension.loop_cond.expr, Expr::Literal(_));
        let place = self.bound.len();
        self.bound.push((&comprehension.accu_var, start));
        for element in range.iter() {
            match self.node(&comprehension.loop_cond) {
                Ok(Value::Bool(true)) => {}
                Err(Failure::OutOfSteps) => return Err(Failure::OutOfSteps),
                _ => break,
            }
            self.bound.push((&comprehension.iter_var, Ok(element.clone())));
            let step = self.node(&comprehension.loop_step);
            self.bound.truncate(place);
            if let Err(failure) = &step {
                if fails_at_once || matches!(failure, Failure::OutOfSteps) {
                    return step;
                }
                self.spend(STEPS_OF_ERROR)?;
            }
            self.bound.push((&comprehension.accu_var, step));
        }
        let result = self.node(&comprehension.result);
        self.bound.truncate(place);
        result
    }
}

fn literal_value(literal: &LiteralValue) -> Answer {
    Ok(match literal {
        LiteralValue::Null => Value::Null,
        LiteralValue::Boolean(value) => Value::Bool(*value.inner()),
        LiteralValue::Int(number) => Value::Int(*number.inner()),
        LiteralValue::UInt(number) => Value::Uint(*number.inner()),
        LiteralValue::Double(number) => Value::Double(*number.inner()),
        LiteralValue::String(text) => Value::Text(text.inner().into()),
        LiteralValue::Bytes(_) => return Err(Failure::words("it has a part that is no value")),
    })
}

fn truth(operator: &str, value: &Value) -> Result<bool, Failure> {
    match value {
        Value::Bool(value) => Ok(*value),
        other => Err(Failure::words(format!(
            "`{operator}` needs true or false, not {}: compare it with something",
            other.described()
        ))),
    }
}

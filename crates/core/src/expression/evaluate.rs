//! Evaluates a tree, in a limited number of steps.

use std::rc::Rc;

use super::{
    budget::{BudgetExceeded, EvaluationBudget},
    functions,
    parameters::{Needs, PARAMS},
    steps_to_find,
    tree::{Call, Loop, LoopKind, Node, Select, Unary},
    value::{Key, Map, TYPES, Value, steps_of_text, steps_to_find_key},
};
use crate::Json;

/// Why an evaluation has no value.
#[derive(Debug, Clone)]
pub(super) enum Failure {
    /// An error of CEL, as a message: `&&` and `||` ignore it if the other side decides.
    Words(Rc<str>),
    /// No steps are left: nothing ignores that.
    OutOfSteps,
}

/// The number of steps to write an error message if `&&`, `||` or a loop then continues without it.
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
    /// Elements of the running loops, the innermost last.
    bound: Vec<(&'t str, Value)>,
    steps_left: u64,
    steps_max: u64,
    budget: &'t EvaluationBudget,
}

impl<'t> Evaluation<'t> {
    /// An evaluation that may use `steps_max` steps of `budget`, without parameters yet.
    pub(super) fn new(steps_max: u64, budget: &'t EvaluationBudget) -> Self {
        Self { params: Rc::default(), bound: Vec::new(), steps_left: steps_max, steps_max, budget }
    }

    /// Reads the needed parameters: one step for each 64 bytes of JSON. The budget also pays one step for each created
    /// value, which may be as short as two bytes.
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
    pub(super) fn run(mut self, tree: &'t Node) -> Result<Value, String> {
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

    fn node(&mut self, node: &'t Node) -> Answer {
        self.spend(1)?;
        match node {
            Node::Null => Ok(Value::Null),
            Node::Bool(value) => Ok(Value::Bool(*value)),
            Node::Int(number) => Ok(Value::Int(*number)),
            Node::Uint(number) => Ok(Value::Uint(*number)),
            Node::Double(number) => Ok(Value::Double(*number)),
            Node::Text(text) => {
                self.spend(steps_of_text(text))?;
                Ok(Value::Text(Rc::from(&**text)))
            }
            Node::Name(name) => self.name(name),
            Node::Select(select) => self.select(select),
            Node::Index(parts) => {
                let container = self.node(&parts[0])?;
                let index = self.node(&parts[1])?;
                self.index(&container, &index)
            }
            Node::Call(call) => self.call(call),
            Node::Unary(Unary::Not, operand) => {
                let operand = self.node(operand)?;
                truth("!", &operand).map(|value| Value::Bool(!value))
            }
            Node::Unary(Unary::Negate, operand) => negative(&self.node(operand)?),
            Node::Binary(operator, operands) => {
                let left = self.node(&operands[0])?;
                let right = self.node(&operands[1])?;
                self.binary(*operator, left, right)
            }
            Node::And(operands) => self.connective("&&", false, operands),
            Node::Or(operands) => self.connective("||", true, operands),
            Node::Choice(parts) => {
                let [condition, yes, no] = &**parts;
                let condition = self.node(condition)?;
                self.node(if truth("? :", &condition)? { yes } else { no })
            }
            Node::List(nodes) => {
                let elements: Result<Vec<_>, _> = nodes.iter().map(|node| self.node(node)).collect();
                Ok(Value::List(Rc::new(elements?)))
            }
            Node::Map(entries) => self.map(entries),
            Node::Loop(each) => self.each(each),
        }
    }

    pub(super) fn spend(&mut self, steps: u64) -> Result<(), Failure> {
        self.steps_left = self.steps_left.checked_sub(steps).ok_or(Failure::OutOfSteps)?;
        self.budget.spend(steps).map_err(|BudgetExceeded| Failure::OutOfSteps)
    }

    /// Looks up a key among `entries` entries: long keys are compared with several others.
    pub(super) fn spend_to_find(&mut self, key: &Key, entries: usize) -> Result<(), Failure> {
        self.spend(steps_to_find_key(key, entries))
    }

    fn name(&mut self, name: &str) -> Answer {
        self.spend(steps_of_text(name))?;
        if let Some((_, element)) = self.bound.iter().rev().find(|(bound, _)| *bound == name) {
            return Ok(element.clone());
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

    fn select(&mut self, select: &'t Select) -> Answer {
        let operand = self.node(&select.operand)?;
        let field = &select.field;
        let Value::Map(map) = &operand else {
            let words = format!("{} has no fields, so no `{field}`", operand.described());
            return Err(Failure::words(words));
        };
        let key = Key::Text((**field).into());
        self.spend_to_find(&key, map.len())?;
        match map.get(&key) {
            found if select.is_test => Ok(Value::Bool(found.is_some())),
            Some(value) => Ok(value.clone()),
            None => Err(Failure::words(match &select.operand {
                Node::Name(name) => format!(
                    "`{name}` has no `{field}`: where it may be missing, test with `has({name}.{field})` first"
                ),
                _ => format!("a field `{field}` is missing: where it may be, test with `has(…)` first"),
            })),
        }
    }

    fn map(&mut self, entries: &'t [[Node; 2]]) -> Answer {
        let mut map = Map::new();
        for [key, value] in entries {
            let key = self.node(key)?;
            let value = self.node(value)?;
            let key = match &key {
                Value::Double(_) => None,
                key => key.as_key(),
            };
            let key =
                key.ok_or_else(|| Failure::words("a key of a map must be a text, whole number or boolean"))?;
            self.spend_to_find(&key, map.len())?;
            if map.insert(key, value).is_some() {
                return Err(Failure::words("a map has the same key twice"));
            }
        }
        Ok(Value::Map(Rc::new(map)))
    }

    fn call(&mut self, call: &'t Call) -> Answer {
        let operands = call.target.iter().chain(&call.arguments);
        let values: Result<Vec<_>, _> = operands.map(|node| self.node(node)).collect();
        let values = values?;
        self.spend(values.iter().map(Value::steps).sum())?;
        let value = functions::call(&call.name, &values)?;
        // The text of a number may be long.
        self.spend(value.steps() - 1)?;
        Ok(value)
    }

    /// `&&` and `||`: if an operand has the decisive value, others may fail.
    fn connective(&mut self, operator: &'static str, decisive: bool, operands: &'t [Node]) -> Answer {
        let mut found = Decision::new(operator, decisive);
        for operand in operands {
            let answer = self.node(operand);
            if self.is_decided(&mut found, answer)? {
                break;
            }
        }
        found.result()
    }

    /// Whether this operand decides. A failed operand costs steps, because others may follow.
    fn is_decided(&mut self, decision: &mut Decision, answer: Answer) -> Result<bool, Failure> {
        if matches!(answer, Err(Failure::Words(_))) {
            self.spend(STEPS_OF_ERROR)?;
        }
        decision.is_made_by(answer)
    }

    /// The elements of a loop; for a map its keys.
    fn elements(&mut self, range: &'t Node) -> Result<Rc<Vec<Value>>, Failure> {
        match self.node(range)? {
            Value::List(list) => Ok(list),
            Value::Map(map) => {
                self.spend(map.len() as u64)?;
                Ok(Rc::new(map.keys().map(Value::from).collect()))
            }
            other => {
                let words = format!("{} has no elements: a list or a map is needed", other.described());
                Err(Failure::words(words))
            }
        }
    }

    fn each(&mut self, each: &'t Loop) -> Answer {
        let elements = self.elements(&each.range)?;
        match each.kind {
            LoopKind::All | LoopKind::Exists => {
                let mut found = Decision::new(each.kind.name(), each.kind == LoopKind::Exists);
                for element in elements.iter() {
                    let answer = self.of_element(each, each.condition.as_ref(), element);
                    if self.is_decided(&mut found, answer)? {
                        break;
                    }
                }
                found.result()
            }
            LoopKind::ExistsOne => {
                let mut count = 0_usize;
                for element in elements.iter() {
                    count += usize::from(self.is_chosen(each, element)?);
                }
                Ok(Value::Bool(count == 1))
            }
            LoopKind::Filter | LoopKind::Map => {
                let mut collected = Vec::new();
                for element in elements.iter() {
                    if self.is_chosen(each, element)? {
                        collected.push(self.of_element(each, each.element.as_ref(), element)?);
                    }
                }
                Ok(Value::List(Rc::new(collected)))
            }
        }
    }

    /// Whether the loop's condition holds for `element`.
    fn is_chosen(&mut self, each: &'t Loop, element: &Value) -> Result<bool, Failure> {
        match &each.condition {
            Some(condition) => truth(each.kind.name(), &self.of_element(each, Some(condition), element)?),
            None => Ok(true),
        }
    }

    /// The value of `node` for this element of the loop; the element itself if there is no node.
    fn of_element(&mut self, each: &'t Loop, node: Option<&'t Node>, element: &Value) -> Answer {
        self.spend(1)?;
        let Some(node) = node else { return Ok(element.clone()) };
        self.bound.push((&each.name, element.clone()));
        let answer = self.node(node);
        self.bound.pop();
        answer
    }
}

/// The result of operands one of which may decide for all.
struct Decision {
    /// The operator's name in messages.
    operator: &'static str,
    /// The value that decides.
    decisive: bool,
    is_made: bool,
    /// The first operand that failed.
    failure: Option<Failure>,
}

impl Decision {
    fn new(operator: &'static str, decisive: bool) -> Self {
        Self { operator, decisive, is_made: false, failure: None }
    }

    /// Whether this operand decides.
    fn is_made_by(&mut self, answer: Answer) -> Result<bool, Failure> {
        match answer.and_then(|value| truth(self.operator, &value)) {
            Ok(value) => self.is_made = value == self.decisive,
            Err(Failure::OutOfSteps) => return Err(Failure::OutOfSteps),
            Err(failure) => self.failure = self.failure.take().or(Some(failure)),
        }
        Ok(self.is_made)
    }

    fn result(self) -> Answer {
        match self.failure {
            Some(failure) if !self.is_made => Err(failure),
            _ => Ok(Value::Bool(self.is_made == self.decisive)),
        }
    }
}

fn negative(value: &Value) -> Answer {
    match value {
        Value::Int(number) => number
            .checked_neg()
            .map(Value::Int)
            .ok_or_else(|| Failure::words("a number becomes too large for 64 bits")),
        Value::Double(number) => Ok(Value::Double(-number)),
        other => Err(Failure::words(format!("`-` cannot take {}", other.described()))),
    }
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

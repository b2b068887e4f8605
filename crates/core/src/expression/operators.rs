//! Operators with two operands, other than those of logic.

use std::{cmp::Ordering, rc::Rc};

use super::{
    evaluate::{Answer, Evaluation, Failure},
    number,
    tree::Binary,
    value::{BYTES_PER_STEP, Value},
};

impl Evaluation<'_> {
    /// `left operator right`.
    pub(super) fn binary(&mut self, operator: Binary, left: Value, right: Value) -> Answer {
        match operator {
            Binary::Add => self.add(left, right),
            Binary::Subtract => arithmetic('-', &left, &right),
            Binary::Multiply => arithmetic('*', &left, &right),
            Binary::Divide => arithmetic('/', &left, &right),
            Binary::Remainder => arithmetic('%', &left, &right),
            Binary::Equal => self.equal(&left, &right).map(Value::Bool),
            Binary::NotEqual => self.equal(&left, &right).map(|equal| Value::Bool(!equal)),
            Binary::Less => self.compare("<", &left, &right).map(|order| Value::Bool(order.is_lt())),
            Binary::LessOrEqual => self.compare("<=", &left, &right).map(|order| Value::Bool(order.is_le())),
            Binary::Greater => self.compare(">", &left, &right).map(|order| Value::Bool(order.is_gt())),
            Binary::GreaterOrEqual => {
                self.compare(">=", &left, &right).map(|order| Value::Bool(order.is_ge()))
            }
            Binary::In => self.contains(&right, &left),
        }
    }

    fn add(&mut self, left: Value, right: Value) -> Answer {
        match (left, right) {
            (Value::Text(left), Value::Text(right)) => {
                // Before the text is created: texts that are added to themselves double each time.
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

    fn equal(&mut self, left: &Value, right: &Value) -> Result<bool, Failure> {
        self.spend(left.steps())?;
        match (left, right) {
            (Value::Null, Value::Null) => Ok(true),
            (Value::Bool(left), Value::Bool(right)) => Ok(left == right),
            (Value::Text(left), Value::Text(right)) => Ok(left == right),
            (Value::Type(left), Value::Type(right)) => Ok(left == right),
            (Value::List(left), Value::List(right)) => {
                if left.len() != right.len() {
                    return Ok(false);
                }
                for (left, right) in left.iter().zip(right.iter()) {
                    if !self.equal(left, right)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Value::Map(left), Value::Map(right)) => {
                if left.len() != right.len() {
                    return Ok(false);
                }
                for ((left_key, left), (right_key, right)) in left.iter().zip(right.iter()) {
                    self.spend_to_find(left_key, 1)?;
                    if left_key != right_key || !self.equal(left, right)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            _ => Ok(number::compare(left, right) == Some(Ordering::Equal)),
        }
    }

    fn compare(&mut self, operator: &str, left: &Value, right: &Value) -> Result<Ordering, Failure> {
        self.spend(left.steps())?;
        let order = match (left, right) {
            (Value::Text(left), Value::Text(right)) => Some(left.cmp(right)),
            (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
            _ => number::compare(left, right),
        };
        order.ok_or_else(|| unsuitable(operator, left, right))
    }

    fn contains(&mut self, container: &Value, value: &Value) -> Answer {
        match container {
            Value::List(list) => {
                for element in list.iter() {
                    if self.equal(element, value)? {
                        return Ok(Value::Bool(true));
                    }
                }
                Ok(Value::Bool(false))
            }
            Value::Map(map) => match (value.as_key(), value) {
                (Some(key), _) => {
                    self.spend_to_find(&key, map.len())?;
                    Ok(Value::Bool(map.contains_key(&key)))
                }
                (None, Value::Double(_)) => Ok(Value::Bool(false)),
                (None, _) => Err(unsuitable("in", value, container)),
            },
            _ => Err(unsuitable("in", value, container)),
        }
    }

    /// `container[index]`.
    pub(super) fn index(&mut self, container: &Value, index: &Value) -> Answer {
        let found = match container {
            Value::List(list) => match number::as_whole(index) {
                Some(place) => usize::try_from(place).ok().and_then(|place| list.get(place)),
                None => return Err(unsuitable("[]", container, index)),
            },
            Value::Map(map) => match index.as_key() {
                Some(key) => {
                    self.spend_to_find(&key, map.len())?;
                    map.get(&key)
                }
                None => return Err(unsuitable("[]", container, index)),
            },
            _ => return Err(unsuitable("[]", container, index)),
        };
        found.cloned().ok_or_else(|| {
            Failure::words(format!(
                "there is no such element in {}: where it may be missing, test with `in` or `size` first",
                container.described()
            ))
        })
    }
}

fn arithmetic(operator: char, left: &Value, right: &Value) -> Answer {
    match number::arithmetic(operator, left, right) {
        Some(result) => result.map_err(Failure::words),
        None => Err(unsuitable(&operator.to_string(), left, right)),
    }
}

fn unsuitable(operator: &str, left: &Value, right: &Value) -> Failure {
    Failure::words(format!(
        "`{operator}` cannot take {} ({}) and {} ({})",
        left.described(),
        left.type_name(),
        right.described(),
        right.type_name()
    ))
}

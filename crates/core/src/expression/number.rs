//! Arithmetic and comparison as in CEL: overflow is an error, and numbers of different types can be compared by value,
//! but not added.

use std::cmp::Ordering;

use super::value::Value;

/// Compares numbers by value. `None`: one of them is not a number.
pub(super) fn compare(left: &Value, right: &Value) -> Option<Ordering> {
    match (whole(left), whole(right)) {
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        (Some(left), None) => compare_whole(left, real(right)?),
        (None, Some(right)) => compare_whole(right, real(left)?).map(Ordering::reverse),
        (None, None) => real(left)?.partial_cmp(&real(right)?),
    }
}

/// The whole number with the same value, for an index or a key.
pub(super) fn as_whole(value: &Value) -> Option<i128> {
    match value {
        Value::Double(number) if number.fract() == 0.0 => truncated(*number),
        _ => whole(value),
    }
}

/// A number without its fraction, unless it is larger than all integers.
pub(super) fn truncated(number: f64) -> Option<i128> {
    // Every integer of 64 bits is below this.
    const LIMIT: f64 = 1e20;
    (number.abs() < LIMIT).then_some(number as i128)
}

fn whole(value: &Value) -> Option<i128> {
    match value {
        Value::Int(number) => Some((*number).into()),
        Value::Uint(number) => Some((*number).into()),
        _ => None,
    }
}

fn real(value: &Value) -> Option<f64> {
    match value {
        Value::Double(number) => Some(*number),
        _ => None,
    }
}

fn compare_whole(whole: i128, real: f64) -> Option<Ordering> {
    if real.is_nan() {
        return None;
    }
    let Some(truncated) = truncated(real) else {
        return Some(if real > 0.0 { Ordering::Less } else { Ordering::Greater });
    };
    let by_fraction = || 0.0_f64.partial_cmp(&real.fract()).unwrap_or(Ordering::Equal);
    Some(whole.cmp(&truncated).then_with(by_fraction))
}

/// `left operator right`. `None`: the operator does not accept these operands.
pub(super) fn arithmetic(operator: char, left: &Value, right: &Value) -> Option<Result<Value, &'static str>> {
    let result = match (left, right) {
        (Value::Int(left), Value::Int(right)) => match operator {
            '+' => left.checked_add(*right),
            '-' => left.checked_sub(*right),
            '*' => left.checked_mul(*right),
            '/' => left.checked_div(*right),
            '%' => left.checked_rem(*right),
            _ => return None,
        }
        .map(Value::Int),
        (Value::Uint(left), Value::Uint(right)) => match operator {
            '+' => left.checked_add(*right),
            '-' => left.checked_sub(*right),
            '*' => left.checked_mul(*right),
            '/' => left.checked_div(*right),
            '%' => left.checked_rem(*right),
            _ => return None,
        }
        .map(Value::Uint),
        (Value::Double(left), Value::Double(right)) => Some(Value::Double(match operator {
            '+' => left + right,
            '-' => left - right,
            '*' => left * right,
            '/' => left / right,
            _ => return None,
        })),
        _ => return None,
    };
    let by_zero = matches!(right, Value::Int(0) | Value::Uint(0)) && matches!(operator, '/' | '%');
    Some(result.ok_or(if by_zero { "it divides by zero" } else { "a number becomes too large for 64 bits" }))
}

//! The functions of expressions: those of CEL's standard library that need neither time nor regular expressions.

use std::rc::Rc;

use super::{evaluate::Failure, number, value::Value};

/// How a function is called.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Global,
    Member,
}

/// A way to call a function.
pub(super) struct Function {
    pub(super) name: &'static str,
    pub(super) style: Style,
    /// The number of arguments in the brackets.
    pub(super) arguments: usize,
    pub(super) example: &'static str,
}

const fn global(name: &'static str, example: &'static str) -> Function {
    Function { name, style: Style::Global, arguments: 1, example }
}

const fn member(name: &'static str, arguments: usize, example: &'static str) -> Function {
    Function { name, style: Style::Member, arguments, example }
}

/// All of them.
pub(super) const FUNCTIONS: &[Function] = &[
    global("size", "size(items)"),
    member("size", 0, "items.size()"),
    member("contains", 1, "name.contains('part')"),
    member("startsWith", 1, "name.startsWith('start')"),
    member("endsWith", 1, "name.endsWith('.png')"),
    global("string", "string(number)"),
    global("int", "int('3')"),
    global("uint", "uint(3)"),
    global("double", "double('1.5')"),
    global("bool", "bool('true')"),
    global("type", "type(value)"),
    global("dyn", "dyn(value)"),
];

/// Calls `name` with `values`: the target, if there is one, and the arguments.
pub(super) fn call(name: &str, values: &[Value]) -> Result<Value, Failure> {
    match (name, values) {
        ("size", [value]) => size(value),
        ("contains", [Value::Text(text), Value::Text(part)]) => Ok(Value::Bool(text.contains(&**part))),
        ("startsWith", [Value::Text(text), Value::Text(part)]) => Ok(Value::Bool(text.starts_with(&**part))),
        ("endsWith", [Value::Text(text), Value::Text(part)]) => Ok(Value::Bool(text.ends_with(&**part))),
        ("type", [value]) => Ok(Value::Type(value.type_name())),
        ("dyn", [value]) => Ok(value.clone()),
        ("string", [value]) => string(value),
        ("int", [value]) => int(value),
        ("uint", [value]) => uint(value),
        ("double", [value]) => double(value),
        ("bool", [value]) => boolean(value),
        _ => Err(mismatch(name, values)),
    }
}

/// The error for a failed conversion: out of range for a number, the wrong type for anything else.
fn unfit(name: &str, value: &Value) -> Failure {
    match value {
        Value::Double(number) => {
            Failure::words(format!("`{name}` cannot take {number:?}: it is out of range"))
        }
        Value::Int(number) => Failure::words(format!("`{name}` cannot take {number}: it is out of range")),
        Value::Uint(number) => Failure::words(format!("`{name}` cannot take {number}: it is out of range")),
        _ => mismatch(name, std::slice::from_ref(value)),
    }
}

fn mismatch(name: &str, values: &[Value]) -> Failure {
    let described: Vec<_> = values.iter().map(|value| value.described()).collect();
    Failure::words(format!("`{name}` cannot take {}", described.join(" and ")))
}

fn size(value: &Value) -> Result<Value, Failure> {
    let size = match value {
        Value::Text(text) => text.chars().count(),
        Value::List(list) => list.len(),
        Value::Map(map) => map.len(),
        _ => return Err(mismatch("size", std::slice::from_ref(value))),
    };
    i64::try_from(size).map(Value::Int).map_err(|_| mismatch("size", std::slice::from_ref(value)))
}

fn string(value: &Value) -> Result<Value, Failure> {
    let text = match value {
        Value::Text(_) => return Ok(value.clone()),
        Value::Bool(value) => value.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        Value::Double(number) => number.to_string(),
        _ => return Err(mismatch("string", std::slice::from_ref(value))),
    };
    Ok(Value::Text(Rc::from(text)))
}

fn int(value: &Value) -> Result<Value, Failure> {
    let number = match value {
        Value::Int(number) => Some(*number),
        Value::Uint(number) => i64::try_from(*number).ok(),
        Value::Double(number) => number::truncated(*number).and_then(|whole| i64::try_from(whole).ok()),
        Value::Text(text) => text.parse().ok(),
        _ => None,
    };
    number.map(Value::Int).ok_or_else(|| unfit("int", value))
}

fn uint(value: &Value) -> Result<Value, Failure> {
    let number = match value {
        Value::Uint(number) => Some(*number),
        Value::Int(number) => u64::try_from(*number).ok(),
        Value::Double(number) if *number >= 0.0 => {
            number::truncated(*number).and_then(|whole| u64::try_from(whole).ok())
        }
        Value::Text(text) => text.parse().ok(),
        _ => None,
    };
    number.map(Value::Uint).ok_or_else(|| unfit("uint", value))
}

fn double(value: &Value) -> Result<Value, Failure> {
    let number = match value {
        Value::Double(number) => Some(*number),
        Value::Int(number) => Some(*number as f64),
        Value::Uint(number) => Some(*number as f64),
        Value::Text(text) => text.parse().ok(),
        _ => None,
    };
    number.map(Value::Double).ok_or_else(|| mismatch("double", std::slice::from_ref(value)))
}

fn boolean(value: &Value) -> Result<Value, Failure> {
    let truth = match value {
        Value::Bool(value) => Some(*value),
        Value::Text(text) => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
            _ => None,
        },
        _ => None,
    };
    truth.map(Value::Bool).ok_or_else(|| mismatch("bool", std::slice::from_ref(value)))
}

//! The answers of expressions, and their refusals.

mod answers;
mod malformed;
mod reference;
mod refusals;

use super::*;

fn json(text: &str) -> Json {
    Json::parse(text).unwrap()
}

/// Parameters shared by all tests.
fn params() -> Json {
    json(
        r#"{
            "size": 3, "ratio": 0.5, "whole": 2.0, "large": 18446744073709551615, "negative": -7,
            "customer": "acme", "empty": "", "accent": "é€", "dry_run": false, "nothing": null,
            "files": [{"name": "a.png", "size": 5}, {"name": "b.txt", "size": 0}], "numbers": [3, 1, 2],
            "nested": [[1, 2], [], [3]], "order": {"id": 7, "tags": {"z": 1, "a": 2}}, "odd name": "odd"
        }"#,
    )
}

fn compiled(source: &str) -> Expression {
    Expression::compile(source).unwrap_or_else(|error| panic!("{source}: {error}"))
}

/// The value of `source`, as a line.
fn answer(source: &str, params: &Json) -> Result<String, String> {
    compiled(source)
        .evaluate(params, crate::EXPRESSION_STEPS_MAX, &EvaluationBudget::unlimited())
        .map(|value| shown(&value))
}

/// A value as a line: `2u` and `2.0` differ from `2`.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => format!("{number}u"),
        Value::Double(number) => format!("{number:?}"),
        Value::Text(text) => format!("{text:?}"),
        Value::List(list) => format!("[{}]", list.iter().map(shown).collect::<Vec<_>>().join(", ")),
        Value::Map(map) => {
            let entries = map.iter().map(|(key, value)| format!("{}: {}", shown(&key.into()), shown(value)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
        Value::Type(name) => format!("type {name}"),
    }
}

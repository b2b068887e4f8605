//! The answers equal those of `cel`'s own evaluation, except where a difference is intended.

use std::sync::Arc;

use cel::{
    Context,
    objects::{Key as CelKey, Map as CelMap},
};
use proptest::{prelude::*, sample::select, test_runner::RngSeed};

use super::*;

const PARAMS: &str = r#"{
    "size": 3, "ratio": 0.5, "whole": 2.0, "large": 18446744073709551615, "negative": -7, "customer": "acme",
    "empty": "", "accent": "é€", "dry_run": false, "nothing": null, "files": [{"id": 5}, {"id": 2.0}],
    "numbers": [3, 1, 2], "nested": [[1, 2], [], [3]], "order": {"id": 7}
}"#;

/// Expressions of any type, including ones that cannot be evaluated.
fn expressions() -> impl Strategy<Value = String> {
    const LEAVES: [&str; 26] = [
        "size",
        "ratio",
        "whole",
        "large",
        "negative",
        "customer",
        "empty",
        "accent",
        "dry_run",
        "nothing",
        "numbers",
        "nested",
        "order",
        "files",
        "missing",
        "true",
        "false",
        "null",
        "0",
        "2",
        "1.5",
        "3u",
        "'acme'",
        "[]",
        "params.size",
        "order.id",
    ];
    const BINARY: [&str; 14] =
        ["+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||", " in "];
    const UNARY: [&str; 17] = [
        "-(_)",
        "!(_)",
        "size(_)",
        "string(_)",
        "int(_)",
        "uint(_)",
        "double(_)",
        "bool(_)",
        "(type(_) == int)",
        "[_]",
        "{'k': _}",
        "has((_).id)",
        "(_).id",
        "(_).size()",
        "(_).exists(n, n == 2)",
        "(_).all(n, n > 1)",
        "{'k': _}.k",
    ];
    const LOOPS: [&str; 5] = [
        "(L).map(n, R)",
        "(L).filter(n, R)",
        "(L).all(n, R)",
        "(L).exists(n, n == R)",
        "(L).exists_one(n, R)",
    ];
    select(&LEAVES[..]).prop_map(str::to_owned).prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            (inner.clone(), select(&BINARY[..]), inner.clone())
                .prop_map(|(left, operator, right)| format!("({left} {operator} {right})")),
            (select(&UNARY[..]), inner.clone()).prop_map(|(form, operand)| form.replace('_', &operand)),
            (inner.clone(), inner.clone()).prop_map(|(left, index)| format!("({left})[{index}]")),
            (inner.clone(), inner.clone(), inner.clone())
                .prop_map(|(condition, yes, no)| format!("({condition} ? {yes} : {no})")),
            (select(&LOOPS[..]), inner.clone(), inner.clone())
                .prop_map(|(form, list, body)| form.replace('R', &body).replace('L', &list)),
        ]
    })
}

fn to_cel(value: &Value) -> cel::Value {
    match value {
        Value::Null | Value::Type(_) => cel::Value::Null,
        Value::Bool(value) => cel::Value::Bool(*value),
        Value::Int(number) => cel::Value::Int(*number),
        Value::Uint(number) => cel::Value::UInt(*number),
        Value::Double(number) => cel::Value::Float(*number),
        Value::Text(text) => cel::Value::String(Arc::new(text.to_string())),
        Value::List(list) => cel::Value::List(list.iter().map(to_cel).collect::<Vec<_>>().into()),
        Value::Map(map) => {
            let entries = map.iter().map(|(key, value)| match key {
                value::Key::Text(name) => (CelKey::String(Arc::new(name.to_string())), to_cel(value)),
                value::Key::Bool(_) | value::Key::Number(_) => panic!("JSON has no such keys"),
            });
            cel::Value::Map(CelMap { map: Arc::new(entries.collect()) })
        }
    }
}

fn shown_by_cel(value: &cel::Value) -> String {
    match value {
        cel::Value::Null => "null".to_owned(),
        cel::Value::Bool(value) => value.to_string(),
        cel::Value::Int(number) => number.to_string(),
        cel::Value::UInt(number) => format!("{number}u"),
        cel::Value::Float(number) => format!("{number:?}"),
        cel::Value::String(text) => format!("{text:?}"),
        cel::Value::List(list) => {
            format!("[{}]", list.iter().map(shown_by_cel).collect::<Vec<_>>().join(", "))
        }
        cel::Value::Map(map) => {
            let entries = map.map.iter().map(|(key, value)| match key {
                CelKey::String(name) => format!("{name:?}: {}", shown_by_cel(value)),
                _ => panic!("JSON has no such keys"),
            });
            let mut entries: Vec<_> = entries.collect();
            entries.sort();
            format!("{{{}}}", entries.join(", "))
        }
        other => format!("{other:?}"),
    }
}

proptest! {
    // The same cases each time: a rare disagreement is a finding about `cel`, not about a change made here.
    #![proptest_config(ProptestConfig {
        cases: 10_000,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]

    #[test]
    fn answers_are_those_of_cel(source in expressions()) {
        let Ok(expression) = Expression::compile(&source) else { return Ok(()) };
        // Maps with one key each, since `cel` iterates over maps in any order.
        let params = json(PARAMS);
        let mut needs = Needs::default();
        needs.all();
        let (all, _) = needs.read(&params, u64::MAX).ok().unwrap();
        let all = Value::Map(all);
        let mut context = Context::default();
        if let Value::Map(map) = &all {
            for (key, value) in map.iter() {
                if let value::Key::Text(name) = key {
                    context.add_variable_from_value(name.to_string(), to_cel(value));
                }
            }
        }
        context.add_variable_from_value("params", to_cel(&all));
        let theirs = cel::Program::compile(&source).expect("both parsers take it").execute(&context);
        let ours = expression.evaluate(&params, crate::EXPRESSION_STEPS_MAX, &crate::EvaluationBudget::unlimited());
        match (&ours, &theirs) {
            (Ok(ours), Ok(theirs)) => prop_assert_eq!(shown(ours), shown_by_cel(theirs), "{}", source),
            (Err(_), Err(_)) => {}
            // `cel` adds a map's keys to a list, which CEL does not define.
            (Err(reason), Ok(_)) if reason.contains("cannot take a list (list) and a map (map)") => {}
            (ours, theirs) => {
                let ours = ours.as_ref().map(shown);
                prop_assert!(false, "{source}: {ours:?} here, {theirs:?} by cel");
            }
        }
    }
}

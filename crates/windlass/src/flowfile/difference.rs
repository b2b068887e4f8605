//! Compares two flows: first the keys of the flow, then step by step.

use serde::Serialize;
use serde_json::{Map, Value};
use windlass_core::Flow;

use super::document;

/// One difference. Without `step` it concerns the flow; without `key` it concerns the flow or step as a
/// whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The step, if the difference is in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The key of the flow or step; none for a step that only one of the flows has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The old value; none where it was left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// The new value; none where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}

/// The differences between two flows, without their names and versions. Values with the same meaning are
/// equal, however they are written. `after` is compared after defaults are filled in, so an inserted step
/// also changes its neighbours.
#[must_use]
pub fn differences(before: &Flow, after: &Flow) -> Vec<Difference> {
    let (before_keys, before_steps) = taken_apart(before);
    let (after_keys, after_steps) = taken_apart(after);
    let mut found = Vec::new();
    compare(None, &before_keys, &after_keys, &mut found);

    let names = |steps: &Steps, others: &Steps| -> Vec<Value> {
        let both = steps.iter().filter(|(name, _)| named(others, name).is_some());
        both.map(|(name, _)| Value::from(name.as_str())).collect()
    };
    let order = [names(&before_steps, &after_steps), names(&after_steps, &before_steps)];
    if order[0] != order[1] {
        let [before, after] = order.map(|names| Some(Value::from(names)));
        found.push(Difference { step: None, key: Some("steps".to_owned()), before, after });
    }
    for (name, keys) in &before_steps {
        match named(&after_steps, name) {
            Some(other) => compare(Some(name), keys, other, &mut found),
            None => found.push(Difference {
                step: Some(name.clone()),
                key: None,
                before: Some(keys.clone().into()),
                after: None,
            }),
        }
    }
    for (name, keys) in after_steps.iter().filter(|(name, _)| named(&before_steps, name).is_none()) {
        found.push(Difference {
            step: Some(name.clone()),
            key: None,
            before: None,
            after: Some(keys.clone().into()),
        });
    }
    found
}

type Keys = Map<String, Value>;
type Steps = Vec<(String, Keys)>;

fn named<'a>(steps: &'a Steps, name: &str) -> Option<&'a Keys> {
    steps.iter().find(|(other, _)| other == name).map(|(_, keys)| keys)
}

/// The keys of a flow, and those of its steps by name.
fn taken_apart(flow: &Flow) -> (Keys, Steps) {
    let mut document = document(flow);
    document.flow = None;
    let steps =
        std::mem::take(&mut document.steps).into_iter().zip(&flow.steps).map(|(mut step, definition)| {
            let names = definition.after.iter().filter_map(|before| flow.steps.get(*before));
            step.after = Some(names.map(|step| step.name.to_string()).collect());
            let mut keys = keys(&step);
            keys.shift_remove("name");
            (step.name, keys)
        });
    let steps = steps.collect();
    let mut keys = keys(&document);
    keys.shift_remove("steps");
    (keys, steps)
}

/// A document as a map. Documents have only string keys, so this always succeeds.
fn keys(document: &impl Serialize) -> Keys {
    match serde_json::to_value(document) {
        Ok(Value::Object(keys)) => keys,
        _ => Keys::new(),
    }
}

fn compare(step: Option<&String>, before: &Keys, after: &Keys, found: &mut Vec<Difference>) {
    let added = after.keys().filter(|key| !before.contains_key(*key));
    for key in before.keys().chain(added) {
        let values = [before.get(key), after.get(key)];
        if values[0] != values[1] {
            let [before, after] = values.map(|value| value.cloned());
            found.push(Difference { step: step.cloned(), key: Some(key.clone()), before, after });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flowfile::{Format, compile, read};

    const BEFORE: &str = "
flow: f
steps:
  - { name: check, run: m.check }
  - { name: init, run: m.init, timeout: 30m, retry: 3, rollback: m.wipe }
  - { name: start, run: m.start }
";

    fn said(before: &str, after: &str) -> String {
        let [before, after] =
            [before, after].map(|text| compile(&read(text, Format::Yaml).unwrap()[0]).unwrap());
        let differences = differences(&before, &after);
        differences.iter().map(|found| serde_json::to_string(found).unwrap() + "\n").collect()
    }

    #[test]
    fn what_means_the_same_is_the_same() {
        let spelled_out = BEFORE
            .replace("retry: 3", "retry: { max: 3, backoff: exponential, base: 1s, cap: 60s }")
            .replace("timeout: 30m", "timeout: 1800, after: [check]")
            .replace("m.wipe", "{ run: m.wipe, timeout: 5m }")
            .replace("flow: f", "flow: g\non_failure: rollback");
        assert_eq!(said(BEFORE, &spelled_out), "");
    }

    #[test]
    fn what_differs_is_told_key_by_key() {
        let after = "
flow: f
on_failure: hold
on_error: mail.tell
steps:
  - { name: init, run: m.init, timeout: 1h, rollback: m.wipe, after: [check] }
  - { name: check, run: m.check, after: [] }
  - { name: warm, run: m.warm, after: [init] }
";
        insta::assert_snapshot!(said(BEFORE, after), @r#"
        {"key":"on_failure","after":"hold"}
        {"key":"on_error","after":"mail.tell"}
        {"key":"steps","before":["check","init"],"after":["init","check"]}
        {"step":"init","key":"timeout","before":"30m","after":"1h"}
        {"step":"init","key":"retry","before":3}
        {"step":"start","before":{"run":"m.start","after":["init"]}}
        {"step":"warm","after":{"run":"m.warm","after":["init"]}}
        "#);
    }

    #[test]
    fn a_step_in_between_shows_at_its_neighbours() {
        let after =
            BEFORE.replace("  - { name: init", "  - { name: wait, wait: approved }\n  - { name: init");
        insta::assert_snapshot!(said(BEFORE, &after), @r#"
        {"step":"init","key":"after","before":["check"],"after":["wait"]}
        {"step":"wait","after":{"wait":"approved","after":["check"]}}
        "#);
    }
}

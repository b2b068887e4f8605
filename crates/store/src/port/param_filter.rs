//! Filters of tasks by their parameters.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use windlass_core::Json;

/// A parameter and the value that it must have.
#[derive(Debug, Clone)]
pub struct ParamFilter {
    /// The names of members and the indices of elements on the way to the value.
    path: Vec<Box<str>>,
    value: Box<RawValue>,
}

impl ParamFilter {
    /// Reads a path, `name`, `a.b.0` or the JSON pointer `/a/b/0`, and the value: JSON, else a string.
    ///
    /// # Errors
    /// When the path is empty or has an empty name in it: in words.
    pub fn new(path: &str, value: &str) -> Result<Self, String> {
        let value = match serde_json::from_str::<Box<RawValue>>(value) {
            Ok(json) => json,
            Err(_) => serde_json::value::to_raw_value(value).map_err(|error| error.to_string())?,
        };
        let path: Vec<Box<str>> = match path.strip_prefix('/') {
            Some(pointer) => {
                pointer.split('/').map(|name| name.replace("~1", "/").replace("~0", "~").into()).collect()
            }
            None if path.split('.').any(str::is_empty) => {
                return Err(format!(
                    "{path:?} is not a path to a parameter: use `name`, `outer.inner` or a JSON pointer such as /outer/inner"
                ));
            }
            None => path.split('.').map(Box::from).collect(),
        };
        Ok(Self { path, value })
    }

    /// Whether the parameters have the value there.
    #[must_use]
    pub fn matches(&self, params: &Json) -> bool {
        let mut text = params.as_str();
        for name in &self.path {
            let Some(inner) = child(text, name) else { return false };
            text = inner;
        }
        is_same(text, self.value.get())
    }
}

/// The member of an object, or the element of an array, with this name or index.
fn child<'j>(text: &'j str, name: &str) -> Option<&'j str> {
    match kind(text)? {
        b'{' => {
            let members: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok()?;
            members.get(name).map(|value| value.get())
        }
        b'[' => {
            let elements: Vec<&RawValue> = serde_json::from_str(text).ok()?;
            elements.get(name.parse::<usize>().ok()?).map(|value| value.get())
        }
        _ => None,
    }
}

/// Whether two texts are the same JSON value: neither white space nor the order of members makes a difference, and `1`
/// is `1.0`. Recursion is as deep as payloads may nest: one of the two is a payload.
fn is_same(one: &str, other: &str) -> bool {
    let compare = || -> Option<bool> {
        match (kind(one)?, kind(other)?) {
            (b'{', b'{') => {
                let one: BTreeMap<String, &RawValue> = serde_json::from_str(one).ok()?;
                let other: BTreeMap<String, &RawValue> = serde_json::from_str(other).ok()?;
                let mut pairs = one.iter().zip(&other);
                Some(
                    one.len() == other.len()
                        && pairs.all(|(a, b)| a.0 == b.0 && is_same(a.1.get(), b.1.get())),
                )
            }
            (b'[', b'[') => {
                let one: Vec<&RawValue> = serde_json::from_str(one).ok()?;
                let other: Vec<&RawValue> = serde_json::from_str(other).ok()?;
                let mut pairs = one.iter().zip(&other);
                Some(one.len() == other.len() && pairs.all(|(a, b)| is_same(a.get(), b.get())))
            }
            (b'"', b'"') => {
                let one: String = serde_json::from_str(one).ok()?;
                Some(one == serde_json::from_str::<String>(other).ok()?)
            }
            _ => Some(one.trim() == other.trim() || is_same_number(one.trim(), other.trim())),
        }
    };
    compare().unwrap_or(false)
}

/// Integers are compared digit by digit: as floating-point numbers large ones would be taken for their neighbours.
fn is_same_number(one: &str, other: &str) -> bool {
    if let (Ok(one), Ok(other)) = (one.parse::<i128>(), other.parse::<i128>()) {
        return one == other;
    }
    let number = |text: &str| serde_json::from_str::<f64>(text).ok();
    number(one).is_some_and(|one| number(other) == Some(one))
}

/// The first byte of a value: its type.
fn kind(text: &str) -> Option<u8> {
    text.trim_start().bytes().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMS: &str = r#"{"name": "db1", "size": 3, "ratio": 1.0, "on": true, "none": null, "big": 12345678901234567890,
        "spec": {"disks": [{"gb": 10}, {"gb": 20}], "a.b": {"c/d": "x"}}, "text": "3"}"#;

    fn matches(path: &str, value: &str) -> bool {
        ParamFilter::new(path, value).unwrap().matches(&Json::parse(PARAMS).unwrap())
    }

    #[test]
    fn values_are_found_by_names_and_by_pointers() {
        assert!(matches("name", "db1") && matches("name", "\"db1\"") && !matches("name", "db2"));
        assert!(matches("size", "3") && !matches("size", "\"3\"") && matches("text", "\"3\""));
        assert!(matches("on", "true") && matches("none", "null") && !matches("absent", "null"));
        assert!(matches("spec.disks.1.gb", "20") && !matches("spec.disks.2.gb", "20"));
        assert!(matches("/spec/a.b/c~1d", "x") && matches("/spec/disks/0", r#"{ "gb":10 }"#));
        assert!(!matches("name.inner", "db1") && !matches("spec.disks.x", "1"));
        for bad in ["", ".", "a.", ".a", "a..b"] {
            assert!(ParamFilter::new(bad, "1").unwrap_err().contains("JSON pointer"), "{bad}");
        }
    }

    #[test]
    fn values_are_compared_and_not_texts() {
        assert!(matches("ratio", "1") && matches("size", "3.0"));
        assert!(
            matches("spec.disks", r#"[ {"gb":10.0},{"gb":20} ]"#) && !matches("spec.disks", r#"[{"gb":10}]"#)
        );
        assert!(matches("big", "12345678901234567890"));
        assert!(
            !matches("big", "12345678901234567891"),
            "they are the same number only as floating-point numbers"
        );
        assert!(!is_same("{\"a\":1,\"b\":2}", "{\"a\":1}"));
        assert!(is_same("{\"a\":1,\"b\":\"\\u00e9\"}", "{\"b\":\"é\", \"a\":1}"));
    }
}

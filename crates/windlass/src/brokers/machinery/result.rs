//! What a worker returned, as results with types.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::value::TypedValue;

/// The results of a task, from the object that its worker returned:
///
/// | returned | results |
/// |---|---|
/// | nothing, or `{}` | none |
/// | `{"results": [1, "a"]}` | each value, with the type that it has in JSON; or each `{"Type", "Value"}` as it is |
/// | `{"result": 1}` | this value |
/// | any other object | its text |
pub(super) fn results(returned: Option<&str>) -> Vec<TypedValue> {
    let Some(text) = returned else { return Vec::new() };
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(text).unwrap_or_default();
    if fields.is_empty() {
        return Vec::new();
    }
    if let Some(results) = fields.get("results")
        && let Ok(results) = serde_json::from_str::<Vec<&RawValue>>(results.get())
    {
        return results.into_iter().map(typed).collect();
    }
    match fields.get("result") {
        Some(value) => vec![typed(value)],
        None => as_text(text).into_iter().collect(),
    }
}

/// A value with the type that it has in JSON, or with its own: `{"Type", "Value"}`.
pub(super) fn typed(value: &RawValue) -> TypedValue {
    let text = value.get();
    if text.starts_with('{') {
        let own = serde_json::from_str::<TypedValue>(text).ok().filter(|own| own.checked().is_ok());
        return own.or_else(|| as_text(text)).unwrap_or_else(|| TypedValue::new("string", value.to_owned()));
    }
    let kind = match kind_of(text) {
        Some(kind) => kind.to_owned(),
        None => match list_kind(text) {
            Some(kind) => format!("[]{kind}"),
            None => return as_text(text).unwrap_or_else(|| TypedValue::new("string", value.to_owned())),
        },
    };
    TypedValue::new(&kind, value.to_owned())
}

/// The type of a value that is neither a list nor an object.
fn kind_of(text: &str) -> Option<&'static str> {
    match text.as_bytes().first()? {
        b'"' => Some("string"),
        b't' | b'f' => Some("bool"),
        b'-' | b'0'..=b'9' if text.parse::<i64>().is_ok() => Some("int64"),
        b'-' | b'0'..=b'9' if text.parse::<u64>().is_ok() => Some("uint64"),
        b'-' | b'0'..=b'9' => Some("float64"),
        _ => None,
    }
}

/// The type of the items of a list: one for all. Whole numbers among others count as such.
fn list_kind(text: &str) -> Option<&'static str> {
    let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
    let mut kind = None;
    for item in items {
        let of_item = kind_of(item.get())?;
        kind = match (kind, of_item) {
            (None, of_item) => Some(of_item),
            (Some(kind), of_item) if kind == of_item => Some(kind),
            (Some("float64"), "int64" | "uint64") | (Some("int64" | "uint64"), "float64") => Some("float64"),
            _ => return None,
        };
    }
    Some(kind.unwrap_or("string"))
}

/// A value that has no type in the library, as its text.
fn as_text(text: &str) -> Option<TypedValue> {
    Some(TypedValue::new("string", serde_json::value::to_raw_value(text).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(returned: &str) -> String {
        serde_json::to_string(&results(Some(returned))).unwrap()
    }

    #[test]
    fn values_get_the_types_that_they_have_in_json() {
        assert_eq!(of(r#"{"result":2}"#), r#"[{"Type":"int64","Value":2}]"#);
        assert_eq!(
            of(r#"{"results":[1.5,"a",true]}"#),
            r#"[{"Type":"float64","Value":1.5},{"Type":"string","Value":"a"},{"Type":"bool","Value":true}]"#
        );
        assert_eq!(
            of(r#"{"result":18446744073709551615}"#),
            r#"[{"Type":"uint64","Value":18446744073709551615}]"#
        );
        assert_eq!(of(r#"{"result":["f","o"]}"#), r#"[{"Type":"[]string","Value":["f","o"]}]"#);
        assert_eq!(of(r#"{"result":[1,2.5]}"#), r#"[{"Type":"[]float64","Value":[1,2.5]}]"#);
        assert_eq!(of(r#"{"results":[{"Type":"int8","Value":3}]}"#), r#"[{"Type":"int8","Value":3}]"#);
    }

    #[test]
    fn what_the_library_has_no_type_for_is_text() {
        assert_eq!(of(r#"{"a":1}"#), r#"[{"Type":"string","Value":"{\"a\":1}"}]"#);
        assert_eq!(of(r#"{"result":[1,"a"]}"#), r#"[{"Type":"string","Value":"[1,\"a\"]"}]"#);
        assert_eq!(
            of(r#"{"results":[{"Type":"int8","Value":300}]}"#),
            r#"[{"Type":"string","Value":"{\"Type\":\"int8\",\"Value\":300}"}]"#
        );
        assert_eq!((of("{}").as_str(), results(None).len()), ("[]", 0));
    }
}

//! The types of arguments and results: `bool`, `int64` and its like, `float64`, `string`, and lists of each.

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A value and its type: an argument of a signature, or a result.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(expecting = "an object with `Type` and `Value`")]
pub(super) struct TypedValue {
    /// The name of an argument. The library does not use it.
    #[serde(rename = "Name", alias = "name", default, skip_serializing_if = "String::is_empty")]
    pub(super) name: String,
    /// The type.
    #[serde(rename = "Type", alias = "type")]
    pub(super) kind: String,
    /// The value.
    #[serde(rename = "Value", alias = "value")]
    pub(super) value: Box<RawValue>,
}

impl TypedValue {
    pub(super) fn new(kind: &str, value: Box<RawValue>) -> Self {
        Self { name: String::new(), kind: kind.to_owned(), value }
    }

    /// The value, once it fits its type. An absent list is empty.
    ///
    /// # Errors
    /// Says what does not fit.
    pub(super) fn checked(&self) -> Result<Box<RawValue>, String> {
        let text = self.value.get();
        let Some(of) = self.kind.strip_prefix("[]") else {
            return match fits(&self.kind, text) {
                Some(true) => Ok(self.value.clone()),
                Some(false) => Err(format!("{} is not a value of the type {}", shortened(text), self.kind)),
                None => Err(format!("the type {:?} is not supported", self.kind)),
            };
        };
        if fits(of, "").is_none() {
            return Err(format!("the type {:?} is not supported", self.kind));
        }
        if text == "null" {
            return RawValue::from_string("[]".to_owned()).map_err(|error| error.to_string());
        }
        // The library writes bytes as a string in base64.
        if matches!(of, "byte" | "uint8") && fits("string", text) == Some(true) {
            let bytes = serde_json::from_str::<Cow<'_, str>>(text).map(|text| STANDARD.decode(&*text));
            return match bytes {
                Ok(Ok(_)) => Ok(self.value.clone()),
                _ => Err(format!("{} is not base64: a value of the type {} is", shortened(text), self.kind)),
            };
        }
        let items: Vec<&RawValue> = serde_json::from_str(text)
            .map_err(|_| format!("{} is not a value of the type {}", shortened(text), self.kind))?;
        match items.iter().find(|item| fits(of, item.get()) != Some(true)) {
            None => Ok(self.value.clone()),
            Some(item) => {
                Err(format!("{} in a {} is not a value of the type {of}", shortened(item.get()), self.kind))
            }
        }
    }
}

/// Whether a JSON value is one of this type; `None` if there is no such type.
fn fits(kind: &str, text: &str) -> Option<bool> {
    let signed = |bits: u32| {
        let value = text.parse::<i64>();
        value.is_ok_and(|value| value >= i64::MIN >> (64 - bits) && value <= i64::MAX >> (64 - bits))
    };
    let unsigned = |bits: u32| text.parse::<u64>().is_ok_and(|value| value <= u64::MAX >> (64 - bits));
    Some(match kind {
        "bool" => matches!(text, "true" | "false"),
        "int" | "int64" => signed(64),
        "int8" => signed(8),
        "int16" => signed(16),
        "int32" => signed(32),
        "uint" | "uint64" => unsigned(64),
        "uint8" | "byte" => unsigned(8),
        "uint16" => unsigned(16),
        "uint32" => unsigned(32),
        "float32" | "float64" => serde_json::from_str::<f64>(text).is_ok(),
        "string" => text.starts_with('"'),
        _ => return None,
    })
}

/// The beginning of a value, for an error message.
fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(40)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(kind: &str, value: &str) -> Result<String, String> {
        let value = RawValue::from_string(value.to_owned()).unwrap();
        TypedValue::new(kind, value).checked().map(|value| value.get().to_owned())
    }

    #[test]
    fn values_fit_their_types() {
        for (kind, value) in [
            ("int64", "-9223372036854775808"),
            ("uint64", "18446744073709551615"),
            ("int8", "-128"),
            ("uint8", "255"),
            ("float64", "1"),
            ("float32", "1.5e3"),
            ("bool", "true"),
            ("string", r#""<&>""#),
            ("[]string", r#"["a","b"]"#),
            ("[]byte", r#""AAEC""#),
            ("[]int64", "[]"),
        ] {
            assert_eq!(checked(kind, value).as_deref(), Ok(value), "{kind}");
        }
        assert_eq!(checked("[]int64", "null").as_deref(), Ok("[]"));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        assert_eq!(checked("int8", "128").unwrap_err(), "128 is not a value of the type int8");
        assert_eq!(checked("uint64", "-1").unwrap_err(), "-1 is not a value of the type uint64");
        assert_eq!(checked("int64", "1.5").unwrap_err(), "1.5 is not a value of the type int64");
        assert_eq!(checked("string", "null").unwrap_err(), "null is not a value of the type string");
        assert_eq!(
            checked("[]int64", r#"[1,"2"]"#).unwrap_err(),
            "\"2\" in a []int64 is not a value of the type int64"
        );
        assert_eq!(checked("[]int64", "{}").unwrap_err(), "{} is not a value of the type []int64");
        assert_eq!(
            checked("[]byte", r#""AAE""#).unwrap_err(),
            "\"AAE\" is not base64: a value of the type []byte is"
        );
        assert_eq!(checked("map", "{}").unwrap_err(), "the type \"map\" is not supported");
        assert_eq!(checked("[]map", "[]").unwrap_err(), "the type \"[]map\" is not supported");
    }
}

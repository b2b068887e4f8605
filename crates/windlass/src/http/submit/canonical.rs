//! The canonical form of a JSON document: two texts that differ in white space, in the order of members or in how a string
//! is escaped have the same one. Numbers keep their digits.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

/// The canonical form of `text`, which must be JSON. Of members with the same name the last one counts.
pub(in crate::http) fn canonical(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    // A payload was checked when it was read, so this cannot fail; were it to, the text as it is would be its own form.
    match serde_json::from_str(text).and_then(|raw| write(raw, &mut out)) {
        Ok(()) => out,
        Err(_) => text.to_owned(),
    }
}

/// Recursion is as deep as payloads may nest.
fn write(raw: &RawValue, out: &mut String) -> serde_json::Result<()> {
    let text = raw.get();
    match text.as_bytes().first() {
        Some(b'{') => {
            let members: BTreeMap<String, &RawValue> = serde_json::from_str(text)?;
            out.push('{');
            for (place, (name, value)) in members.into_iter().enumerate() {
                if place > 0 {
                    out.push(',');
                }
                out.push_str(&serde_json::to_string(&name)?);
                out.push(':');
                write(value, out)?;
            }
            out.push('}');
        }
        Some(b'[') => {
            let elements: Vec<&RawValue> = serde_json::from_str(text)?;
            out.push('[');
            for (place, element) in elements.into_iter().enumerate() {
                if place > 0 {
                    out.push(',');
                }
                write(element, out)?;
            }
            out.push(']');
        }
        Some(b'"') if !is_canonical_string(text) => {
            let string: String = serde_json::from_str(text)?;
            out.push_str(&serde_json::to_string(&string)?);
        }
        _ => out.push_str(text),
    }
    Ok(())
}

/// Whether a string has no escapes but those that it would be written with.
fn is_canonical_string(text: &str) -> bool {
    let mut rest = text;
    while let Some((_, escape)) = rest.split_once('\\') {
        if !escape.starts_with(['"', '\\', 'b', 'f', 'n', 'r', 't']) {
            return false;
        }
        rest = &escape[1..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_order_and_escapes_make_no_difference() {
        let plain = r#"{"a":[1,{"x":null,"y":"é"}],"b":{}}"#;
        let other = "{ \"b\" : { },\n\t\"a\" : [ 1 , { \"y\":\"\\u00e9\" , \"x\":null } ] }";
        assert_eq!(canonical(plain), plain);
        assert_eq!(canonical(other), plain);
        assert_eq!(canonical(r#"{"a":1,"a":2}"#), r#"{"a":2}"#);
        let escaped = r#"["\"\\u002f\b\f\n\r\t","\u0000"]"#;
        assert_eq!(canonical(escaped), escaped);
        assert_eq!(
            canonical(r#"["\u0022\/\u005cu002f\u0008\u000C\u000a\u000D\u0009","\u0000"]"#),
            r#"["\"/\\u002f\b\f\n\r\t","\u0000"]"#
        );
    }

    #[test]
    fn what_differs_stays_different() {
        let texts = [
            r#"{"a":[1,2]}"#,
            r#"{"a":[2,1]}"#,
            r#"{"a":"1 2"}"#,
            r#"{"a":"12"}"#,
            r#"{"a":1.0}"#,
            r#"{"a":1}"#,
            r#"{"a":12345678901234567890123}"#,
            r#"{"a":12345678901234567890124}"#,
        ];
        let forms: std::collections::BTreeSet<String> = texts.iter().map(|text| canonical(text)).collect();
        assert_eq!(forms.len(), texts.len());
    }
}

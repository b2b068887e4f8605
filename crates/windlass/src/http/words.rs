//! What serde says of a document, in words that are the same for all languages and name no types of ours.

use std::borrow::Cow;

/// The same in plain words, where it is one of the things that serde says.
pub(super) fn plain(said: &str) -> Cow<'_, str> {
    let rest = |prefix| said.strip_prefix(prefix);
    if let Some((found, expected)) = rest("invalid type: ").and_then(|rest| rest.rsplit_once(", expected ")) {
        return format!("it is {}, and must be {}", thing(found), kind(expected)).into();
    }
    if let Some((found, expected)) = rest("invalid value: ").and_then(|rest| rest.rsplit_once(", expected "))
    {
        return format!("it is {}, and must be {}", thing(found), range(expected)).into();
    }
    if let Some(field) = rest("duplicate field ") {
        return format!("{field} is there twice").into();
    }
    if let Some(field) = rest("missing field ") {
        return format!("{field} is missing").into();
    }
    if let Some((field, known)) = rest("unknown field ").and_then(|rest| rest.split_once(", ")) {
        return match possible(known) {
            Some(known) => format!("{field} is not known here: known are {known}").into(),
            None => format!("{field} is not known here: nothing is").into(),
        };
    }
    if let Some((word, known)) = rest("unknown variant ").and_then(|rest| rest.split_once(", ")) {
        return format!("{word} is not possible: possible are {}", possible(known).unwrap_or_default())
            .into();
    }
    said.into()
}

/// What was found.
fn thing(found: &str) -> String {
    let value = found.split_once('`').map(|(_, value)| value.trim_end_matches('`'));
    match (found.split(['`', '"']).next().unwrap_or_default().trim(), value) {
        ("floating point" | "integer", Some(number)) => format!("the number {number}"),
        ("boolean", Some(word)) => word.to_owned(),
        ("string", _) => format!("the text {}", found.trim_start_matches("string").trim_start()),
        ("sequence", _) => "a list".to_owned(),
        ("map", _) => "an object".to_owned(),
        _ => found.to_owned(),
    }
}

/// What must be there.
fn kind(expected: &str) -> &str {
    match expected {
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number from 0 on",
        "f32" | "f64" => "a number",
        "a string" | "a borrowed string" | "string" => "a text",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "an object",
        other if other.starts_with("struct ") => "an object",
        other => other,
    }
}

/// What must be there of a number that is of the right kind.
fn range(expected: &str) -> &str {
    match expected {
        "i8" => "from -128 to 127",
        "u8" => "from 0 to 255",
        "u16" => "from 0 to 65535",
        "u32" => "from 0 to 4294967295",
        other => kind(other),
    }
}

/// The names after `expected`, if there are any.
fn possible(known: &str) -> Option<&str> {
    let known = known.strip_prefix("expected ")?;
    Some(known.strip_prefix("one of ").unwrap_or(known))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Document {
        #[serde(rename = "n")]
        _number: i64,
        #[serde(rename = "small", default)]
        _small: i8,
        #[serde(rename = "list", default)]
        _list: Vec<String>,
        #[serde(rename = "word", default)]
        _word: Option<Word>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Word {
        Up,
        Down,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Nothing {}

    fn said<'a, T: Deserialize<'a> + std::fmt::Debug>(text: &'a str) -> String {
        let error = serde_json::from_str::<T>(text).unwrap_err().to_string();
        let end = error.rfind(" at line").unwrap();
        plain(&error[..end]).into_owned()
    }

    #[test]
    fn what_serde_says_is_said_plainly() {
        let words = [
            r#"{"n": 1.5}"#,
            r#"{"n": "high, expected more"}"#,
            r#"{"n": null}"#,
            r#"{"n": [1]}"#,
            r#"{"n": true}"#,
            r#"{"n": 1, "small": 300}"#,
            r#"{"n": 1, "list": {"a": 1}}"#,
            r#"{"n": 1, "list": [3]}"#,
            r#"{"n": 1, "word": "sideways"}"#,
            r#"{"n": 1, "n": 2}"#,
            r#"{"n": 1, "m": 2}"#,
            "{}",
        ]
        .map(said::<Document>);
        insta::assert_snapshot!(words.join("\n"), @r#"
        it is the number 1.5, and must be a whole number
        it is the text "high, expected more", and must be a whole number
        it is null, and must be a whole number
        it is a list, and must be a whole number
        it is true, and must be a whole number
        it is the number 300, and must be from -128 to 127
        it is an object, and must be a list
        it is the number 3, and must be a text
        `sideways` is not possible: possible are `up` or `down`
        `n` is there twice
        `m` is not known here: known are `n`, `small`, `list`, `word`
        `n` is missing
        "#);
        assert_eq!(said::<Nothing>(r#"{"a": 1}"#), "`a` is not known here: nothing is");
        assert_eq!(plain("EOF while parsing a value"), "EOF while parsing a value");
    }
}

//! Where in a JSON document a byte is, as people say it: `steps[2].retry.max`.

/// What the scanner is inside of.
enum Level {
    /// An object, at the key it read last.
    Object(String),
    /// An array, at this element.
    Array(usize),
}

/// The path of what begins at a byte of a JSON document, or else of the innermost thing around it.
pub(in crate::http) fn path(json: &str, at: usize) -> String {
    let mut levels: Vec<Level> = Vec::new();
    let mut expects_key = false;
    let mut rest = json.char_indices().peekable();
    while let Some((index, c)) = rest.next().filter(|(index, _)| *index <= at) {
        match c {
            '{' if index < at => {
                levels.push(Level::Object(String::new()));
                expects_key = true;
            }
            '[' if index < at => levels.push(Level::Array(0)),
            '}' | ']' => {
                levels.pop();
                expects_key = false;
            }
            ',' => match levels.last_mut() {
                Some(Level::Array(element)) => *element += 1,
                Some(Level::Object(key)) => {
                    key.clear();
                    expects_key = true;
                }
                None => {}
            },
            '"' => {
                let mut text = String::new();
                let mut escaped = false;
                for (_, c) in rest.by_ref() {
                    match c {
                        '"' if !escaped => break,
                        '\\' if !escaped => escaped = true,
                        _ => {
                            text.push(c);
                            escaped = false;
                        }
                    }
                }
                if let (true, Some(Level::Object(key))) = (expects_key, levels.last_mut()) {
                    *key = text;
                    expects_key = false;
                }
            }
            _ => {}
        }
    }
    let mut path = String::new();
    for level in levels {
        match level {
            Level::Array(element) => path.push_str(&format!("[{element}]")),
            Level::Object(key) if key.is_empty() => {}
            Level::Object(key) if path.is_empty() => path = key,
            Level::Object(key) => path.push_str(&format!(".{key}")),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_keys_and_values() {
        let json =
            r#"{"a": 1, "steps": [{"name": "x,{\"", "retry": {"max": 3}}, {"after": ["y"]}], "z": {}}"#;
        let of = |part: &str| path(json, json.find(part).unwrap());
        assert_eq!(of("{"), "");
        assert_eq!(of("1"), "a");
        assert_eq!(of("\"steps\""), "steps");
        assert_eq!(of("[{"), "steps");
        assert_eq!(of("{\"name"), "steps[0]");
        assert_eq!(of("\"name"), "steps[0].name");
        assert_eq!(of("3}"), "steps[0].retry.max");
        assert_eq!(of("{\"after"), "steps[1]");
        assert_eq!(of("\"y\""), "steps[1].after[0]");
        assert_eq!(of("{}"), "z");
        assert_eq!(path(json, json.len() + 7), "");
    }
}

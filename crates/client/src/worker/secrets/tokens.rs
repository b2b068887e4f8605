//! The values in a JSON text, found and replaced without changing the rest of the text.

/// Replaces values of valid JSON: `replace` gets the text of each string and number, but no names of members, and
/// returns the text that takes its place, if any. With `names` it gets the names of members too.
pub(super) fn replace_values(
    json: &str,
    names: bool,
    mut replace: impl FnMut(&str) -> Option<String>,
) -> String {
    let mut replaced = String::with_capacity(json.len());
    let (mut copied, mut at) = (0, 0);
    while let Some((start, end)) = next_token(json, at) {
        at = end;
        let is_name = json[end..].trim_start().starts_with(':');
        if is_name && !names {
            continue;
        }
        if let Some(value) = replace(&json[start..end]) {
            replaced.push_str(&json[copied..start]);
            replaced.push_str(&value);
            copied = end;
        }
    }
    replaced.push_str(&json[copied..]);
    replaced
}

/// The next string or number at or after `at`.
fn next_token(json: &str, at: usize) -> Option<(usize, usize)> {
    let bytes = json.as_bytes();
    let starts = |byte: &u8| *byte == b'"' || *byte == b'-' || byte.is_ascii_digit();
    let start = at + bytes.get(at..)?.iter().position(starts)?;
    if bytes[start] != b'"' {
        let goes_on = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
        let length = bytes[start..].iter().take_while(|byte| goes_on(byte)).count();
        return Some((start, start + length));
    }
    let mut end = start + 1;
    loop {
        match bytes.get(end)? {
            b'\\' => end += 2,
            b'"' => return Some((start, end + 1)),
            _ => end += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_and_numbers_are_replaced_and_the_rest_stays() {
        let json = r#"{"a" : ["x\"y", 1e400,true,null],"-1":{"é":"x\"y"} , "n":-1.5}"#;
        let mut seen = Vec::new();
        let same = replace_values(json, false, |value| {
            seen.push(value.to_owned());
            None
        });
        assert_eq!(same, json);
        assert_eq!(seen, [r#""x\"y""#, "1e400", r#""x\"y""#, "-1.5"]);
        let changed = replace_values(json, true, |value| (value != "1e400").then(|| "0".to_owned()));
        assert_eq!(changed, r#"{0 : [0, 1e400,true,null],0:{0:0} , 0:0}"#);
    }
}

//! Takes a map with known keys apart, and reports unknown ones.

use windlass_api::Span;

use super::{
    error::{Fault, cut, quote},
    tree::{Entry, Node, Value},
};

/// Keys reserved by the format that this version does not support yet.
const LATER: [&str; 1] = ["priority"];

/// The entries of a map that may only have certain keys.
pub(super) struct Fields {
    what: &'static str,
    at: usize,
    entries: Vec<Entry>,
}

impl Fields {
    /// Takes the map. `what` names it in messages: "a step".
    pub(super) fn of(node: Node, what: &'static str, known: &[&str]) -> Result<Self, Fault> {
        let at = node.at;
        let Value::Map(entries) = node.value else {
            return Err(Fault::new(at, format!("{what} is a map of keys, and this is {}", node.kind())));
        };
        for Entry { key, key_at, .. } in &entries {
            if LATER.contains(&key.as_str()) && !known.contains(&key.as_str()) {
                return Err(Fault::new(
                    *key_at,
                    format!("`{key}` is known but not supported by this version yet"),
                ));
            }
            if !known.contains(&key.as_str()) {
                return Err(Fault::new(*key_at, unknown(key, what, known)));
            }
        }
        Ok(Self { what, at, entries })
    }

    /// The value of a key; none if it is missing or empty.
    pub(super) fn take(&mut self, key: &str) -> Option<Node> {
        let index = self.entries.iter().position(|entry| entry.key == key)?;
        let node = self.entries.swap_remove(index).value;
        (!matches!(node.value, Value::Null)).then_some(node)
    }

    /// The value of a required key. `hint` describes what to write.
    pub(super) fn need(&mut self, key: &str, hint: &str) -> Result<Node, Fault> {
        let (at, what) = (self.at, self.what);
        self.take(key).ok_or_else(|| Fault::new(at, format!("{what} needs `{key}`: {hint}")))
    }

    /// A string.
    pub(super) fn text(&mut self, key: &str) -> Result<Option<String>, Fault> {
        self.take(key).map(|node| text(node, key)).transpose()
    }

    /// A required string.
    pub(super) fn need_text(&mut self, key: &str, hint: &str) -> Result<String, Fault> {
        text(self.need(key, hint)?, key)
    }

    /// A duration.
    pub(super) fn span(&mut self, key: &str) -> Result<Option<Span>, Fault> {
        self.take(key).map(|node| span(&node, key)).transpose()
    }

    /// A number, such as that of retries.
    pub(super) fn count(&mut self, key: &str) -> Result<Option<u32>, Fault> {
        self.take(key).map(|node| count(&node, key)).transpose()
    }

    /// One of several words.
    pub(super) fn choice<T: Copy>(&mut self, key: &str, choices: &[(&str, T)]) -> Result<Option<T>, Fault> {
        let Some(node) = self.take(key) else {
            return Ok(None);
        };
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let at = node.at;
        let word = text(node, key)?;
        match choices.iter().find(|(name, _)| *name == word) {
            Some((_, choice)) => Ok(Some(*choice)),
            None => Err(Fault::new(
                at,
                format!("`{key}` is {}, and must be {}", quote(&word), list(&names, "or")),
            )),
        }
    }
}

/// A string.
pub(super) fn text(node: Node, key: &str) -> Result<String, Fault> {
    let at = node.at;
    match node.value {
        Value::Text(text) => Ok(text),
        Value::Bool(value) => Err(in_quotes(at, key, &value)),
        Value::Number(value) => Err(in_quotes(at, key, &value)),
        _ => Err(node.unexpected(key, "a string")),
    }
}

fn in_quotes(at: usize, key: &str, value: &dyn std::fmt::Display) -> Fault {
    Fault::new(at, format!("`{key}` must be a string: put it in quotes, as in \"{value}\""))
}

/// A duration: a text such as `5m`, or a number of seconds.
pub(super) fn span(node: &Node, key: &str) -> Result<Span, Fault> {
    let read: Result<Span, String> = match &node.value {
        Value::Text(text) => text.parse(),
        Value::Number(number) => {
            serde_json::from_value(number.clone().into()).map_err(|error| error.to_string())
        }
        _ => {
            return Err(
                node.unexpected(key, "a duration such as 30s, 5m, 1h30m or 2d, or a number of seconds")
            );
        }
    };
    read.map_err(|message| Fault::new(node.at, format!("`{key}`: {}", cut(&message))))
}

/// A number, such as that of retries.
pub(super) fn count(node: &Node, key: &str) -> Result<u32, Fault> {
    let Value::Number(number) = &node.value else {
        return Err(node.unexpected(key, "a whole number, such as 3"));
    };
    number.as_u64().and_then(|count| u32::try_from(count).ok()).ok_or_else(|| {
        let reason = if number.as_i64().is_some_and(|count| count < 0) {
            "is negative: write 0 or more"
        } else if number.is_f64() {
            "is not a whole number"
        } else {
            "is too large"
        };
        Fault::new(node.at, format!("`{key}`: {number} {reason}"))
    })
}

/// The message for an unknown key.
pub(crate) fn unknown(key: &str, what: &str, known: &[&str]) -> String {
    let known_text = list(&known.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>(), "and");
    match nearest(key, known.iter().copied()) {
        Some(near) => {
            format!("unknown key {} in {what}: did you mean `{near}`? Known are {known_text}", quote(key))
        }
        None => format!("unknown key {} in {what}; known are {known_text}", quote(key)),
    }
}

/// The known name that was probably meant.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    /// Longer names are not typing mistakes, and comparing them would take too long.
    const BYTES_MAX: usize = 128;
    /// A value between the likeness of `retries` to `retry`, which should match, and that of `name` to
    /// `command`, which should not.
    const LIKENESS_MIN: f64 = 0.8;

    if name.len() > BYTES_MAX {
        return None;
    }
    let name = name.to_lowercase();
    known
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(&name, &candidate.to_lowercase()), candidate))
        .filter(|(likeness, _)| *likeness >= LIKENESS_MIN)
        // Of equally similar names the first in the alphabet, so that the message is deterministic.
        .max_by(|(one, a), (other, b)| one.total_cmp(other).then_with(|| b.cmp(a)))
        .map(|(_, candidate)| candidate)
}

/// `a`, `a and b`, `a, b and c`.
fn list<T: AsRef<str>>(names: &[T], last: &str) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    match names.split_last() {
        None => String::new(),
        Some((only, [])) => (*only).to_owned(),
        Some((end, rest)) => format!("{} {last} {end}", rest.join(", ")),
    }
}

//! Hiding of the values of secrets in what a worker reports.

use serde_json::value::RawValue;
use windlass_api::Payload;

use super::tokens::replace_values;
use crate::worker::Outcome;

/// A line of a secret of several lines is hidden by itself if it has at least this number of bytes: certificates and
/// keys are logged by line, but their last line may be as short as an ordinary word.
const LINE_BYTES_MIN: usize = 8;

/// A text of at least this length may have been cut: commands' log lines are, after 4 KiB and between characters.
const CUT_BYTES_MIN: usize = 4 * 1024 - 4;

/// The values to hide, and the references that take their place.
#[derive(Default)]
pub(in crate::worker) struct Hidden {
    values: Vec<(String, String)>,
}

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hidden").field("values", &self.values.len()).finish()
    }
}

impl Hidden {
    /// Hides `value` from now on, as it is and as it is written in JSON.
    pub(super) fn add(&mut self, value: &str, reference: &str) {
        let lines = value.lines().map(str::trim).filter(|line| line.len() >= LINE_BYTES_MIN);
        for text in std::iter::once(value).chain(lines) {
            let quoted = serde_json::to_string(text).unwrap_or_default();
            let in_json = quoted.trim_start_matches('"').strip_suffix('"').unwrap_or_default();
            for form in [text, in_json] {
                if !form.is_empty() && !self.values.iter().any(|(value, _)| value == form) {
                    self.values.push((form.to_owned(), reference.to_owned()));
                }
            }
        }
    }

    /// Hides what `other` hides, too.
    pub(in crate::worker) fn extend(&mut self, other: &Self) {
        for (value, reference) in &other.values {
            self.add(value, reference);
        }
    }

    /// The text with references in place of the values.
    pub(in crate::worker) fn in_text(&self, text: String) -> String {
        let mut hidden = String::new();
        let mut rest = text.as_str();
        while let Some((at, value, reference)) = self.first_in(rest) {
            hidden.push_str(&rest[..at]);
            hidden.push_str(reference);
            rest = &rest[at + value.len()..];
        }
        let cut = if text.len() < CUT_BYTES_MIN { None } else { self.cut_at_end_of(rest) };
        if hidden.is_empty() && rest.len() == text.len() && cut.is_none() {
            return text;
        }
        let (end, reference) = cut.unwrap_or((rest.len(), ""));
        hidden + &rest[..end] + reference
    }

    /// The beginning of a value at the end of a text that was cut there: its place, and the reference.
    fn cut_at_end_of(&self, text: &str) -> Option<(usize, &str)> {
        let begun = self.values.iter().filter_map(|(value, reference)| {
            let lengths = LINE_BYTES_MIN..value.len();
            let length =
                lengths.rev().find(|length| text.as_bytes().ends_with(&value.as_bytes()[..*length]))?;
            Some((text.len() - length, reference.as_str()))
        });
        begun.min_by_key(|(at, _)| *at)
    }

    /// The first value in a text: its place, the value and its reference. Of two at the same place, the longer one.
    fn first_in(&self, text: &str) -> Option<(usize, &str, &str)> {
        let found = self.values.iter().filter_map(|(value, reference)| {
            text.find(value.as_str()).map(|at| (at, value.as_str(), reference.as_str()))
        });
        found.min_by_key(|(at, value, _)| (*at, std::cmp::Reverse(value.len())))
    }

    /// The outcome with references in place of the values.
    pub(super) fn in_outcome(&self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Succeeded(result) => Outcome::Succeeded(result.map(|result| self.in_payload(result))),
            Outcome::Failed(mut failure) => {
                failure.message = self.in_text(failure.message);
                Outcome::Failed(failure)
            }
            Outcome::RetryLater { delay, message } => {
                Outcome::RetryLater { delay, message: message.map(|message| self.in_text(message)) }
            }
            Outcome::Declined => Outcome::Declined,
        }
    }

    fn in_payload(&self, payload: Payload) -> Payload {
        let hidden = replace_values(payload.get(), true, |value| {
            let hidden = match serde_json::from_str::<String>(value) {
                Ok(text) => Some(self.in_text(text.clone())).filter(|hidden| *hidden != text),
                // A number becomes a text.
                Err(_) => self.values.iter().find(|(known, _)| known == value).map(|(_, name)| name.clone()),
            };
            hidden.and_then(|hidden| serde_json::to_string(&hidden).ok())
        });
        // It was valid, and only whole values were replaced.
        RawValue::from_string(hidden).unwrap_or(payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Failure;

    fn hidden() -> Hidden {
        let mut hidden = Hidden::default();
        hidden.add("hunter2", "secret://db");
        hidden.add("hunter2-and-more", "secret://long");
        hidden.add("say \"yes\"", "secret://quoted");
        hidden.add("-----BEGIN KEY-----\nMIIEvQIBADAN\nx=\n-----END KEY-----\n", "secret://key");
        hidden.add("20451", "secret://pin");
        hidden.add("secr", "secret://short");
        hidden
    }

    #[test]
    fn no_form_of_a_value_is_left() {
        for (text, expected) in [
            ("psql -p hunter2", "psql -p secret://db"),
            ("hunter2-and-more hunter2", "secret://long secret://db"),
            (r#"{"a":"say \"yes\""}"#, r#"{"a":"secret://quoted"}"#),
            ("say \"yes\"", "secret://quoted"),
            ("  MIIEvQIBADAN", "  secret://key"),
            ("x=", "x="),
            ("nothing", "nothing"),
            ("secr hunter2-and-more", "secret://short secret://long"),
        ] {
            assert_eq!(hidden().in_text(text.to_owned()), expected);
        }
        assert!(!format!("{:?}", hidden()).contains("hunter2"));
    }

    #[test]
    fn a_value_that_was_cut_with_its_line_is_hidden() {
        let long = "0123456789".repeat(1000);
        let mut hidden = hidden();
        hidden.add(&long, "secret://long-line");
        assert_eq!(hidden.in_text(long[..4096].to_owned()), "secret://long-line");
        let line = "x".repeat(4085) + &long[..11];
        assert_eq!(hidden.in_text(line), "x".repeat(4085) + "secret://long-line");
        assert_eq!(hidden.in_text("01234567".to_owned()), "01234567", "a short line is whole");
    }

    #[test]
    fn results_stay_json() {
        let result = r#"{"a":"x hunter2","hunter2":[20451,204510,"say \"yes\""],"n":1e400}"#;
        let outcome = Outcome::Succeeded(Some(RawValue::from_string(result.to_owned()).unwrap()));
        let Outcome::Succeeded(Some(result)) = hidden().in_outcome(outcome) else { panic!("no result") };
        assert_eq!(
            result.get(),
            r#"{"a":"x secret://db","secret://db":["secret://pin",204510,"secret://quoted"],"n":1e400}"#
        );
        let outcome = hidden().in_outcome(Outcome::Failed(Failure::new("bad: hunter2")));
        assert!(matches!(outcome, Outcome::Failed(failure) if failure.message == "bad: secret://db"));
    }
}

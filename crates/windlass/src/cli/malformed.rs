//! What holds of every argument of the command line: see [`crate::malformed`].

use jiff::Timestamp;
use windlass_api::Span;

use super::params::{parse_label, parse_param, parse_payload};
use crate::cli::output::time::{parse_past_at, parse_start_at};
use crate::malformed::check_message;

/// Any time; what is relative is counted from it.
const NOW: Timestamp = Timestamp::constant(1_900_000_000, 0);

/// Takes the bytes as a parameter, a label, a document, a duration and a time.
pub fn command_line(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match parse_param(text) {
        Ok(param) => {
            let given = text.strip_prefix(&param.0).and_then(|rest| rest.strip_prefix('='));
            let kept = param.1.get();
            let string = serde_json::from_str::<String>(kept).ok();
            assert!(
                given.is_some_and(|given| given.trim() == kept || string.as_deref() == Some(given)),
                "{text:?}"
            );
        }
        Err(message) => check_message(&message),
    }
    match parse_label(text) {
        Ok((name, value)) => assert_eq!(format!("{name}={value}"), text),
        Err(message) => check_message(&message),
    }
    match parse_payload(text) {
        Ok(payload) => assert_eq!(
            parse_payload(payload.get()).map(|again| again.get().to_owned()).as_deref(),
            Ok(payload.get())
        ),
        Err(message) => check_message(&message),
    }
    match text.parse::<Span>() {
        Ok(span) => assert_eq!(span.to_string().parse(), Ok(span), "{text:?}"),
        Err(message) => assert!(!message.is_empty()),
    }
    for time in [parse_start_at(text, NOW), parse_past_at(text, NOW)] {
        match time {
            Ok(time) => assert_eq!(parse_start_at(&time.to_string(), NOW), Ok(time)),
            Err(message) => check_message(&message),
        }
    }
}

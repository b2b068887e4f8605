//! What must hold of every parser of this crate, whatever it is given: for property tests (`tests/it/malformed.rs`)
//! and for fuzzing (`fuzz/`). Each function takes any bytes, and panics when its parser breaks a promise:
//!
//! - it never panics;
//! - what it refuses, it refuses with a message of bounded length, and a place in the text where it has one;
//! - what it accepts is the same when it is written down and read again.
//!
//! The functions live beside their parsers, which are private.

pub use crate::{
    cli::malformed::command_line,
    flowfile::malformed::flow_file,
    http::malformed::{exchange, query},
    modules::malformed::module_output,
};

/// The longest message, in bytes: room for a piece of the input and for what to write instead.
pub(crate) const MESSAGE_BYTES_MAX: usize = 4_000;

/// Checks the message of a refusal.
pub(crate) fn check_message(message: &str) {
    assert!(!message.is_empty(), "refused without a reason");
    assert!(message.len() <= MESSAGE_BYTES_MAX, "a message of {} bytes: {message:.200}", message.len());
}

//! Properties of every parser of this crate for any input, for property tests (`tests/it/malformed.rs`) and
//! fuzzing (`fuzz/`). Each function takes arbitrary bytes, and panics when its parser breaks a promise:
//!
//! - A parser never panics.
//! - A refusal has a message of bounded length, and a place in the text where there is one.
//! - An accepted value is the same after it is written and read again.
//!
//! The functions are next to their parsers, which are private.

pub use crate::{
    cli::malformed::command_line,
    flowfile::malformed::{device_file, flow_file},
    http::malformed::{exchange, query},
    modules::malformed::module_output,
};

#[cfg(feature = "redis")]
pub use crate::brokers::signature;

#[cfg(feature = "consul")]
pub use crate::task_list::task_list_entry;

/// The longest message, in bytes: enough for a piece of the input and for the fix.
pub(crate) const MESSAGE_BYTES_MAX: usize = 4_000;

/// Checks the message of a refusal.
pub(crate) fn check_message(message: &str) {
    assert!(!message.is_empty(), "refused without a reason");
    assert!(message.len() <= MESSAGE_BYTES_MAX, "a message of {} bytes: {message:.200}", message.len());
}

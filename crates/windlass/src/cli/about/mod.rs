//! Commands that print what the program knows about itself, and the test that its reference page does too.

pub(super) mod completions;
pub(super) mod man;
pub(super) mod openapi;
#[cfg(test)]
mod reference;

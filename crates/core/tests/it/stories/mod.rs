//! One file of stories per rule.

mod forward;
mod retry;

//! The Rust client and worker library of Windlass.

#![forbid(unsafe_code)]

mod client;
mod error;
mod pacing;

pub use client::{Client, EventStream, TaskFilter};
pub use error::Error;
pub use windlass_api as api;

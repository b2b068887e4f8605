//! Secrets: a worker replaces references in parameters, `secret://NAME`, by their values, and hides these values in
//! all that it reports.

mod handler;
mod hiding;
mod sources;
mod tokens;

pub(super) use handler::WithSecrets;
pub(super) use hiding::Hidden;
pub use sources::Secrets;

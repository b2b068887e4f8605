//! Reads flow files: from the text to the [`Flow`](windlass_core::Flow) that the engine runs.
//!
//! ```text
//!            yaml.rs ─┐
//! text ───▶  toml.rs ─┼─▶ tree ──▶ document.rs ─┬─▶ Source ──▶ compile ──▶ Flow ──▶ difference.rs
//!            json.rs ─┘       └──▶ classic.rs ──┘   (document + places)     │
//!                                                    document ◀── write.rs ─┘
//! ```
//!
//! All three formats become one tree, and each node knows its place in the text. So each message can name
//! line and column, in every format, even if the mistake is found late: a step that is `after` an unknown one
//! is valid YAML and a valid document, and still has a line.
//!
//! Nothing here panics, for any text: it may come from an unknown client, by HTTP.

mod classic;
mod compile;
mod device;
mod difference;
mod document;
mod error;
mod fields;
mod format;
mod json;
pub(crate) mod malformed;
mod place;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod refusals_of_graphs;
mod rollout;
mod schema;
mod source;
#[cfg(test)]
mod tests;
mod toml;
mod tree;
mod trigger;
mod warnings;
mod write;
mod yaml;

pub use compile::{compile, compile_document};
pub(crate) use device::STATUS_DEFAULT;
pub use device::{device, presence_document, read_devices};
pub use difference::{Difference, differences};
pub use error::FlowError;
pub(crate) use fields::{nearest, unknown as unknown_key};
pub use format::{Format, flow_files};
pub use rollout::read_rollouts;
pub use schema::schema;
pub use source::{FILE_BYTES_MAX, Source, read};
pub use trigger::read_triggers;
pub use warnings::warnings;
pub use write::document;

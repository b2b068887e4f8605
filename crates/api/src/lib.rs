//! The contract of the HTTP API: the documents under `/v1`, and nothing else.
//!
//! Every SDK is written against these types, and `openapi.json` is made from them. They contain no rules: the
//! server translates between these documents and the engine. Times are RFC 3339 in UTC. Durations in fields
//! ending in `_ms` are milliseconds. Payloads are JSON objects, passed on unchanged.

mod access;
mod alarm;
mod audit;
mod device;
mod flow;
mod job;
mod leader;
mod limit;
mod list;
mod lock;
mod message;
mod problem;
mod queue;
mod rollout;
mod server;
mod span;
mod task;
mod trigger;
mod worker;

pub use access::*;
pub use alarm::*;
pub use audit::*;
pub use device::*;
pub use flow::*;
pub use job::*;
pub use leader::*;
pub use limit::*;
pub use list::*;
pub use lock::*;
pub use message::*;
pub use problem::*;
pub use queue::*;
pub use rollout::*;
pub use server::*;
pub use span::*;
pub use task::*;
pub use trigger::*;
pub use worker::*;

/// A JSON object, kept as its original text so that keys keep their order and numbers their digits.
pub type Payload = Box<serde_json::value::RawValue>;

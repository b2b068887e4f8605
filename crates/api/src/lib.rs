//! The contract of the HTTP API: the documents under `/v1`, and nothing else.
//!
//! Every SDK is written against these types, and `openapi.json` is made from them. They contain no rules: the
//! server translates between these documents and the engine. Times are RFC 3339 in UTC. Durations in fields
//! ending in `_ms` are milliseconds. Payloads are JSON objects, passed on unchanged.

mod access;
mod alarm;
mod audit;
mod batch;
mod bulk;
mod device;
mod event;
mod flow;
mod job;
mod leader;
mod limit;
mod list;
mod lock;
mod member;
mod message;
mod pause;
mod problem;
mod queue;
mod rerun;
mod rollout;
mod server;
mod signal;
mod span;
mod status;
mod task;
mod task_list;
mod trigger;
mod why;
mod worker;

pub use access::*;
pub use alarm::*;
pub use audit::*;
pub use batch::*;
pub use bulk::*;
pub use device::*;
pub use event::*;
pub use flow::*;
pub use job::*;
pub use leader::*;
pub use limit::*;
pub use list::*;
pub use lock::*;
pub use member::*;
pub use message::*;
pub use pause::*;
pub use problem::*;
pub use queue::*;
pub use rerun::*;
pub use rollout::*;
pub use server::*;
pub use signal::*;
pub use span::*;
pub use status::*;
pub use task::*;
pub use task_list::*;
pub use trigger::*;
pub use why::*;
pub use worker::*;

/// A JSON object, kept as its original text so that keys keep their order and numbers their digits.
pub type Payload = Box<serde_json::value::RawValue>;

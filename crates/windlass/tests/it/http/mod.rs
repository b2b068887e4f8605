//! The HTTP interface: a real engine over the memory store behind the real router, and real connections where
//! those matter. Time is a clock that tests turn, so documents are the same in every run.

mod access;
mod adhoc;
mod bulk;
mod connections;
mod documents;
mod events;
mod exchange;
mod limits;
mod listing;
mod locks;
mod logs;
mod members;
mod metrics;
mod openapi;
mod refusals;
mod rerun;
mod resolve;
mod server;
mod servers;
mod signals;
mod submit;
mod why;

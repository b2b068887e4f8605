//! The client and the worker library against a small server on loopback that speaks the exchange protocol.

#![forbid(unsafe_code)]

mod client;
mod exchange_server;
#[cfg(feature = "coordinators")]
mod leader;
mod pages;
#[cfg(feature = "brokers")]
mod queues;
mod support;
mod worker_access;
mod worker_drain;
#[cfg(feature = "coordinators")]
mod worker_exclusive;
mod worker_loss;
mod worker_runs;

//! The Rust client of Windlass, a durable engine for multi-step asynchronous tasks: start tasks and look after
//! them with [`Client`], do their work with [`Worker`].
//!
//! # Starting a task
//!
//! ```no_run
//! use windlass_client::{Client, api::SubmitTask};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::new("127.0.0.1:7700")?;
//! let submit: SubmitTask = serde_json::from_value(serde_json::json!({
//!     "flow": "create_instance",
//!     "params": { "instance": "db-7", "memory_mb": 2048 },
//!     "key": "order-4711",
//! }))?;
//! let task = client.submit(&submit).await?; // it is on disk now
//! let task = client.wait(&task.id).await?;
//! println!("{} {}", task.id, task.status.as_str());
//! # Ok(())
//! # }
//! ```
//!
//! A task may bring its steps along instead: see [`workflow`].
//!
//! # Doing the work
//!
//! ```no_run
//! use serde::{Deserialize, Serialize};
//! use windlass_client::{Client, Failure, Job, Worker};
//!
//! #[derive(Deserialize)]
//! struct InitInstance {
//!     instance: String,
//!     memory_mb: u64,
//! }
//!
//! #[derive(Serialize)]
//! struct Instance {
//!     address: String,
//! }
//!
//! async fn init_instance(params: InitInstance, job: Job) -> Result<Instance, Failure> {
//!     if params.memory_mb > 65_536 {
//!         return Err(Failure::permanent("no machine has that much memory"));
//!     }
//!     job.log(format!("making {}", params.instance));
//!     tokio::fs::create_dir_all(&params.instance).await?; // an error is a failure that may be retried
//!     Ok(Instance { address: format!("{}.db.internal:3306", params.instance) })
//! }
//!
//! async fn clean_instance(params: InitInstance, _job: Job) -> Result<(), Failure> {
//!     // An undo may run after a step that did nothing, and more than once.
//!     match tokio::fs::remove_dir_all(&params.instance).await {
//!         Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
//!         other => Ok(other?),
//!     }
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), windlass_client::Error> {
//!     Worker::builder(Client::new("127.0.0.1:7700")?)
//!         .command("mysql.init_instance", init_instance)
//!         .command("mysql.clean_instance", clean_instance)
//!         .concurrency(16)
//!         .build()?
//!         .run_until_signal()
//!         .await
//! }
//! ```
//!
//! # Over a broker
//!
//! With the feature `brokers` a worker takes its steps from queues of a message broker, one for each module. It may have a
//! server as well, which it asks before it runs anything and tells what became of it: `WorkerBuilder::over`. Or it knows the
//! broker alone, and tells on a queue: `Worker::one_way`.
//!
//! # What a worker can rely on
//!
//! - An attempt is run once by a worker, and again by another when the first one went silent. Effects outside are
//!   thus made at least once; give [`Attempt::idempotency_key`](api::Attempt::idempotency_key), which is the same
//!   for all attempts, to what has effects.
//! - A server that restarts is waited for. Attempts go on meanwhile, and reports are kept and sent again until the
//!   server has answered them.
//! - An attempt whose time is over, that was cancelled, or that may have been given to another worker is told so by
//!   [`Job::cancelled`], and dropped if it does not end.

#![forbid(unsafe_code)]

mod client;
mod error;
mod pacing;
mod worker;
pub mod workflow;

pub use client::{Client, EventStream, LogStream, TaskFilter};
pub use error::Error;
pub use windlass_api as api;
#[cfg(feature = "brokers")]
pub use windlass_brokers as brokers;
pub use worker::{Failure, Handler, Job, Outcome, Worker, WorkerBuilder};

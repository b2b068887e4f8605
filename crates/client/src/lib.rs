//! The Rust client of Windlass, a durable engine for multi-step asynchronous tasks. [`Client`] starts and
//! controls tasks; [`Worker`] runs their steps.
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
//! let task = client.submit(&submit).await?; // it is durable now
//! let task = client.wait(&task.id).await?;
//! println!("{} {}", task.id, task.status.as_str());
//! # Ok(())
//! # }
//! ```
//!
//! A task can also contain its own steps: see [`workflow`].
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
//!     // A rollback may run after a step that did nothing, and more than once.
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
//! With the feature `brokers` a worker receives its steps from queues of a message broker, one for each
//! module. With a server as well, the worker asks the server before it runs a step, and sends its results
//! there: `WorkerBuilder::over`. Without a server it sends its results to a queue: `Worker::one_way`.
//!
//! # One at a time
//!
//! With the feature `coordinators` a program can be elected the only leader of a name: `Leader`. A Windlass
//! server elects it, or with the feature of that name Consul, etcd or ZooKeeper. A worker with `WorkerBuilder::exclusive` works only while it leads.
//!
//! # What a worker can rely on
//!
//! - A worker runs an attempt once. If it goes silent, another worker runs the attempt again. So external
//!   effects happen at least once: pass [`Attempt::idempotency_key`](api::Attempt::idempotency_key), which is
//!   the same for all attempts, to the systems that have effects.
//! - A worker survives a restart of the server: attempts continue, and the worker sends its reports again
//!   until the server has answered them.
//! - [`Job::cancelled`] resolves when an attempt must stop: its time is over, it was cancelled, or another
//!   worker may have claimed it. If it does not end, it is dropped.

#![forbid(unsafe_code)]

mod client;
mod error;
mod leader;
mod pacing;
mod worker;
pub mod workflow;

pub use client::{Client, EventStream, LogStream, TaskFilter};
pub use error::Error;
#[cfg(feature = "coordinators")]
pub use leader::Leader;
pub use leader::Term;
pub use pacing::Pacing;
pub use windlass_api as api;
#[cfg(feature = "brokers")]
pub use windlass_brokers as brokers;
#[cfg(feature = "coordinators")]
pub use windlass_coordinators as coordinators;
pub use worker::{Failure, Handler, Job, Outcome, Secrets, Worker, WorkerBuilder};

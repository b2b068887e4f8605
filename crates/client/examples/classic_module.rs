//! A module on a queue of Redis, without a server: what `examples/classic-modules` shows in Python and Go.
//!
//! `cargo run -p windlass-client --features brokers --example classic_module -- redis://127.0.0.1:6379`

#![forbid(unsafe_code)]

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use windlass_brokers::{Queue, Redis};
use windlass_client::{Failure, Job, Worker};

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Instance {
    memory: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Made {
    folder: String,
}

async fn init_instance(instance: Instance, job: Job) -> Result<Made, Failure> {
    let folder = format!("instances/{}", job.attempt.task);
    tokio::fs::create_dir_all(&folder).await?;
    let settings = format!("[mysqld]\ninnodb_buffer_pool_size = {}M\n", instance.memory);
    tokio::fs::write(format!("{folder}/my.cnf"), settings).await?;
    Ok(Made { folder })
}

async fn clean_instance(_instance: Instance, job: Job) -> Result<(), Failure> {
    // An undo may run after a step that did nothing, and more than once.
    match tokio::fs::remove_dir_all(format!("instances/{}", job.attempt.task)).await {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => Ok(other?),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).ok_or("give the URL of Redis")?;
    Worker::one_way(Arc::new(Redis::open(&url)?), Queue::new("windlass-results"))
        .command("mysql.init_instance", init_instance)
        .command("mysql.clean_instance", clean_instance)
        .build()?
        .run_until_signal()
        .await?;
    Ok(())
}

//! The module `mysql` on a queue of any broker, without a server: what `examples/classic-modules` shows in Go.
//!
//! `cargo run -p windlass-client --features brokers,windlass-brokers/kafka --example classic_module -- kafka://127.0.0.1:9092`
//!
//! Behind the URL there may be where to answer, and what kind of queues these are: `redis://127.0.0.1 mysql-results list`.

#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};
use windlass_brokers::{Queue, connect};
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
    // A rollback may run after a step that did nothing, and more than once.
    match tokio::fs::remove_dir_all(format!("instances/{}", job.attempt.task)).await {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => Ok(other?),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().ok_or("give the URL of a broker")?;
    let results = arguments.next().unwrap_or_else(|| "windlass-results".to_owned());
    let kind = arguments.next();
    let queue = |name| Queue { name, kind: kind.clone() };
    Worker::one_way(connect(&url)?, queue(results))
        .queue("mysql", queue("mysql".to_owned()))
        .command("mysql.init_instance", init_instance)
        .command("mysql.clean_instance", clean_instance)
        .build()?
        .run_until_signal()
        .await?;
    Ok(())
}

//! `windlass task start`.

use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use windlass_api::{Existing, Span, SubmitTask, Task};
use windlass_client::{Client, Error};

use super::{
    hints::{self, About},
    show,
};
use crate::cli::{
    connection::Context,
    exit::Exit,
    output::{self, Format, time::parse_start},
    params::{ParamArgs, parse_label},
};

/// The delay before the next call to a server that stopped answering after it accepted the task.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// The task to start.
#[derive(Debug, Args)]
pub(crate) struct StartArgs {
    /// The flow to run: NAME for its newest version, or NAME@VERSION
    #[arg(value_name = "FLOW")]
    flow: String,

    #[command(flatten)]
    params: ParamArgs,

    /// Idempotency key: the same task with the same key starts only once
    #[arg(long, value_name = "KEY")]
    key: Option<String>,

    /// Start no earlier than: RFC 3339, or +15m from now
    #[arg(long, value_name = "TIME", value_parser = parse_start, allow_hyphen_values = true)]
    at: Option<Timestamp>,

    /// Start rolling back if the task has not ended this long after its start
    #[arg(long, value_name = "SPAN")]
    deadline: Option<Span>,

    /// From -10 to 10: higher values run first
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(i8).range(-10..=10))]
    priority: Option<i8>,

    /// A label to find the task by
    #[arg(long = "label", value_name = "K=V", value_parser = parse_label)]
    labels: Vec<(String, String)>,

    /// Wait until the task has ended or is stuck; the exit code reports the result
    #[arg(long)]
    wait: bool,
}

impl StartArgs {
    /// Runs the command.
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let submit = SubmitTask {
            flow: self.flow,
            params: self.params.object()?,
            key: self.key,
            at: self.at,
            deadline: self.deadline,
            priority: self.priority,
            labels: self.labels.into_iter().collect(),
            // So the task belongs to the trace of the step, or of the pipeline, that runs this command.
            traceparent: std::env::var("TRACEPARENT").ok(),
            ..SubmitTask::default()
        };
        let task = context.client.submit(&submit).await?;
        hint_existing(&task);
        if !self.wait {
            // Only the id, so that `id=$(windlass task start …)` works.
            context.output.show(&task, |task, _| format!("{}\n", task.id))?;
            return Ok(Exit::Done);
        }
        if context.output.format == Format::Table {
            output::write(&format!("{}\n", task.id))?;
        }
        let waiting = wait(&context.client, &task.id);
        let task = hints::while_waiting(&context.client, &task.id, About::ServerAndTask, waiting).await?;
        context.output.show(&task, |task, style| show::outcome(task, Timestamp::now(), style))?;
        Ok(Exit::of_task(&task))
    }
}

/// Reports on standard error that the server started no task and returned an existing one.
pub(super) fn hint_existing(task: &Task) {
    let same = match task.existing {
        None => return,
        Some(Existing::IdempotencyKey) => "was started before under the same idempotency key",
        Some(Existing::Unique) => "exists and has the same unique key",
    };
    eprintln!("hint: no task was started: {} {same}", task.id);
}

/// Waits for an accepted task: the server has just answered, so it will be available again.
async fn wait(client: &Client, id: &str) -> Result<Task, Error> {
    loop {
        match client.wait(id).await {
            Err(error) if error.is_temporary() => tokio::time::sleep(ASK_AGAIN).await,
            answer => return answer,
        }
    }
}

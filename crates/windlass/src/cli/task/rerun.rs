//! `windlass task rerun`: a task that has ended is run again, from one of its steps on.

use clap::Args;
use windlass_api::RerunTask;

use crate::cli::{connection::Context, exit::Exit, params::ParamArgs};

/// Which task, and how.
#[derive(Debug, Args)]
pub(crate) struct RerunArgs {
    /// Id of the task that has ended
    #[arg(value_name = "ID")]
    id: String,

    /// The step to begin at; the first that failed, or else was not done, when left out
    #[arg(long, value_name = "STEP")]
    from: Option<String>,

    #[command(flatten)]
    params: ParamArgs,

    /// Idempotency key: the same key runs the task again only once
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
}

impl RerunArgs {
    /// Runs the command.
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let rerun = RerunTask { from: self.from, params: self.params.object()?, key: self.key };
        let task = context.client.rerun(&self.id, &rerun).await?;
        // The id alone, as `task start` prints it.
        context.output.show(&task, |task, _| format!("{}\n", task.id))?;
        Ok(Exit::Done)
    }
}

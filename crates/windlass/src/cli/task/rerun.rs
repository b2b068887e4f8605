//! `windlass task rerun`: runs ended tasks again, from one of their steps.

use clap::Args;
use windlass_api::{RerunTask, Task};

use super::{
    change::{each, show_all},
    start::hint_existing,
};
use crate::cli::{connection::Context, exit::Exit, params::ParamArgs};

/// The tasks and the settings.
#[derive(Debug, Args)]
pub(crate) struct RerunArgs {
    /// Ids of tasks that have ended
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,

    /// The step to start at [default: the first that failed, or else was not done]
    #[arg(long, value_name = "STEP")]
    from: Option<String>,

    #[command(flatten)]
    params: ParamArgs,

    /// Start even if a task with the same unique key exists; the history records it
    #[arg(long)]
    override_unique: bool,

    /// Idempotency key: with the same key a task runs again only once
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
}

impl RerunArgs {
    /// Runs the command.
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let rerun = RerunTask {
            from: self.from,
            params: self.params.object()?,
            override_unique: self.override_unique,
            key: self.key,
        };
        let (tasks, refused) = each(&self.ids, async |id| context.client.rerun(id, &rerun).await).await;
        tasks.iter().for_each(hint_existing);
        // Only the ids, like `task start`.
        let show = |tasks: &[Task], _| tasks.iter().map(|task| format!("{}\n", task.id)).collect();
        show_all(&self.ids, tasks, context, show)?;
        Ok(refused.unwrap_or(Exit::Done))
    }
}

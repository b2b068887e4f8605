//! `windlass task rerun`: tasks that have ended are run again, from one of their steps on.

use clap::Args;
use windlass_api::{RerunTask, Task};

use super::{
    change::{each, show_all},
    start::hint_existing,
};
use crate::cli::{connection::Context, exit::Exit, params::ParamArgs};

/// Which tasks, and how.
#[derive(Debug, Args)]
pub(crate) struct RerunArgs {
    /// Ids of tasks that have ended
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,

    /// The step to begin at; the first that failed, or else was not done, when left out
    #[arg(long, value_name = "STEP")]
    from: Option<String>,

    #[command(flatten)]
    params: ParamArgs,

    /// Start although a task with the same unique key exists; the history records it
    #[arg(long)]
    override_unique: bool,

    /// Idempotency key: the same key runs a task again only once
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
        // The ids alone, as `task start` prints one.
        let show = |tasks: &[Task], _| tasks.iter().map(|task| format!("{}\n", task.id)).collect();
        show_all(&self.ids, tasks, context, show)?;
        Ok(refused.unwrap_or(Exit::Done))
    }
}

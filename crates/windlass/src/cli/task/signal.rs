//! `windlass task signal`: tells a task what one of its steps waits for.

use clap::Args;
use jiff::Timestamp;
use windlass_api::SendSignal;

use super::show;
use crate::cli::{connection::Context, exit::Exit, params::ParamArgs};

/// The signal and what comes with it.
#[derive(Debug, Args)]
pub(crate) struct SignalArgs {
    /// Id of the task
    #[arg(value_name = "ID")]
    id: String,

    /// Name of the signal, as a step of the flow waits for it
    #[arg(value_name = "NAME")]
    name: String,

    #[command(flatten)]
    params: ParamArgs,

    /// Refuse it when no step waits for it now, instead of keeping it
    #[arg(long)]
    now: bool,
}

impl SignalArgs {
    /// Runs the command.
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let signal = SendSignal { params: self.params.object()?, keep: self.now.then_some(false) };
        let task = context.client.signal(&self.id, &self.name, &signal).await?;
        context.output.show(&task, |task, style| show::page(task, Timestamp::now(), style))?;
        Ok(Exit::Done)
    }
}

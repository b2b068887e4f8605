//! `windlass task signal`: sends a signal that a step waits for.

use clap::Args;
use jiff::Timestamp;
use windlass_api::SendSignal;

use super::show;
use crate::cli::{connection::Context, exit::Exit, params::ParamArgs};

/// The signal and its parameters.
#[derive(Debug, Args)]
pub(crate) struct SignalArgs {
    /// Id of the task
    #[arg(value_name = "ID")]
    id: String,

    /// Name of the signal, as in the flow
    #[arg(value_name = "NAME")]
    name: String,

    #[command(flatten)]
    params: ParamArgs,

    /// Fail if no step waits for the signal now, instead of storing it
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

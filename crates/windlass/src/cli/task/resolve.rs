//! `windlass task resolve`: how a person settles a stuck or held step.

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use windlass_api::{ResolveAction, ResolveStep};

use super::show;
use crate::cli::{
    connection::Context,
    exit::{Exit, UsageError},
    params::ParamArgs,
};

/// The step and what to do with it.
#[derive(Debug, Args)]
pub(crate) struct ResolveArgs {
    /// Id of the task
    #[arg(value_name = "ID")]
    id: String,

    /// Name of the step
    #[arg(value_name = "STEP")]
    step: String,

    /// What to do with it
    #[arg(value_enum, value_name = "ACTION")]
    action: Action,

    #[command(flatten)]
    params: ParamArgs,
}

/// The words for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Action {
    /// Try it again, with all its retries; parameters go over those it had
    Retry,
    /// Go on without it
    Skip,
    /// It was done by hand; parameters are what it would have returned
    Done,
    /// Give up and roll the task back
    Rollback,
}

impl ResolveArgs {
    /// Runs the command.
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let params = self.params.object()?;
        if params.is_some() && !matches!(self.action, Action::Retry | Action::Done) {
            return Err(UsageError("parameters go with the actions retry and done only".to_owned()).into());
        }
        let action = match self.action {
            Action::Retry => ResolveAction::Retry,
            Action::Skip => ResolveAction::Skip,
            Action::Done => ResolveAction::Done,
            Action::Rollback => ResolveAction::Rollback,
        };
        let resolve = ResolveStep { action, params };
        let task = context.client.resolve(&self.id, &self.step, &resolve).await?;
        context.output.show(&task, |task, style| show::page(task, Timestamp::now(), style))?;
        Ok(Exit::Done)
    }
}

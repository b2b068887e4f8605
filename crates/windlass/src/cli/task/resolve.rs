//! `windlass task resolve`: how a person settles a stuck or held step.

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use windlass_api::{Payload, ResolveAction, ResolveStep};

use super::show;
use crate::cli::{
    connection::Context,
    exit::{Exit, UsageError},
    params::parse_payload,
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

    /// With done: a JSON object, as the step would have returned it
    #[arg(long, value_name = "JSON", value_parser = parse_payload)]
    params: Option<Payload>,
}

/// The words for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Action {
    /// Try it again, with all its retries
    Retry,
    /// Go on without it
    Skip,
    /// It was done by hand
    Done,
    /// Give up and roll the task back
    Rollback,
}

impl ResolveArgs {
    /// Runs the command.
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        if self.params.is_some() && self.action != Action::Done {
            return Err(UsageError("--params goes with the action done only".to_owned()).into());
        }
        let action = match self.action {
            Action::Retry => ResolveAction::Retry,
            Action::Skip => ResolveAction::Skip,
            Action::Done => ResolveAction::Done,
            Action::Rollback => ResolveAction::Rollback,
        };
        let resolve = ResolveStep { action, params: self.params };
        let task = context.client.resolve(&self.id, &self.step, &resolve).await?;
        context.output.show(&task, |task, style| show::page(task, Timestamp::now(), style))?;
        Ok(Exit::Done)
    }
}

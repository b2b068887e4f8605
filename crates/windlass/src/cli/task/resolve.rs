//! `windlass task resolve`: an operator decides how a stuck or held step continues, in one task or several.

use clap::Args;
use jiff::Timestamp;
use windlass_api::{ResolveAction, ResolveStep};

use super::{
    change::{each, render, show_all},
    show,
};
use crate::cli::{
    connection::Context,
    exit::{Exit, UsageError},
    params::ParamArgs,
};

/// The tasks, the step and the decision.
#[derive(Debug, Args)]
pub(crate) struct ResolveArgs {
    /// Ids of tasks, the name of the step, and the decision: retry (run it again), skip (go on without it), done (you did it by
    /// hand) or rollback (roll the task back)
    #[arg(value_names = ["ID", "STEP", "ACTION"], num_args = 3.., required = true)]
    words: Vec<String>,

    #[command(flatten)]
    params: ParamArgs,
}

impl ResolveArgs {
    /// Runs the command.
    pub(crate) async fn run(mut self, context: &Context) -> anyhow::Result<Exit> {
        let params = self.params.object()?;
        let word = self.words.pop().unwrap_or_default();
        let action = action(&word)?;
        if params.is_some() && !matches!(action, ResolveAction::Retry | ResolveAction::Done) {
            return Err(
                UsageError("parameters are only valid with the actions retry and done".to_owned()).into()
            );
        }
        let step = self.words.pop().unwrap_or_default();
        let resolve = ResolveStep { action, params };
        let ids = &self.words;
        let (tasks, refused) = each(ids, async |id| context.client.resolve(id, &step, &resolve).await).await;
        show_all(ids, tasks, context, |tasks, style| match tasks {
            [task] => show::page(task, Timestamp::now(), style),
            tasks => render(tasks, style),
        })?;
        Ok(refused.unwrap_or(Exit::Done))
    }
}

fn action(word: &str) -> Result<ResolveAction, UsageError> {
    match word {
        "retry" => Ok(ResolveAction::Retry),
        "skip" => Ok(ResolveAction::Skip),
        "done" => Ok(ResolveAction::Done),
        "rollback" => Ok(ResolveAction::Rollback),
        other => Err(UsageError(format!(
            "invalid action {other:?}: write the ids, then the step, then retry, skip, done or rollback"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_action_is_refused_with_the_known_ones() {
        assert!(matches!(action("retry"), Ok(ResolveAction::Retry)));
        let refusal = action("undo").unwrap_err().to_string();
        assert!(
            refusal.contains("invalid action \"undo\"") && refusal.contains("skip, done or rollback"),
            "{refusal}"
        );
    }
}

//! One file per rule: the effect of each command. Rules append events to the draft and read the resulting task.

mod accept;
mod attempts;
mod cancel;
mod child;
mod exclusive;
mod fail;
mod hold;
mod locks;
mod lose;
mod members;
mod pause;
mod proceed;
mod report;
mod resolve;
mod resume;
mod roll_back;
mod secret;
mod signal;
mod stop;
mod suspend;
mod turn_back;
mod wake;

use crate::{ActKey, Command, Rejection, transition::draft::Draft};

pub use fail::{DATA_CODE, DEADLINE_CODE, TIMEOUT_CODE};
pub use locks::wants_lock;
pub use wake::START_CODE;

pub(crate) use fail::DEADLINE_PASSED;

/// Runs the rule of `command`, then lets the task proceed as far as it can.
pub(crate) fn run(draft: &mut Draft<'_>, command: &Command) -> Result<(), Rejection> {
    match command {
        Command::Accept { done, overrides_unique, by } => {
            accept::accept(draft, done, *overrides_unique, by.as_ref())?;
        }
        Command::Report(report) => report::report(draft, report)?,
        Command::Lose(attempt) => lose::lose(draft, attempt)?,
        Command::Reclaim(attempt) => lose::reclaim(draft, attempt)?,
        Command::TimeOut(attempt) => fail::time_out(draft, attempt)?,
        Command::Taken(attempt) => wake::taken(draft, attempt)?,
        Command::Park(attempt) => pause::park_one(draft, attempt)?,
        Command::Wake(wakeup) => wake::wake(draft, *wakeup)?,
        Command::Cancel { by } => cancel::cancel(draft, by.as_ref())?,
        Command::Pause { by } => pause::pause(draft, by.as_ref())?,
        Command::Stop { by } => stop::stop(draft, by.as_ref())?,
        Command::Suspend { by } => suspend::suspend(draft, by.as_ref())?,
        Command::Continue { by } => suspend::continue_task(draft, by.as_ref())?,
        Command::Resume { by } => resume::resume(draft, by.as_ref())?,
        Command::Signal { name, params, keep, by } => {
            signal::signal(draft, name, params.as_ref(), *keep, by.as_ref())?;
        }
        Command::Resolve { step, resolution, by } => resolve::resolve(draft, *step, resolution, by.as_ref())?,
        Command::SkipQueue { reason, by } => exclusive::skip(draft, reason, by.as_ref())?,
        Command::Granted { key: ActKey::TASK, turn, fence, .. } => exclusive::granted(draft, *turn, *fence)?,
        Command::Granted { key, turn, name, fence } => locks::granted(draft, *key, *turn, name, *fence)?,
        Command::Seized { key: ActKey::TASK, fence, reason, by, .. } => {
            exclusive::seized(draft, *fence, reason, by.as_ref())?;
        }
        Command::Seized { key, name, fence, reason, by } => {
            locks::seized(draft, *key, name, *fence, reason, by.as_ref())?;
        }
        Command::ChildEnded { key, child, end } => child::ended(draft, *key, *child, end)?,
        Command::CancelForParent => child::cancel(draft)?,
        Command::UndoForParent => child::undo(draft)?,
        Command::RollBack { rollout } => roll_back::roll_back(draft, rollout)?,
        Command::Hold { message } => hold::hold(draft, message)?,
    }
    // A command that found nothing to do changes nothing.
    if !draft.events.is_empty() {
        proceed::proceed(draft);
    }
    // The task is not visible yet: a refusal is better than an accepted task that fails.
    if matches!(command, Command::Accept { .. }) && draft.evaluation.is_exceeded() {
        return Err(Rejection::TooMuchToEvaluate);
    }
    Ok(())
}

//! A reason as a sentence, with its facts beside it: what holds a task as a whole.

use serde_json::{Value, json};
use windlass_api as api;
use windlass_core::{
    ActKey, Actor, Direction, Pause, ResolutionKind, Role, StuckKind, Task, TaskStatus, Timestamp,
};
use windlass_engine::Why;

use crate::http::tasks::view;

/// A sentence and the facts in it.
pub(super) type Explained = (String, Value);

/// What a reason is about, and when.
#[derive(Clone, Copy)]
pub(super) struct About<'a> {
    pub(super) task: &'a Task,
    pub(super) key: Option<ActKey>,
    pub(super) now: Timestamp,
}

impl About<'_> {
    /// The sentence for a reason, and its facts.
    pub(super) fn explain(self, why: &Why) -> Explained {
        match why {
            Why::Ended(status) => self.ended(*status),
            Why::Stuck { kind, message } => self.stuck(*kind, message),
            Why::Paused { in_flight, since, by } => self.paused(*in_flight, *since, by.as_ref()),
            Why::Scheduled { at } => (
                format!("The task starts in {}, at {}.", span(*at, self.now), view::time(*at)),
                json!({ "at": view::time(*at) }),
            ),
            Why::Ending(at) => self.ending(at),
            Why::Running(at) => self.running(at),
            Why::Retry { attempt, failures, retries, until, message } => {
                self.retry(*attempt, (*failures, *retries), *until, message.as_deref())
            }
            Why::Postponed { attempt, until, message } => {
                self.postponed(*attempt, *until, message.as_deref())
            }
            Why::DeadlineFirst { at } => self.deadline(*at),
            Why::Delayed { until } => self.delayed(*until),
            Why::Signal { name, since, until } => self.signal(name, *since, *until),
            Why::Child { task, child } => self.child(*task, child.as_deref()),
            Why::Lock { name, holder, before, since } => self.lock(name, holder.as_ref(), *before, *since),
            Why::Exclusive { queue, holder, before, since } => {
                self.exclusive(queue, holder.as_ref(), *before, *since)
            }
            Why::Members { total, done, failed, under_way, first } => {
                self.members([*total, *done, *failed, *under_way], first.as_deref())
            }
            Why::QueuePaused { module, pause } => self.queue_paused(module, pause),
            Why::NoWorker { module, draining, without_command, others, last, since_start } => {
                self.no_worker(module, [*draining, *without_command, *others], last.as_ref(), *since_start)
            }
            Why::Limited { state, holders } => self.limited(state, holders),
            Why::Queued { module, before, workers, estimate } => {
                self.queued(module, *before, *workers, *estimate)
            }
            Why::Offered { module, at, since } => self.offered(module, at.as_ref(), *since),
            Why::Grace => (
                format!(
                    "{} is ready. The server has just read its store, and waits a moment: a worker may already run this attempt.",
                    self.opening()
                ),
                json!({}),
            ),
            Why::Moving => {
                (format!("{} changes its state at this moment: ask again.", self.opening()), json!({}))
            }
        }
    }

    fn ended(self, status: TaskStatus) -> Explained {
        let task = self.task;
        let word = view::status(status).as_str();
        let because = task.message().map(|message| format!(": {message}")).unwrap_or_default();
        let sentence = match status {
            TaskStatus::Succeeded => "The task has succeeded.".to_owned(),
            TaskStatus::RolledBack => format!("The task has failed and was rolled back{because}."),
            TaskStatus::Failed => {
                format!("The task has failed, and there was nothing to roll back{because}.")
            }
            TaskStatus::Cancelled => {
                format!("The task was {}.", task.message().unwrap_or_else(|| word.to_owned()))
            }
            _ => format!("The task has ended as {word}."),
        };
        (sentence, json!({ "status": word }))
    }

    fn paused(self, in_flight: usize, since: Option<Timestamp>, by: Option<&Actor>) -> Explained {
        let by_whom = by.map(|by| format!(" by {by}")).unwrap_or_default();
        let ago = since.map(|since| format!(" {} ago", span(self.now, since))).unwrap_or_default();
        let suspended = self.task.state.pause == Pause::Suspended;
        let sentence = match in_flight {
            0 if suspended => format!(
                "The task was suspended{by_whom}{ago}, because no server of this store leads there: it goes on when one \
                 does."
            ),
            0 => format!("The task was paused{by_whom}{ago}: nothing starts until somebody resumes it."),
            1 => format!(
                "The task was paused{by_whom}{ago}: one attempt is still in flight, nothing new starts."
            ),
            n => format!(
                "The task was paused{by_whom}{ago}: {n} attempts are still in flight, nothing new starts."
            ),
        };
        let by = by.map(ToString::to_string);
        (sentence, json!({ "in_flight": in_flight, "since": since.map(view::time), "by": by }))
    }

    fn stuck(self, kind: StuckKind, message: &str) -> Explained {
        let (task, message) = (self.task, message.trim_end_matches('.'));
        let Some(key) = self.key else {
            let sentence = format!(
                "The task waits for an operator, because of a fault of the engine: {message}; when the cause is \
                 known, `windlass task resume {}` lets it go on.",
                task.id
            );
            return (sentence, json!({ "kind": kind.as_str(), "message": message }));
        };
        let what = self.subject();
        let trouble = match kind {
            StuckKind::Poisoned => {
                format!("{what} is poisoned (too many workers were lost while they ran it)")
            }
            StuckKind::Held => format!("{what} failed and is held"),
            StuckKind::RollbackFailed | StuckKind::EngineFault | StuckKind::QueueBlocked => {
                format!("{what} failed")
            }
        };
        let choices = choices(task, key);
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        let sentence = format!(
            "The task waits for an operator, because {trouble}: {message}; settle it with `windlass task resolve {} \
             {} {}`.",
            task.id,
            task.flow.steps[key.step].name,
            words.join("|")
        );
        let choices: serde_json::Map<String, Value> =
            choices.into_iter().map(|(word, does)| (word.to_owned(), json!(does))).collect();
        (sentence, json!({ "kind": kind.as_str(), "message": message, "choices": choices }))
    }

    /// `step init`, `step init[3]`, `the rollback of step init` or `the step for errors`; `the task` where it is about
    /// none.
    pub(super) fn subject(self) -> String {
        let Some(key) = self.key else { return "the task".to_owned() };
        let Some(step) = self.task.flow.steps.get(key.step) else { return "the task".to_owned() };
        if step.role == Role::OnError {
            return "the step for errors".to_owned();
        }
        let name = &step.name;
        let member = key.index().map(|index| format!("[{index}]")).unwrap_or_default();
        match key.direction {
            Direction::Forward => format!("step {name}{member}"),
            Direction::Rollback => format!("the rollback of step {name}{member}"),
        }
    }

    /// The same at the beginning of a sentence.
    pub(super) fn opening(self) -> String {
        let subject = self.subject();
        let mut chars = subject.chars();
        chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
    }
}

/// What an operator may decide about a step, and what each decision would do.
fn choices(task: &Task, key: ActKey) -> Vec<(&'static str, &'static str)> {
    let is_undo = key.direction == Direction::Rollback && task.flow.steps[key.step].role == Role::Plain;
    let does = |choice: ResolutionKind| match (choice, is_undo) {
        (ResolutionKind::Retry, false) => "tries it again, with all its retries",
        (ResolutionKind::Retry, true) => "tries its rollback again, with all its retries",
        (ResolutionKind::Skip, false) => "goes on without it",
        (ResolutionKind::Skip, true) => "leaves it as it is, and rolls back the steps before it",
        (ResolutionKind::Done, false) => "takes it as done by hand",
        (ResolutionKind::Done, true) => "takes it as rolled back by hand",
        (ResolutionKind::Rollback, _) => "rolls back the steps that may have had effects, and ends the task",
    };
    let choices = windlass_core::choices(task).iter();
    choices.map(|choice| (view::resolve_action(*choice).as_str(), does(*choice))).collect()
}

/// The time between two instants, as people say it: to the second, or to the millisecond when it is short.
pub(super) fn span(later: Timestamp, earlier: Timestamp) -> String {
    let ms = (later - earlier).0;
    let rounded = if ms < 1000 { ms } else { ms / 1000 * 1000 };
    api::Span::from_ms(rounded).to_string()
}

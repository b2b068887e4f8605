//! Describes the progress of a task in lines of text: each event once, in the order of their times.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use windlass_api::{Step, StepStatus, Task};

/// A running step is reported after this time. For a shorter step the line about its end is enough.
const NOTABLE: Duration = Duration::from_millis(500);

/// The moments already reported.
#[derive(Debug, Default)]
pub(super) struct Progress {
    said: BTreeSet<(usize, Moment)>,
}

/// A moment in a step's life. The number is that of the attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Moment {
    Running(u32),
    Settled,
    Undone,
}

impl Progress {
    /// The lines about new moments in `task`.
    pub(super) fn news(&mut self, task: &Task, now: Timestamp) -> Vec<String> {
        let mut news: Vec<_> = task
            .steps
            .iter()
            .enumerate()
            .flat_map(|(index, step)| {
                moments(step, now).into_iter().map(move |(at, what, text)| (at, index, what, text))
            })
            .filter(|(_, index, what, _)| self.said.insert((*index, *what)))
            .collect();
        news.sort_by_key(|(at, ..)| *at);
        let line = |(at, index, _, text): (Timestamp, usize, Moment, String)| {
            let since = at.duration_since(task.created_at).as_secs_f64();
            format!("  {since:>6.2} s  {:<8}{text}", task.steps[index].name)
        };
        news.into_iter().map(line).collect()
    }
}

fn moments(step: &Step, now: Timestamp) -> Vec<(Timestamp, Moment, String)> {
    let mut moments = Vec::new();
    if let (StepStatus::Running, Some(worker)) = (step.status, &step.worker)
        && step.started_at.is_some_and(|started| now.duration_since(started).unsigned_abs() >= NOTABLE)
    {
        let text = format!("{} runs on {worker}, attempt {}", step.run, step.attempts);
        moments.push((now, Moment::Running(step.attempts), text));
    }
    if let (Some(started), Some(ended)) = (step.started_at, step.ended_at) {
        let took = ended.duration_since(started).as_secs_f64();
        let attempts =
            if step.attempts > 1 { format!(", {} attempts", step.attempts) } else { String::new() };
        let how = match failure(step) {
            Some(message) => format!("failed: {message}"),
            None => "succeeded".to_owned(),
        };
        moments.push((ended, Moment::Settled, format!("{} {how} ({took:.2} s{attempts})", step.run)));
    }
    if let Some(rollback) = &step.rollback
        && let Some(ended) = rollback.ended_at
    {
        let how = match rollback.status {
            StepStatus::Succeeded => "rolled back".to_owned(),
            _ => format!("could not be rolled back: {}", rollback.message.as_deref().unwrap_or("no message")),
        };
        moments.push((ended, Moment::Undone, format!("{how} by {}", rollback.run)));
    }
    moments
}

/// The message of a step that has finally failed. A step that succeeded after a failed attempt has not
/// failed.
fn failure(step: &Step) -> Option<&str> {
    let rolled_back =
        matches!(step.status, StepStatus::RollingBack | StepStatus::RolledBack | StepStatus::RollbackFailed);
    let failed = step.status == StepStatus::Failed || (rolled_back && step.code.is_some());
    failed.then(|| step.message.as_deref().unwrap_or("no message"))
}

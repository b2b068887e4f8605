//! Invariants of rollouts: which tasks they start and how fast, what they count, and what is left after their ends.

mod counts;
mod ends;
mod rates;
mod running;
mod stages;
mod starts;

use windlass_core::{Actor, Name, Rollout, Task, TaskId, Timestamp};
use windlass_store::{Change, RecordKind};

use super::{Invariant, broken};
use crate::{
    config::Config,
    judge::{Seen, Violation},
    kinds::Kind,
    rows::KnownRollout,
    truth::Truth,
};

/// The name of these invariants.
const NAME: &str = "rollouts";

/// All of these invariants; none in a world without rollouts.
pub(super) fn all(config: &Config) -> Vec<Box<dyn Invariant>> {
    if !config.is(Kind::Rollouts) {
        return Vec::new();
    }
    vec![
        Box::new(starts::Starts::new(config)),
        Box::new(rates::Rates::new(config)),
        Box::new(counts::Counts::new(config)),
        Box::<stages::Stages>::default(),
        Box::<running::Running>::default(),
        Box::new(ends::Ends::new(config)),
    ]
}

/// A rollout. Another one may have its name after it was removed.
type Instance = (Name, Timestamp);

fn instance(rollout: &Rollout) -> Instance {
    (rollout.name.clone(), rollout.created_at)
}

/// The names of the rollout and the device, if a rollout has started this task.
fn started_by(task: &Task) -> Option<(&str, &str)> {
    let input = &task.input;
    let (rollout, device) = input.labels.get("rollout").zip(input.labels.get("device"))?;
    let actor = Actor { name: format!("rollout {rollout}").into(), claimed: false };
    (input.rerun_of.is_none() && input.by.as_ref() == Some(&actor)).then_some((rollout, device))
}

/// The rollout that was changed, with its state before that.
fn changed<'t>(seen: &Seen, truth: &'t Truth) -> Option<&'t KnownRollout> {
    let Seen::Written(Change::Record(change)) = seen else { return None };
    truth.rollouts.get(&change.name).filter(|_| change.kind == RecordKind::Rollout && change.body.is_some())
}

/// The task of a rollout that was changed, with the name of the rollout and that of the device. `is_new`: it was created.
fn changed_task(seen: &Seen) -> Option<(&Task, &str, &str, bool)> {
    let Seen::Written(Change::Task(change)) = seen else { return None };
    let (rollout, device) = started_by(&change.task)?;
    Some((&change.task, rollout, device, change.before == 0))
}

/// Devices that are open now and were not before, each with its task.
fn added(known: &KnownRollout) -> Vec<(&Name, TaskId)> {
    let was_open = |task: TaskId| {
        known.before.as_ref().is_some_and(|before| before.open.iter().any(|device| device.1 == task))
    };
    let open = known.now.open.iter().filter(|device| !was_open(device.1));
    open.map(|device| (&device.0, device.1)).collect()
}

fn violation(rollout: &Rollout, message: &str) -> Violation {
    Violation::new(NAME, format!("rollout {} of version {}: {message}", rollout.name, rollout.version))
}

//! A join starts once, after all its predecessors, and finishes once. The results of items are complete and
//! in the order of the list.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{ActKey, ActState, Direction, EventKind, OnPartial, Task, TaskId};
use windlass_store::Change;

use super::{Invariant, broken};
use crate::{
    config::Fault,
    judge::{Seen, Violation},
    truth::Truth,
    world::World,
};

#[derive(Default)]
pub(super) struct Joins {
    /// Joins whose first attempt became ready.
    ready: BTreeSet<(TaskId, usize)>,
    /// Finished joins.
    accepted: BTreeSet<(TaskId, usize)>,
    /// The results of items.
    returned: BTreeMap<(TaskId, usize), BTreeMap<u32, String>>,
}

impl Invariant for Joins {
    fn see(&mut self, seen: &Seen, truth: &Truth, world: &World) -> Result<(), Violation> {
        let Seen::Written(Change::Task(change)) = seen else { return Ok(()) };
        let Some(known) = truth.tasks.get(&change.task.id) else { return Ok(()) };
        let mut task = Task::clone(&known.before);
        for event in &known.events {
            if let Err(wrong) = self.look(&task, &event.kind, world) {
                return Err(broken("joins", task.id, format!("task {}: {wrong}", task.id)));
            }
            windlass_core::evolve(&mut task, event);
        }
        Ok(())
    }
}

impl Joins {
    /// Checks an event of `task`, which is in its state before the event.
    fn look(&mut self, task: &Task, event: &EventKind, world: &World) -> Result<(), String> {
        let Some(key) = event.act().filter(|key| key.direction == Direction::Forward) else { return Ok(()) };
        match event {
            EventKind::ActReady { attempt, .. } => {
                comes_after_all(task, key)?;
                comes_after_enough(task, key)?;
                if *attempt == 1 && joins(task, key) {
                    let again = !self.ready.insert((task.id, key.step));
                    return count(world, again, "ready", key);
                }
                Ok(())
            }
            // It becomes ready again when its task continues, at once or after it has waited for its locks
            // again.
            EventKind::ActParked { .. } => {
                self.ready.remove(&(task.id, key.step));
                comes_after_all(task, key)
            }
            EventKind::ActFanned { .. } | EventKind::ActAwaiting { .. } | EventKind::ActDelayed { .. } => {
                comes_after_all(task, key)
            }
            EventKind::ActFailed { .. } => has_too_few_members(task, key),
            EventKind::ActSucceeded { result, .. } => {
                let result = result.as_ref().map(|result| result.as_str().to_owned());
                if key.is_member() {
                    let returned = self.returned.entry((task.id, key.step)).or_default();
                    returned.insert(key.member, result.unwrap_or_else(|| "null".to_owned()));
                    return Ok(());
                }
                self.check_results(task, key, &result.unwrap_or_default())?;
                if joins(task, key) {
                    let again = !self.accepted.insert((task.id, key.step));
                    return count(world, again, "accepted", key);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The result of a step with `each` is the list of its items' results in order, and enough of them
    /// succeeded.
    fn check_results(&self, task: &Task, key: ActKey, result: &str) -> Result<(), String> {
        let Some(members) = &task.state.steps[key.step].members else { return Ok(()) };
        let nothing = BTreeMap::new();
        let returned = self.returned.get(&(task.id, key.step)).unwrap_or(&nothing);
        let definition = &task.flow.steps[key.step];
        let least = match definition.on_partial {
            OnPartial::Fail => members.total() as usize,
            OnPartial::Continue => 0,
            OnPartial::AtLeast(least) => least as usize,
        };
        if returned.len() < least {
            return Err(format!("{key:?} is done, and {} of its members are, of {least}", returned.len()));
        }
        let places = (1..=members.total()).map(|number| returned.get(&number).map_or("null", |text| &**text));
        let expected = format!("{{\"{}\":[{}]", definition.name, places.collect::<Vec<_>>().join(","));
        if !result.starts_with(&expected) {
            return Err(format!("{key:?} came to {result}, and its members to {expected}"));
        }
        Ok(())
    }
}

/// Whether it is a join: a step run by a worker as a whole, after several steps or after items.
fn joins(task: &Task, key: ActKey) -> bool {
    let definition = &task.flow.steps[key.step];
    let after_members = definition.after.iter().any(|before| task.flow.steps[*before].each.is_some());
    let by_worker = definition.each.is_none() && definition.run.worker().is_some();
    !key.is_member() && by_worker && (definition.after.len() > 1 || after_members)
}

/// All its predecessors are over: succeeded, skipped, or failed where all successors continue without them.
fn comes_after_all(task: &Task, key: ActKey) -> Result<(), String> {
    let does_without = |step: usize| {
        task.flow.steps.iter().filter(|next| next.after.contains(&step)).all(|next| {
            next.each.is_none() && matches!(next.on_partial, OnPartial::Continue | OnPartial::AtLeast(_))
        })
    };
    for before in &task.flow.steps[key.step].after {
        let step = &task.state.steps[*before];
        let over = match step.forward.state {
            ActState::Succeeded | ActState::Skipped => true,
            ActState::Failed => does_without(*before),
            _ => false,
        };
        let mut members = step.members.iter().flat_map(|members| members.iter());
        if !over || members.any(|(_, member)| member.forward.is_open()) {
            return Err(format!("{key:?} begins, and step {before} before it is under way"));
        }
    }
    Ok(())
}

/// The required number of its predecessors succeeded or was skipped.
fn comes_after_enough(task: &Task, key: ActKey) -> Result<(), String> {
    let definition = &task.flow.steps[key.step];
    let (OnPartial::AtLeast(least), None) = (definition.on_partial, &definition.each) else { return Ok(()) };
    let is_done = |step: &&usize| {
        matches!(task.state.steps[**step].forward.state, ActState::Succeeded | ActState::Skipped)
    };
    let done = definition.after.iter().filter(is_done).count();
    if done < least as usize {
        return Err(format!("{key:?} begins after {done} steps, and asks for {least}"));
    }
    Ok(())
}

/// A step with `at_least` fails because of its items only when too few of them can still succeed.
fn has_too_few_members(task: &Task, key: ActKey) -> Result<(), String> {
    let definition = &task.flow.steps[key.step];
    let members = task.state.steps[key.step].members.as_ref().filter(|_| !key.is_member());
    let (OnPartial::AtLeast(least), Some(members)) = (definition.on_partial, members) else { return Ok(()) };
    let failed = members.iter().filter(|(_, member)| member.forward.state == ActState::Failed).count();
    let left = (members.total() as usize).saturating_sub(failed);
    if left >= least as usize {
        return Err(format!("{key:?} fails, and {left} of its members may succeed, of {least}"));
    }
    Ok(())
}

/// Counts a join that became ready or was accepted. Each happens once.
fn count(world: &World, again: bool, what: &str, key: ActKey) -> Result<(), String> {
    if again {
        return Err(format!("{key:?} joins others and was {what} twice"));
    }
    let kills = [Fault::ServerKilled, Fault::WorkerKilled];
    let killed = world.config.faults.kinds.iter().any(|kind| kills.contains(kind));
    world.count(match (what, killed) {
        ("ready", true) => "join: ready once, in a world with kills",
        ("ready", false) => "join: ready once",
        (_, true) => "join: accepted once, in a world with kills",
        (_, false) => "join: accepted once",
    });
    Ok(())
}

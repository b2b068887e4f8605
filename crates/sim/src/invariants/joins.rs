//! A step that joins others begins once, after all of them, and is done once; what members returned is there whole,
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
    /// Joins that are done.
    accepted: BTreeSet<(TaskId, usize)>,
    /// What members returned.
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
    /// Looks at what happens to `task`, as it was just before.
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
            // It is ready again once its task goes on, at once or after it has waited for its locks anew.
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

    /// What the members of a step came to is what they returned, each at its place, and enough of them did.
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

/// Whether it is a step, done by a worker as a whole, that comes after several others or after members.
fn joins(task: &Task, key: ActKey) -> bool {
    let definition = &task.flow.steps[key.step];
    let after_members = definition.after.iter().any(|before| task.flow.steps[*before].each.is_some());
    let by_worker = definition.each.is_none() && definition.run.worker().is_some();
    !key.is_member() && by_worker && (definition.after.len() > 1 || after_members)
}

/// Whatever comes before it is over: done, passed over, or failed where all that come after do without it.
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

/// As many of the steps before it are done or skipped as it asks for.
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

/// A step with `at_least` fails because of its members only when too few of them can still succeed.
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

/// Counts a join that became ready or was accepted, which each is once.
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

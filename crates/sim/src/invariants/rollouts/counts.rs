//! Progress is what the tasks of a group say, each counted once.

use std::collections::BTreeSet;

use windlass_core::{
    AbortLimit, AbortOf, AbortThreshold, Cause, DeviceEnd, Ending, OpenDevice, Phase, RolloutCounts,
    RolloutStage, Task, TaskId,
};

use super::{added, changed, changed_task, violation};
use crate::{
    config::Config,
    invariants::Invariant,
    judge::{Seen, Violation},
    kinds::Kind,
    rows::KnownRollout,
    truth::Truth,
    world::World,
};

pub(super) struct Counts {
    /// Whether ended tasks are deleted.
    sweeps: bool,
    /// Tasks whose rollback has waited for an operator.
    stuck: BTreeSet<TaskId>,
    /// Tasks that were seen to fail: they count for thresholds before they have ended.
    failing: BTreeSet<TaskId>,
}

impl Counts {
    pub(super) fn new(config: &Config) -> Self {
        Self { sweeps: config.is(Kind::Sweeps), stuck: BTreeSet::new(), failing: BTreeSet::new() }
    }
}

impl Invariant for Counts {
    fn see(&mut self, seen: &Seen, truth: &Truth, _: &World) -> Result<(), Violation> {
        if let Some((task, ..)) = changed_task(seen) {
            if is_rollback_stuck(task) {
                self.stuck.insert(task.id);
            }
            if task.state.stuck.is_some() || !matches!(task.state.phase, Phase::Scheduled | Phase::Forward) {
                self.failing.insert(task.id);
            }
        }
        let Some(known) = changed(seen, truth) else { return Ok(()) };
        self.check(known, truth)?;
        let rollout = &*known.now;
        let failing = rollout.open.iter().filter(|open| self.failing.contains(&open.1)).count() as u64;
        let total = rollout.total();
        let mut thresholds = rollout.definition.abort.iter();
        let reached = thresholds.find(|threshold| is_reached(threshold, &total, failing));
        match reached.filter(|_| rollout.abort.is_none()) {
            Some(threshold) => {
                let message = format!("it goes on with {:?}, although {threshold:?}", rollout.total());
                Err(violation(rollout, &message))
            }
            None => Ok(()),
        }
    }
}

impl Counts {
    /// The counts of each group follow from those before and the ends of the devices that are not open any more.
    fn check(&self, known: &KnownRollout, truth: &Truth) -> Result<(), Violation> {
        let (rollout, before) = (&*known.now, known.before.as_deref());
        let added: BTreeSet<TaskId> = added(known).into_iter().map(|(_, task)| task).collect();
        let is_open = |task: TaskId| rollout.open.iter().any(|open| open.1 == task);
        for (index, group) in rollout.groups.iter().enumerate() {
            let is_here = |open: &&OpenDevice| usize::from(open.2) == index;
            let mut counts = before.and_then(|before| before.groups.get(index)).map_or_else(
                || RolloutCounts { matched: group.counts.matched, ..RolloutCounts::default() },
                |group| group.counts,
            );
            if rollout.stage == RolloutStage::Running {
                let new = rollout.open.iter().filter(is_here).filter(|open| added.contains(&open.1));
                counts.started += new.count() as u64;
            }
            let closed = before.map_or(&[][..], |before| &before.open[..]).iter().filter(is_here);
            let closed = closed.filter(|open| !is_open(open.1));
            let stage = before.map_or(RolloutStage::Running, |before| before.stage);
            let ends: Vec<Vec<DeviceEnd>> = closed.map(|open| self.ends(open.1, stage, truth)).collect();
            if !is_result(counts, &ends, &group.counts) {
                let message = format!(
                    "group {:?} has {:?}, and {counts:?} with {ends:?} is something else",
                    group.value, group.counts
                );
                return Err(violation(rollout, &message));
            }
        }
        Ok(())
    }

    /// How a device may have ended whose task is like this.
    fn ends(&self, id: TaskId, stage: RolloutStage, truth: &Truth) -> Vec<DeviceEnd> {
        let Some(task) = truth.tasks.get(&id).map(|known| &*known.task) else {
            return match stage {
                // It may have the unique key of a task that cannot be read.
                RolloutStage::Running | RolloutStage::Paused if truth.has_damaged_tasks() => {
                    vec![DeviceEnd::Refused, DeviceEnd::Gone]
                }
                RolloutStage::Running | RolloutStage::Paused => vec![DeviceEnd::Refused],
                RolloutStage::Cancelling => vec![DeviceEnd::NotStarted],
                RolloutStage::RollingBack | RolloutStage::Ended => Vec::new(),
            };
        };
        let rolls_back = stage == RolloutStage::RollingBack;
        let mut ends = match task.state.phase {
            Phase::Ended(Ending::Succeeded) if !rolls_back => vec![DeviceEnd::Succeeded],
            Phase::Ended(Ending::Succeeded) if !has_rollback(task) => vec![DeviceEnd::Kept],
            Phase::Ended(Ending::Succeeded) => Vec::new(),
            Phase::Ended(_) if rolls_back => vec![DeviceEnd::RolledBack],
            Phase::Ended(Ending::Cancelled) => vec![DeviceEnd::Cancelled],
            Phase::Ended(_) if task.state.cause == Some(Cause::Deadline) => vec![DeviceEnd::TimedOut],
            Phase::Ended(_) => vec![DeviceEnd::Failed, DeviceEnd::TimedOut],
            Phase::Scheduled | Phase::Forward | Phase::Backward => Vec::new(),
        };
        if self.stuck.contains(&id) {
            match stage {
                RolloutStage::Cancelling => ends.push(DeviceEnd::Stuck),
                RolloutStage::RollingBack => ends.push(DeviceEnd::RollbackStuck),
                RolloutStage::Running | RolloutStage::Paused | RolloutStage::Ended => {}
            }
        }
        if truth.is_damaged(id) || self.sweeps && task.is_ended() {
            ends.push(if rolls_back { DeviceEnd::Kept } else { DeviceEnd::Gone });
            // The server has found the damage before it looked at the task.
            if rolls_back && truth.is_damaged(id) {
                ends.push(DeviceEnd::Gone);
            }
            // Its device was removed as well, before the rollout looked at it again.
            if matches!(stage, RolloutStage::Running | RolloutStage::Paused) {
                ends.push(DeviceEnd::Refused);
            }
            if stage == RolloutStage::Cancelling {
                ends.push(DeviceEnd::NotStarted);
            }
        }
        ends
    }
}

/// Whether the task waits for an operator while it rolls back.
pub(super) fn is_rollback_stuck(task: &Task) -> bool {
    task.state.phase == Phase::Backward && task.state.stuck.is_some()
}

/// Whether a step that may have had effects has a rollback.
pub(super) fn has_rollback(task: &Task) -> bool {
    let mut steps = task.flow.steps.iter().zip(&task.state.steps);
    steps.any(|(step, state)| state.touched && step.rollback.is_some())
}

/// Whether counts become these when each device ends in one of its ways.
fn is_result(counts: RolloutCounts, ends: &[Vec<DeviceEnd>], result: &RolloutCounts) -> bool {
    let Some((first, rest)) = ends.split_first() else { return counts == *result };
    first.iter().any(|end| {
        let mut next = counts;
        next.count(*end);
        is_result(next, rest, result)
    })
}

/// Whether enough devices have ended badly to abort the rollout, whatever the end of the `failing` ones will be: they may lower
/// the percentage of a kind of end.
fn is_reached(threshold: &AbortThreshold, total: &RolloutCounts, failing: u64) -> bool {
    let late_or_failed = total.failed + total.timed_out + total.refused;
    let others = total.cancelled + total.stuck;
    let ended = total.succeeded + late_or_failed + others + total.gone;
    let (bad, all) = match threshold.of {
        AbortOf::Failed => (total.failed + total.refused, ended + failing),
        AbortOf::TimedOut => (total.timed_out, ended + failing),
        AbortOf::Any => (late_or_failed + others, ended),
    };
    let is_enough = ended >= u64::from(threshold.at_least);
    is_enough
        && match threshold.limit {
            AbortLimit::Count(count) => bad >= u64::from(count),
            AbortLimit::Percent(percent) => bad > 0 && 100 * bad >= u64::from(percent) * all,
        }
}

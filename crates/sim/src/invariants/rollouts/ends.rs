//! What a rollout has done when it ends: each device has had its task, and after an abort none of its tasks goes on.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{AbortCause, AlarmId, AlarmKind, Ending, Name, OnAbort, Phase, Rollout, Task, TaskId};
use windlass_store::{Change, RecordKind, stored};

use super::{
    Instance, added, changed, changed_task,
    counts::{has_rollback, is_rollback_stuck},
    instance, violation,
};
use crate::{
    config::Config,
    invariants::Invariant,
    judge::{Seen, Violation},
    kinds::Kind,
    rollouts::{SELECTED, SITE},
    truth::Truth,
    world::World,
};

pub(super) struct Ends {
    /// Whether ended tasks are deleted.
    sweeps: bool,
    /// The number of events so far.
    seen: u64,
    /// Devices that rollouts select, and since when.
    selected: BTreeMap<Name, u64>,
    /// When each rollout began.
    begun: BTreeMap<Instance, u64>,
    /// Devices that were recorded, and tasks that were started.
    recorded: BTreeMap<Instance, BTreeSet<Name>>,
    tasks: BTreeMap<Instance, Vec<TaskId>>,
    /// Tasks whose rollback has waited for an operator.
    stuck: BTreeSet<TaskId>,
}

impl Ends {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            sweeps: config.is(Kind::Sweeps),
            seen: 0,
            selected: BTreeMap::new(),
            begun: BTreeMap::new(),
            recorded: BTreeMap::new(),
            tasks: BTreeMap::new(),
            stuck: BTreeSet::new(),
        }
    }
}

impl Invariant for Ends {
    fn see(&mut self, seen: &Seen, truth: &Truth, _: &World) -> Result<(), Violation> {
        self.seen += 1;
        if let Seen::Written(Change::Record(change)) = seen
            && change.kind == RecordKind::Device
        {
            let device = change.body.as_ref().and_then(|body| stored::read_device(body).ok());
            let is_selected =
                device.is_some_and(|device| device.labels.get(SITE).is_some_and(|site| site == SELECTED));
            if !is_selected {
                self.selected.remove(&change.name);
            } else if !self.selected.contains_key(&change.name) {
                self.selected.insert(change.name.clone(), self.seen);
            }
        }
        if let Some((task, name, _, is_new)) = changed_task(seen)
            && let Some(known) = truth.rollouts.get(name)
        {
            if is_new {
                self.tasks.entry(instance(&known.now)).or_default().push(task.id);
            }
            if is_rollback_stuck(task) {
                self.stuck.insert(task.id);
            }
        }
        let Some(known) = changed(seen, truth) else { return Ok(()) };
        let rollout = &*known.now;
        self.begun.entry(instance(rollout)).or_insert(self.seen);
        let devices = added(known).into_iter().map(|(device, _)| device.clone());
        self.recorded.entry(instance(rollout)).or_default().extend(devices);
        match rollout.is_ended() {
            true => self.check(rollout, truth).map_err(|message| violation(rollout, &message)),
            false => Ok(()),
        }
    }

    fn at_rest(&mut self, truth: &Truth) -> Result<(), Violation> {
        if let Some(rollout) = truth.open_rollout() {
            return Err(violation(rollout, &format!("it does not end: {rollout:?}")));
        }
        for rollout in truth.rollouts.all() {
            let cause = rollout.abort.as_ref().map(|abort| &abort.cause);
            let id = AlarmId::new(AlarmKind::RolloutAborted, TaskId::NONE, Some(&rollout.name));
            if matches!(cause, Some(AbortCause::Threshold(_))) && !truth.alarms.contains_key(&id) {
                return Err(violation(rollout, "no alarm says that it was aborted"));
            }
        }
        Ok(())
    }
}

impl Ends {
    fn check(&self, rollout: &Rollout, truth: &Truth) -> Result<(), String> {
        if !rollout.open.is_empty() {
            return Err(format!("it has ended, and {:?} are open", rollout.open));
        }
        let instance = instance(rollout);
        let begun = self.begun.get(&instance).copied().unwrap_or_default();
        let recorded = self.recorded.get(&instance);
        let is_left_out = |device: &Name, since: u64| {
            since < begun && recorded.is_none_or(|recorded| !recorded.contains(device))
        };
        if rollout.abort.is_none()
            && let Some((device, _)) =
                self.selected.iter().find(|(device, since)| is_left_out(device, **since))
        {
            return Err(format!("it has ended, and {device} was left out"));
        }
        let tasks = self.tasks.get(&instance).into_iter().flatten();
        for task in tasks.filter_map(|id| truth.tasks.get(id)).map(|known| &*known.task) {
            if !self.is_settled(task, rollout) && !truth.is_damaged(task.id) {
                let phase = task.state.phase;
                return Err(format!("it has ended ({:?}), and task {} is {phase:?}", rollout.abort, task.id));
            }
        }
        Ok(())
    }

    /// Whether the rollout may leave a task like this. One that succeeded may have been deleted before its rollback.
    fn is_settled(&self, task: &Task, rollout: &Rollout) -> bool {
        let rolls_back = rollout.abort.is_some() && rollout.definition.on_abort == OnAbort::RollBack;
        match task.state.phase {
            Phase::Ended(Ending::Succeeded) => !rolls_back || self.sweeps || !has_rollback(task),
            Phase::Ended(_) => true,
            Phase::Scheduled | Phase::Forward | Phase::Backward => {
                rollout.abort.is_some() && self.stuck.contains(&task.id)
            }
        }
    }
}

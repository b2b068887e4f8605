//! Each device gets one task, which the rollout has recorded before. Nothing is started after an abort, and nothing while the
//! rollout is paused.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{Name, RolloutStage, TaskId};
use windlass_store::Service;

use super::{Instance, NAME, added, broken, changed, changed_task, instance, violation};
use crate::{
    config::Config,
    invariants::Invariant,
    judge::{Seen, Violation},
    rows::KnownRollout,
    truth::Truth,
    world::World,
};

pub(super) struct Starts {
    /// Whether there is one server.
    is_alone: bool,
    /// The fence of the lease of the service, where servers share a store.
    fence: u64,
    /// The task of each device, as rollouts have recorded it.
    recorded: BTreeMap<(Instance, Name), TaskId>,
    /// The same, as they were started.
    started: BTreeMap<(Instance, String), TaskId>,
    /// Tasks that rollouts roll back.
    rolled_back: BTreeSet<TaskId>,
    /// Pauses that have not ended.
    pauses: BTreeMap<Name, Pause>,
}

/// A pause.
struct Pause {
    /// The version of the rollout since it was paused.
    version: u64,
    /// Whether an operator got the answer.
    is_confirmed: bool,
    /// Whether the only server has started since, or another one leads.
    is_restarted: bool,
    /// When a task was started since.
    started_at: Option<u64>,
}

impl Starts {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            is_alone: config.servers == 1,
            fence: 0,
            recorded: BTreeMap::new(),
            started: BTreeMap::new(),
            rolled_back: BTreeSet::new(),
            pauses: BTreeMap::new(),
        }
    }
}

impl Invariant for Starts {
    fn see(&mut self, seen: &Seen, truth: &Truth, world: &World) -> Result<(), Violation> {
        if let Some(known) = changed(seen, truth) {
            self.note_pause(known);
            return self.see_record(known, truth);
        }
        match seen {
            Seen::ServerStarted if self.is_alone => {
                self.pauses.values_mut().for_each(|pause| pause.is_restarted = true);
                Ok(())
            }
            Seen::Leased { service: Service::Timekeeping, lease, .. } if lease.fence > self.fence => {
                self.fence = lease.fence;
                self.pauses.values_mut().for_each(|pause| pause.is_restarted = true);
                Ok(())
            }
            Seen::RolloutTold { rollout, version } => self.confirm(rollout, *version, truth),
            _ => match changed_task(seen) {
                Some((task, rollout, device, true)) => {
                    world.count("rollout: task started");
                    self.start(task.id, rollout, device, truth, world)
                        .map_err(|message| broken(NAME, task.id, format!("task {}: {message}", task.id)))
                }
                _ => Ok(()),
            },
        }
    }
}

impl Starts {
    /// What an operator was answered is on disk.
    fn confirm(&mut self, rollout: &Name, version: u64, truth: &Truth) -> Result<(), Violation> {
        let is_later = |known: &&KnownRollout| known.now.version < version && !truth.rollouts.is_moved;
        if let Some(known) = truth.rollouts.get(rollout).filter(is_later) {
            let message = format!("an operator got the answer that it has version {version}");
            return Err(violation(&known.now, &message));
        }
        if let Some(pause) = self.pauses.get_mut(rollout).filter(|pause| pause.version == version) {
            pause.is_confirmed = true;
        }
        Ok(())
    }

    fn note_pause(&mut self, known: &KnownRollout) {
        let rollout = &known.now;
        let was_paused = known.before.as_ref().is_some_and(|before| before.stage == RolloutStage::Paused);
        if rollout.stage != RolloutStage::Paused {
            self.pauses.remove(&rollout.name);
        } else if !was_paused {
            let (version, is_confirmed, is_restarted, started_at) = (rollout.version, false, false, None);
            let pause = Pause { version, is_confirmed, is_restarted, started_at };
            self.pauses.insert(rollout.name.clone(), pause);
        }
    }

    /// A device is recorded once to be started, and once to be rolled back.
    fn see_record(&mut self, known: &KnownRollout, truth: &Truth) -> Result<(), Violation> {
        let rollout = &*known.now;
        for (device, task) in added(known) {
            let key = (instance(rollout), device.clone());
            let message = match rollout.stage {
                RolloutStage::Running => match self.recorded.insert(key, task) {
                    None => continue,
                    Some(other) => format!("{device} is to get task {task}, and has task {other}"),
                },
                RolloutStage::RollingBack => {
                    let is_its_task = self.recorded.get(&key) == Some(&task);
                    let has_ended = truth.tasks.get(&task).is_some_and(|known| known.task.is_ended());
                    if is_its_task && has_ended && self.rolled_back.insert(task) {
                        continue;
                    }
                    format!("task {task} of {device} is to be rolled back, and is not a task for this")
                }
                stage => format!("{device} is to get task {task} while it is {stage:?}"),
            };
            return Err(violation(rollout, &message));
        }
        Ok(())
    }

    fn start(
        &mut self,
        task: TaskId,
        rollout: &str,
        device: &str,
        truth: &Truth,
        world: &World,
    ) -> Result<(), String> {
        let Some(known) = truth.rollouts.get(rollout) else {
            return Err(format!("it was started, and there is no rollout {rollout}"));
        };
        let open = known.now.open.iter().find(|open| open.1 == task);
        let Some(open) = open.filter(|open| open.0.as_str() == device) else {
            let stage = known.now.stage;
            return Err(format!("it was started for {device}, and rollout {rollout} ({stage:?}) lacks it"));
        };
        let group = truth.tasks.get(&task).and_then(|known| known.task.input.labels.get("group").cloned());
        let counted = known.now.groups.get(usize::from(open.2)).and_then(|group| group.value.as_deref());
        // A device whose labels have changed between the record and the start is counted where it was recorded.
        if group.as_deref() != counted {
            world.count("rollout: started in another group");
        }
        if let Some(other) = self.started.insert((instance(&known.now), device.to_owned()), task) {
            return Err(format!("{device} has task {other} of rollout {rollout} already"));
        }
        let Some(pause) = self.pauses.get_mut(&known.now.name) else { return Ok(()) };
        // A round that was under way at the pause may still start its tasks, once.
        let is_later = pause.started_at.is_some_and(|at| at < world.now());
        pause.started_at = Some(world.now());
        match pause.is_confirmed && (is_later || pause.is_restarted) {
            true => Err(format!("it was started for {device}, and rollout {rollout} is paused")),
            false => Ok(()),
        }
    }
}

//! The invariants, checked after every event, one file each.

mod accepted_results;
mod alarms;
mod announced_events;
mod attempts;
mod audit_log;
mod devices;
mod effects;
mod engine_faults;
mod exclusive;
mod hand_outs;
mod joins;
mod leaders;
mod leases;
mod limits;
mod locks;
mod members;
mod paused_queues;
mod reasons;
mod rollback_order;
mod rollouts;
mod service_leases;
mod shown_state;
mod tasks;
mod touched_steps;
mod trigger_instants;
mod turns;
mod wake_ups;

use windlass_core::TaskId;

use crate::{
    config::Config,
    judge::{Seen, Violation},
    truth::Truth,
    world::World,
};

/// An invariant.
pub(crate) trait Invariant {
    /// Checks what happened; the truth already contains it.
    fn see(&mut self, seen: &Seen, truth: &Truth, world: &World) -> Result<(), Violation>;

    /// Checks the end of a run, when nothing moves any more.
    fn at_rest(&mut self, _truth: &Truth) -> Result<(), Violation> {
        Ok(())
    }
}

/// All invariants.
pub(crate) fn all(config: &Config) -> Vec<Box<dyn Invariant>> {
    let mut all: Vec<Box<dyn Invariant>> = vec![
        Box::<tasks::accepted::AcceptedTasks>::default(),
        Box::<accepted_results::AcceptedResults>::default(),
        Box::<shown_state::ShownState>::default(),
        Box::<rollback_order::RollbackOrder>::default(),
        Box::<touched_steps::TouchedSteps>::default(),
        Box::<effects::Effects>::default(),
        Box::new(leases::Leases::new(config)),
        Box::new(hand_outs::HandOuts::new(config)),
        Box::<joins::Joins>::default(),
        Box::<members::Windows>::default(),
        Box::<wake_ups::WakeUps>::default(),
        Box::<alarms::Alarms>::default(),
        Box::<tasks::paused::PausedTasks>::default(),
        Box::<paused_queues::PausedQueues>::default(),
        Box::new(limits::Limits::new(config)),
        Box::<tasks::unique::UniqueTasks>::default(),
        Box::new(turns::Turns::new(config)),
        Box::<engine_faults::EngineFaults>::default(),
        Box::<tasks::ending::EveryTaskEnds>::default(),
        Box::<locks::Locks>::default(),
        Box::<exclusive::ExclusiveQueues>::default(),
        Box::new(reasons::Reasons::new(config)),
        Box::<tasks::children::Children>::default(),
        Box::<announced_events::AnnouncedEvents>::default(),
        Box::<audit_log::AuditLog>::default(),
        Box::<service_leases::ServiceLeases>::default(),
        Box::<leaders::Leaders>::default(),
        Box::<trigger_instants::TriggerInstants>::default(),
    ];
    all.extend(attempts::all(config));
    all.extend(devices::all(config));
    all.extend(rollouts::all(config));
    all
}

/// A violation about a task.
fn broken(invariant: &'static str, task: TaskId, message: String) -> Violation {
    Violation { task: Some(task), ..Violation::new(invariant, message) }
}

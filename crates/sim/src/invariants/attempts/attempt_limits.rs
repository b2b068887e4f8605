//! No act is tried more often than its flow and the limits allow.

use std::collections::BTreeMap;

use windlass_core::{ActKey, Event, EventKind, ResolutionKind, RetryBy, TaskId};
use windlass_store::{Change, TaskChange};

use super::{Invariant, broken};
use crate::{
    judge::{Seen, Violation},
    truth::Truth,
    world::World,
};

#[derive(Default)]
pub(super) struct AttemptLimits {
    spent: BTreeMap<(TaskId, ActKey), Spent>,
}

/// What an act has spent since a person last had it tried again.
#[derive(Default)]
struct Spent {
    retries: u32,
    deaths: u32,
}

impl Invariant for AttemptLimits {
    fn see(&mut self, seen: &Seen, _truth: &Truth, _world: &World) -> Result<(), Violation> {
        let Seen::Written(Change::Task(change)) = seen else { return Ok(()) };
        let task = &change.task;
        for event in &change.events {
            let Some(key) = event.kind.act() else { continue };
            let spent = self.spent.entry((task.id, key)).or_default();
            // What a retry is allowed by is known with that retry alone.
            let is_retry = matches!(event.kind, EventKind::ActRetrying { .. });
            match &event.kind {
                EventKind::ActRetrying { .. } => spent.retries += 1,
                EventKind::ActLost { .. } => spent.deaths += 1,
                EventKind::ActResolved { resolution: ResolutionKind::Retry, .. } => {
                    // Of a step with members those that failed are tried again.
                    self.spent.retain(|(other, spent), _| {
                        (*other, spent.step, spent.direction) != (task.id, key.step, key.direction)
                    });
                    continue;
                }
                _ => continue,
            }
            let max = match (task.flow.retry_by, task.action(key)) {
                (RetryBy::Engine, Some(action)) => action.retry.max,
                // What never was with a module that retries by itself is tried again here.
                (RetryBy::Module, Some(action)) if is_unanswered(change, key) => action.retry.max,
                _ => 0,
            };
            let deaths_max = task.flow.deaths_max;
            if (is_retry && spent.retries > max) || spent.deaths > deaths_max {
                let message = format!(
                    "task {}: {key:?} was retried {} times of {max} and lost {} times of {deaths_max}",
                    task.id, spent.retries, spent.deaths
                );
                return Err(broken("attempt limits", task.id, message));
            }
        }
        Ok(())
    }
}

/// Whether an attempt of this act ended without an answer in this change.
fn is_unanswered(change: &TaskChange, key: ActKey) -> bool {
    let unanswered =
        |event: &Event| matches!(event.kind, EventKind::ActUnanswered { key: other, .. } if other == key);
    change.events.iter().any(unanswered)
}

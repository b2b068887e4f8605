//! What is secret in a flow is recorded as a reference.

use windlass_core::EventKind;
use windlass_store::Change;

use super::{Invariant, broken};
use crate::{
    judge::{Seen, Violation},
    truth::Truth,
    world::World,
};

#[derive(Default)]
pub(super) struct Secrets;

impl Invariant for Secrets {
    fn see(&mut self, seen: &Seen, _truth: &Truth, world: &World) -> Result<(), Violation> {
        let Seen::Written(Change::Task(change)) = seen else { return Ok(()) };
        let flow = &change.task.flow;
        if flow.secret.is_empty() {
            return Ok(());
        }
        for event in &change.events {
            let result = match &event.kind {
                EventKind::ActSucceeded { result, .. } | EventKind::ActResolved { result, .. } => result,
                EventKind::ActFailed { failure, .. } if failure.message.contains("`secret`") => {
                    world.count("secret: a plain one is refused");
                    continue;
                }
                _ => continue,
            };
            if let Some(refused) = result.as_ref().and_then(|result| flow.check_secret_params(result).err()) {
                return Err(broken("secrets", change.task.id, format!("task {}: {refused}", change.task.id)));
            }
        }
        Ok(())
    }
}

//! The tasks that wait for a device get it in the order of their requests.

use std::collections::BTreeMap;

use windlass_core::{LockName, LockOwner, Timestamp, device_of_lock};
use windlass_store::Change;

use super::{Invariant, broken};
use crate::{
    judge::{Seen, Violation},
    truth::Truth,
    world::World,
};

#[derive(Default)]
pub(super) struct Order {
    /// Since when each waits, and its place.
    waiting: BTreeMap<(LockName, LockOwner), (Timestamp, u64)>,
}

impl Invariant for Order {
    fn see(&mut self, seen: &Seen, _: &Truth, world: &World) -> Result<(), Violation> {
        let Seen::Written(Change::Lock(change)) = seen else { return Ok(()) };
        let name = &change.lock.name;
        if device_of_lock(name).is_none() {
            return Ok(());
        }
        if let Some((place, waiter)) = change.joined {
            world.count("device: waited for");
            self.waiting.insert((name.clone(), waiter.owner), (waiter.since, place));
        }
        let Some(holder) = change.lock.holder else { return Ok(()) };
        let Some(got) = self.waiting.remove(&(name.clone(), holder.owner)) else { return Ok(()) };
        let before = |owner: &LockOwner| self.waiting.get(&(name.clone(), *owner)).filter(|it| **it < got);
        match change.lock.waiters().find(|waiter| before(&waiter.owner).is_some()) {
            Some(first) => {
                let message = format!("it got {name} before {first:?}, and waits since {got:?}");
                Err(broken("order of devices", holder.owner.task, message))
            }
            None => Ok(()),
        }
    }
}

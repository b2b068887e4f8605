//! What happened goes to the judge, and into the hash of the run.

use std::hash::Hash as _;

use super::{Entry, Seen, Violation, World};

impl World {
    /// Checks the invariants on everything that has happened since the last time.
    pub(super) fn judge(&self) -> Result<(), Violation> {
        let mut judge = self.judge.borrow_mut();
        for entry in self.journal.take() {
            let seen = match entry {
                Entry::Staged(batch) => Seen::Staged(batch),
                Entry::Written(change) => {
                    self.hash_change(&change);
                    Seen::Written(*change)
                }
                Entry::Recovered => Seen::Recovered,
                Entry::Claimed(id) => Seen::Claimed { id },
                Entry::Leased { service, lease, at } => Seen::Leased { service, lease, at },
                Entry::Left(server) => Seen::Left(server),
                Entry::Led(led) => {
                    self.count("write of a leader");
                    Seen::Led(led)
                }
                Entry::Deposed => {
                    self.count("write of a deposed leader");
                    continue;
                }
                Entry::Unled(what) => {
                    let message = format!("a service wrote without its lease: {what}");
                    return Err(Violation::new("service leases", message));
                }
                Entry::Refused(error) => return Err(Violation::new("rows", error.to_string())),
                Entry::Announced { task, n } => {
                    self.count("event announced");
                    Seen::Announced { task, n }
                }
                Entry::Mqtt(event) => {
                    self.tell(|| format!("broker of devices: {event:?}"));
                    Seen::Mqtt(event)
                }
            };
            judge.see(&seen, self)?;
        }
        for seen in std::mem::take(&mut *self.seen.borrow_mut()) {
            judge.see(&seen, self)?;
        }
        Ok(())
    }

    fn hash_change(&self, change: &windlass_store::Change) {
        if let windlass_store::Change::Task(change) = change {
            (change.task.id.0, change.task.state.events).hash(&mut *self.hash.borrow_mut());
        }
    }
}

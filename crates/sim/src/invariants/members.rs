//! What is counted of members is what there is, and no more of them are under way at once than the flow says.

use windlass_core::Direction;
use windlass_store::Change;

use super::{Invariant, broken};
use crate::{
    judge::{Seen, Violation},
    truth::Truth,
    world::World,
};

#[derive(Default)]
pub(super) struct Windows;

impl Invariant for Windows {
    fn see(&mut self, seen: &Seen, _truth: &Truth, _world: &World) -> Result<(), Violation> {
        let Seen::Written(Change::Task(change)) = seen else { return Ok(()) };
        let task = &change.task;
        for (index, members) in task.fans() {
            if let Err(wrong) = members.check() {
                return Err(broken("members", task.id, format!("task {}, step {index}: {wrong}", task.id)));
            }
            let parallel = task.flow.steps[index].each.as_ref().map_or(0, |each| each.parallel) as usize;
            for direction in [Direction::Forward, Direction::Rollback] {
                let open = members.iter().filter(|(_, member)| member.act(direction).is_open()).count();
                if open > parallel {
                    let message = format!(
                        "task {}: {open} members of step {index} are under way at once, and {parallel} may be",
                        task.id
                    );
                    return Err(broken("members", task.id, message));
                }
            }
        }
        Ok(())
    }
}

//! Damages rows of tasks: from then on they are unreadable.

use std::rc::Rc;

use crate::world::World;

/// The most tasks that are damaged in a world.
const TASKS_MAX: u64 = 2;

/// The longest time until the next damage, in milliseconds.
const EVERY_MS: u64 = 15_000;

/// Damages rows until the world is calm.
pub(crate) async fn damage_rows(world: Rc<World>) {
    for _ in 0..world.within(1..=TASKS_MAX) {
        world.sleep(world.within(100..=EVERY_MS)).await;
        if world.is_calm() {
            return;
        }
        let task = world.judge.borrow().truth.any_task(&world);
        if let Some(task) = task {
            world.count("fault: row damaged");
            world.tell(|| format!("task {}: its rows are damaged", task.id));
            world.servers.damage(task.id);
            world.judge.borrow_mut().truth.damage(task.id);
        }
    }
}

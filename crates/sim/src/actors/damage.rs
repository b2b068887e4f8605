//! Damages rows: from then on they are unreadable.

use std::rc::Rc;

use windlass_core::Name;
use windlass_store::memory::Row;

use super::candidate::is_led;
use crate::{judge::Seen, world::World};

/// The most tasks that are damaged in a world.
const TASKS_MAX: u64 = 2;

/// The most rows that are damaged in a database.
const ROWS_MAX: u64 = 5;

/// The longest time until the next damage, in milliseconds.
const EVERY_MS: u64 = 15_000;

/// Damages rows until the world is calm.
pub(crate) async fn damage_rows(world: Rc<World>) {
    let most = if world.config.shared { ROWS_MAX } else { TASKS_MAX };
    for _ in 0..world.within(1..=most) {
        world.sleep(world.within(100..=EVERY_MS)).await;
        if world.is_calm() {
            return;
        }
        if let Some(row) = any_row(&world) {
            world.count(match row {
                Row::Task(_) => "fault: row damaged",
                Row::Lock(_) => "fault: lock damaged",
                Row::Limit(_) => "fault: limit damaged",
                Row::Announcement(_) => "fault: announcement damaged",
            });
            world.tell(|| format!("this row is damaged: {row:?}"));
            world.servers.damage(&row);
            world.see(Seen::Damaged(row));
        }
    }
}

/// A row that exists. A disk damages those of tasks alone.
fn any_row(world: &World) -> Option<Row> {
    let judge = world.judge.borrow();
    let truth = &judge.truth;
    let task = || truth.any_task(world).map(|task| Row::Task(task.id));
    if !world.config.shared {
        return task();
    }
    let row = match world.below(10) {
        0..=2 => None,
        3..=5 => {
            let locks = truth.post.locks.values().filter(|lock| !is_led(&lock.name));
            let names: Vec<Name> = locks.map(|lock| lock.name.clone()).collect();
            world.choose(&names).cloned().map(Row::Lock)
        }
        6..=8 => {
            let names: Vec<Name> = truth.rules.limits.keys().cloned().collect();
            world.choose(&names).cloned().map(Row::Limit)
        }
        _ => world.servers.any_announcement().map(Row::Announcement),
    };
    row.or_else(task)
}

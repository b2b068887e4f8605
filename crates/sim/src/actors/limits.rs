//! Limits of all kinds, for somebody who edits them while everything runs.

use windlass_core::{Millis, Name};
use windlass_store::{Limit, Starts};

use crate::world::World;

/// A limit under one of a few names, so that some are replaced by others.
pub(super) fn draw(world: &World) -> Option<Limit> {
    let name = *world.choose(&["one", "two", "three"])?;
    let queue = if world.chance(700) { "m" } else { "n" };
    let command = if world.chance(300) { Some(*world.choose(&["do", "undo"])?) } else { None };
    let count = |most| u32::try_from(world.within(1..=most)).unwrap_or(1);
    let starts =
        world.chance(400).then(|| Starts { count: count(10), per: Millis(world.within(200..=3_000)) });
    let limit = Limit {
        name: Name::new(name).ok()?,
        queue: Name::new(queue).ok()?,
        command: command.and_then(|command| Name::new(command).ok()),
        per_key: world.chance(400),
        running: (starts.is_none() || world.chance(500)).then(|| count(4)),
        starts,
    };
    limit.check().ok().map(|()| limit)
}

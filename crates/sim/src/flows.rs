//! Flows of all shapes.

use windlass_core::{Action, Backoff, Flow, Millis, Name, OnFailure, Retry, RetryBy, StepDefinition};

use crate::world::World;

/// Longer than a world may take to come to rest: an attempt with such a timeout is not saved by it.
pub(crate) const LONG_MS: u64 = 4 * 3_600_000;

/// A flow of one to five steps, a line or any graph.
pub(crate) fn draw(world: &World, name: &str) -> Flow {
    let line = world.chance(500);
    let count = world.within(1..=5);
    let steps = (0..usize::try_from(count).unwrap_or(1)).map(|index| {
        let after = match index.checked_sub(1) {
            Some(before) if line => vec![before],
            _ => (0..index).filter(|_| world.chance(400)).collect(),
        };
        StepDefinition {
            rollback: world.chance(800).then(|| action(world, "undo")),
            ..StepDefinition::new(named(&format!("s{index}")), action(world, "do"), after)
        }
    });
    let steps = steps.collect();
    Flow {
        version: 0,
        retry_by: if world.chance(100) { RetryBy::Module } else { RetryBy::Engine },
        on_failure: if world.chance(250) { OnFailure::Hold } else { OnFailure::Rollback },
        ..Flow::new(named(name), steps)
    }
}

fn action(world: &World, command: &str) -> Action {
    let backoffs = [Backoff::Exponential, Backoff::Fixed, Backoff::None];
    Action {
        timeout: Millis(if world.chance(150) { LONG_MS } else { world.within(500..=20_000) }),
        deadline: world.chance(200).then(|| Millis(world.within(2_000..=30_000))),
        retry: Retry {
            max: u32::try_from(world.below(4)).unwrap_or(0),
            backoff: *world.choose(&backoffs).unwrap_or(&Backoff::None),
            base: Millis(world.within(10..=1500)),
            cap: Millis(5000),
        },
        ..Action::of_worker(named(if world.chance(700) { "m" } else { "n" }), named(command))
    }
}

/// The names of this crate are all well-formed.
fn named(name: &str) -> Name {
    Name::new(name).unwrap_or_else(|error| panic!("{name}: {error:?}"))
}

//! Random flows of all shapes.

use windlass_core::{
    Action, Backoff, Doer, During, Each, Expression, Flow, Json, LockRef, Millis, Name, OnConflict,
    OnFailure, OnPartial, Retry, RetryBy, Role, RollbackParams, StepDefinition, Unique,
};

use crate::{fleet::give_to_device, kinds::Kind, world::World};

/// Longer than a world may take to come to rest: a timeout of this length does not help an attempt.
pub(crate) const LONG_MS: u64 = 4 * 3_600_000;

/// Lock names that steps of all flows use.
const LOCKS: [&str; 2] = ["disk", "net"];

/// The module whose steps are published to a broker.
pub(crate) const BROKER_MODULE: &str = "b";

/// The signal that steps wait for.
pub(crate) const SIGNAL: &str = "go";

/// The member of all results. It is secret in some flows.
pub(crate) const RUN: &str = "run";

/// The name of the flow of rollouts.
pub(crate) const ROLLED_OUT: &str = "rolled-out";

/// The most elements of the list of a step with `each`.
pub(crate) const LIST_MAX: u64 = 6;

/// The flow of a trigger: it always works.
pub(crate) fn triggered() -> Flow {
    let run = Action::of_worker(named("m"), named("do"));
    Flow::new(named("triggered"), vec![StepDefinition::new(named("s0"), run, Vec::new())])
}

/// The flow of rollouts: a line of one or two steps.
pub(crate) fn rolled_out(world: &World) -> Flow {
    let count = usize::try_from(world.within(1..=2)).unwrap_or(1);
    let step = |index: usize| {
        let after = index.checked_sub(1).into_iter().collect();
        let mut step = StepDefinition {
            rollback: world.chance(800).then(|| action(world, "undo")),
            ..StepDefinition::new(named(&format!("s{index}")), action(world, "do"), after)
        };
        step.run.start_within = world.chance(100).then(|| Millis(world.within(500..=8_000)));
        step
    };
    let during = if world.chance(500) { During::Running } else { During::Finished(Millis(5_000)) };
    let key = expression("device_labels.pair");
    Flow {
        on_failure: if world.chance(200) { OnFailure::Hold } else { OnFailure::Rollback },
        deadline: world.chance(150).then(|| Millis(world.within(3_000..=60_000))),
        unique: world.chance(150).then_some(Unique { key, during, on_conflict: OnConflict::Return }),
        ..Flow::new(named(ROLLED_OUT), (0..count).map(step).collect())
    }
}

/// The flow of a submitter: one to five steps, a line or any graph, with all features of steps.
pub(crate) fn draw(world: &World, person: usize) -> Flow {
    if world.config.is(Kind::Classic) && world.chance(500) {
        return classic(world, person);
    }
    let line = world.chance(500);
    let count = world.within(1..=5);
    let steps = (0..usize::try_from(count).unwrap_or(1)).map(|index| {
        let after = match index.checked_sub(1) {
            Some(before) if line => vec![before],
            _ => (0..index).filter(|_| world.chance(400)).collect(),
        };
        let mut step = StepDefinition {
            rollback: world.chance(800).then(|| action(world, "undo")),
            ..StepDefinition::new(named(&format!("s{index}")), action(world, "do"), after)
        };
        enrich(world, person, &mut step);
        step
    });
    let mut steps: Vec<StepDefinition> = steps.collect();
    if world.chance(200) {
        let run = action(world, "tell");
        let errors = StepDefinition::new(named("errors"), run, Vec::new());
        steps.push(StepDefinition { role: Role::OnError, ..errors });
    }
    Flow {
        version: 0,
        retry_by: if world.chance(100) { RetryBy::Module } else { RetryBy::Engine },
        on_failure: if world.chance(250) { OnFailure::Hold } else { OnFailure::Rollback },
        deadline: world.chance(120).then(|| Millis(world.within(3_000..=60_000))),
        unique: world.chance(150).then(|| unique(world)),
        exclusive: world.chance(200).then(|| exclusive(world, person)),
        secret: if world.chance(60) { vec![named(RUN)] } else { Vec::new() },
        ..Flow::new(name(person), steps)
    }
}

/// The exclusive queue of the tasks of a flow. Flows share it only with later versions of themselves: a task that waits
/// for a child task must not keep the queue of that child.
fn exclusive(world: &World, person: usize) -> LockRef {
    match world.chance(600) {
        true => LockRef::Name(named(&format!("queue-{person}"))),
        false => LockRef::Expression(expression(&format!("'queue-{person}-' + string(size)"))),
    }
}

/// The result of a run with this number: two of three are references to secrets, so that flows in which they are
/// secret go on after a few tries.
pub(crate) fn result_of(number: u64) -> Option<Json> {
    let value = if number.is_multiple_of(3) { number.to_string() } else { format!("\"secret://r{number}\"") };
    Json::parse(&format!("{{\"{RUN}\":{value}}}")).ok()
}

/// A flow that a task brings.
pub(crate) fn draw_adhoc(world: &World, person: usize) -> Flow {
    let hash = world.random();
    Flow { name: named(&format!("adhoc-{hash:016x}")), ..draw(world, person) }
}

/// A flow like those of the classic catalogue: a line of steps that share their parameters, with one timeout
/// for all attempts of a step and no pauses between them.
fn classic(world: &World, person: usize) -> Flow {
    let action = |command: &str| {
        let action = action(world, command);
        let retry = Retry { backoff: Backoff::None, ..Retry { max: action.retry.max, ..Retry::default() } };
        Action { deadline: Some(action.timeout), retry, ..action }
    };
    let count = usize::try_from(world.within(1..=4)).unwrap_or(1);
    let steps = (0..count).map(|index| StepDefinition {
        rollback: world.chance(800).then(|| action("undo")),
        ..StepDefinition::new(
            named(&format!("s{index}")),
            action("do"),
            index.checked_sub(1).into_iter().collect(),
        )
    });
    Flow {
        version: 0,
        retry_by: if world.chance(500) { RetryBy::Module } else { RetryBy::Engine },
        rollback_params: RollbackParams::Shared,
        ..Flow::new(name(person), steps.collect())
    }
}

/// The name of a submitter's flow.
fn name(person: usize) -> Name {
    named(&format!("f{person}"))
}

/// Adds items, partial joins, conditions, delays, signals, child flows, keys and start limits to a step.
fn enrich(world: &World, person: usize, step: &mut StepDefinition) {
    if world.chance(120) {
        let conditions = ["size > 1", "size < 100", "has(params.list)", "missing == 1"];
        step.when = world.choose(&conditions).map(|text| expression(text));
    }
    if world.chance(300) {
        let parallel = u32::try_from(world.within(1..=3)).unwrap_or(1);
        step.each = Some(Each { list: "list".into(), parallel });
    } else if world.chance(100) {
        step.run.doer = Doer::Signal { name: named(SIGNAL) };
        step.rollback = None;
    }
    // A flow runs that of the next submitter, which may not exist yet; that of the last one never exists.
    if step.run.worker().is_some() && world.chance(150) {
        step.run.doer = Doer::Flow { name: name(person + 1) };
        step.rollback = None;
    }
    if step.run.worker().is_some() {
        step.locks = locks(world);
    }
    if world.config.is(Kind::Devices) && step.run.worker().is_some() && world.chance(600) {
        give_to_device(world, step);
    }
    let parts = if step.each.is_some() { 3 } else { step.after.len() as u64 };
    if parts > 1 && world.chance(500) {
        let least = u32::try_from(world.within(1..=parts)).unwrap_or(1);
        step.on_partial = if world.chance(500) { OnPartial::Continue } else { OnPartial::AtLeast(least) };
    }
    step.delay = world.chance(100).then(|| Millis(world.within(10..=3_000)));
    let by_worker = step.run.worker().is_some();
    let within = world.chance(100).then(|| Millis(world.within(500..=8_000)));
    step.run.start_within = within.filter(|_| !matches!(step.run.doer, Doer::Flow { .. }));
    if world.chance(150) && by_worker {
        step.key = Some(expression(if step.each.is_some() { "item" } else { "size" }));
    }
}

/// Tasks of the same size are duplicates, for a while.
fn unique(world: &World) -> Unique {
    let during = match world.below(3) {
        0 => During::Pending,
        1 => During::Running,
        _ => During::Finished(Millis(world.within(100..=10_000))),
    };
    Unique { key: expression("size"), during, on_conflict: OnConflict::Return }
}

/// The unique key of tasks with these parameters.
pub(crate) fn unique_key(params: &Json) -> Option<Box<str>> {
    expression("size").text(params).ok()
}

/// None, one or two locks, with names that all tasks share or that come from the parameters.
fn locks(world: &World) -> Vec<LockRef> {
    let mut locks = Vec::new();
    while locks.len() < 2 && world.chance(200) {
        locks.push(match world.below(3) {
            2 => LockRef::Expression(expression("'size-' + string(size)")),
            index => LockRef::Name(named(LOCKS[usize::try_from(index).unwrap_or(0)])),
        });
    }
    locks
}

/// All expressions of this crate are valid.
pub(crate) fn expression(text: &str) -> Expression {
    Expression::compile(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn action(world: &World, command: &str) -> Action {
    let module = match world.config.is(Kind::Broker) && world.chance(400) {
        true => BROKER_MODULE,
        false if world.chance(700) => "m",
        false => "n",
    };
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
        ..Action::of_worker(named(module), named(command))
    }
}

/// All names of this crate are valid.
pub(crate) fn named(name: &str) -> Name {
    Name::new(name).unwrap_or_else(|error| panic!("{name}: {error:?}"))
}

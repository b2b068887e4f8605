//! One run of a world, from its seed to its end.

use std::{collections::BTreeMap, rc::Rc};

use windlass_store::Settlement;

use crate::{
    actors,
    judge::Violation,
    kinds::Kind,
    world::{Host, World},
};

/// How long faults occur, in events.
const RAGE_STEPS: std::ops::RangeInclusive<u64> = 500..=6000;

/// How long tasks may take to end once the world is calm.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Calm {
    /// In events.
    steps: u64,
    /// In milliseconds.
    ms: u64,
}

impl Calm {
    /// More than any world needs. Three servers that have a backlog under a limit of one start in 2.8 s need more than a million
    /// events (world 1795880145180670).
    pub(crate) const LONG: Self = Self { steps: 4_000_000, ms: 3_600_000 };
    /// Enough for most worlds. Some planted bugs keep tasks from ending: this limits the events of such a world.
    #[cfg(feature = "planted")]
    pub(crate) const SHORT: Self = Self { steps: 400_000, ms: 360_000 };
}

/// How much longer than [`Calm`] tasks may take with slow commits, and how long messages may then be in transit, in
/// milliseconds.
const SLOW_FACTOR: u64 = 3;
const SLOW_REST_MS: u64 = 60_000;

/// The shortest time between the last fault and the end of a world, in milliseconds.
const REST_MS: u64 = 5_000;

/// How long blockers of tasks are removed, in events.
const UNBLOCKING_STEPS_MAX: u64 = 20_000;

/// The number of the operator who removes blockers, above those of all others.
const UNBLOCKER: usize = 10;

/// The numbers of the operators who run tasks again and repeat their commands.
const REPEATERS: [usize; 2] = [11, 12];

/// The number of the operator who sends one command to many tasks.
const BULK: usize = 13;

/// The numbers of the processes that campaign for a name.
const CANDIDATES: [usize; 3] = [14, 15, 16];

/// The number of the operator who applies a trigger.
const SCHEDULER: usize = 17;

/// The numbers of the operators of rollouts.
const ROLLOUT_OPERATORS: [usize; 2] = [18, 19];

/// The result of a run.
pub(crate) struct Run {
    pub(crate) steps: u64,
    pub(crate) ms: u64,
    pub(crate) hash: u64,
    pub(crate) tally: BTreeMap<&'static str, u64>,
    pub(crate) violation: Option<Violation>,
    /// The story, if it was requested.
    pub(crate) story: Vec<String>,
}

/// Runs the world of this seed; it also has the kinds in `forced`.
pub(crate) fn run(seed: u64, forced: &[Kind], tell: bool) -> Run {
    run_within(seed, forced, Calm::LONG, tell)
}

/// Runs the world of this seed. Its tasks must end within `calm`.
pub(crate) fn run_within(seed: u64, forced: &[Kind], calm: Calm, tell: bool) -> Run {
    let world = World::new(seed, forced, tell);
    world.tell(|| format!("a world with {:?}", world.config));
    begin(&world);
    let violation = drive(&world, calm).err();
    let run = Run {
        steps: world.steps(),
        ms: world.now(),
        hash: world.hash(),
        tally: world.tally(),
        violation,
        story: world.story.lines(),
    };
    world.end();
    run
}

fn begin(world: &Rc<World>) {
    world.spawn(Host::Nature, actors::rage(world.clone()));
    let submitters = world.within(1..=3);
    for person in 0..submitters {
        let tasks = world.config.tasks / submitters + 1;
        let person = usize::try_from(person).unwrap_or(0);
        world.spawn(Host::Person(person), actors::submit_tasks(world.clone(), person, tasks));
    }
    let person = usize::try_from(submitters).unwrap_or(0);
    world.spawn(Host::Person(person), actors::look_after(world.clone(), person));
    if world.config.is(Kind::Broker) {
        actors::start_consumers(world);
    } else {
        world.spawn(Host::Person(person + 1), actors::ask_why(world.clone(), person + 1));
    }
    if world.config.is(Kind::Repeats) {
        world.spawn(Host::Nature, actors::repeat_commands(world.clone(), REPEATERS));
    }
    if world.config.is(Kind::Batches) {
        world.spawn(Host::Person(BULK), actors::command_many(world.clone(), BULK));
    }
    if world.config.is(Kind::Enqueued) && world.config.shared {
        world.spawn(Host::Nature, actors::enqueue_tasks(world.clone()));
    }
    if world.config.is(Kind::Leaders) {
        let chooser = world.chance(500).then(|| Rc::new(actors::Chooser::default()));
        for person in CANDIDATES {
            let campaigns = actors::campaign_for_name(world.clone(), person, chooser.clone());
            world.spawn(Host::Person(person), campaigns);
        }
    }
    if world.config.is(Kind::Triggers) {
        world.spawn(Host::Person(SCHEDULER), actors::apply_trigger(world.clone(), SCHEDULER));
    }
    if world.config.is(Kind::Devices) {
        actors::start_fleet(world);
    }
    if world.config.is(Kind::Rollouts) {
        actors::start_rollouts(world, ROLLOUT_OPERATORS);
    }
    if world.config.is(Kind::DamagedRows) {
        world.spawn(Host::Nature, actors::damage_rows(world.clone()));
    }
    if world.config.is(Kind::Moves) && !world.config.shared && !world.config.is(Kind::Broker) {
        world.spawn(Host::Nature, actors::move_store(world.clone()));
    }
    // The first poll of these futures needs a later event.
    world.after(0, "begin", |_| {});
}

fn drive(world: &Rc<World>, calm: Calm) -> Result<(), Violation> {
    let rage = world.within(RAGE_STEPS);
    while world.steps() < rage {
        world.step()?;
    }
    actors::be_calm(world);
    if world.config.unblocks {
        unblock(world)?;
        actors::start_spare_workers(world);
    }
    let is_slow = world.config.is(Kind::SlowCommits);
    let (factor, rest_ms) = if is_slow { (SLOW_FACTOR, SLOW_REST_MS) } else { (1, 0) };
    // A service that failed until now waits before its next round (world 1795530735185060).
    let rested = world.now() + REST_MS;
    let (steps, ms) = (world.steps() + factor * calm.steps, world.now() + factor * calm.ms);
    let (mut rest, mut since) = (0, world.now());
    while world.steps() < steps
        && world.now() < ms
        && (rest < 500 || world.now() < rested.max(since + rest_ms))
    {
        world.step()?;
        // All tasks have ended and all submits are answered: leave some time for messages in transit.
        rest = if world.is_finished() { rest + 1 } else { 0 };
        if rest == 0 {
            since = world.now();
        }
    }
    explain(world)?;
    if !world.is_damage_reported() {
        return Err(Violation::new("damaged rows", "no alarm names every task with damaged rows".to_owned()));
    }
    check_enqueued(world)?;
    world.judge.borrow_mut().at_rest()?;
    match world.unrest() {
        Some(what) => Err(Violation::new("rest", format!("after {} events {what}", world.steps()))),
        None => Ok(()),
    }
}

/// Each enqueued task was accepted under its id, or deduplicated to another task.
fn check_enqueued(world: &World) -> Result<(), Violation> {
    let Some(enqueued) = world.servers.enqueued() else { return Ok(()) };
    if !enqueued.is_empty() && !world.judge.borrow().truth.has_damaged_tasks() {
        return Err(Violation::new(
            "enqueued tasks",
            "a task that was enqueued was never accepted".to_owned(),
        ));
    }
    let judge = world.judge.borrow();
    for (id, settlement) in enqueued.settled() {
        let named = match &settlement {
            Settlement::Accepted => id,
            Settlement::StandsFor(task) => *task,
            Settlement::Refused(_) => continue,
        };
        if !judge.truth.tasks.contains_key(&named) {
            let message =
                format!("task {id} was enqueued, and {settlement:?} although there is no task {named}");
            return Err(Violation { task: Some(id), ..Violation::new("enqueued tasks", message) });
        }
    }
    Ok(())
}

/// Removes blockers of tasks, before other actors make the tasks end.
fn unblock(world: &Rc<World>) -> Result<(), Violation> {
    world.set_unblocking(true);
    world.spawn(Host::Person(UNBLOCKER), actors::unblock_tasks(world.clone(), UNBLOCKER));
    let last = world.steps() + UNBLOCKING_STEPS_MAX;
    while world.is_unblocking() && world.steps() < last {
        world.step()?;
    }
    world.set_unblocking(false);
    world.kill(Host::Person(UNBLOCKER));
    Ok(())
}

/// Asks a server why tasks do not end, for the story.
fn explain(world: &Rc<World>) -> Result<(), Violation> {
    let unfinished = world.judge.borrow().truth.unfinished();
    let Some(live) = world.servers.live(0).filter(|_| !unfinished.is_empty() && world.is_told()) else {
        return Ok(());
    };
    let here = world.clone();
    world.spawn(Host::Nature, async move {
        for task in unfinished {
            let why = live.engine.why(task.id, live.now()).await;
            let (claims, why) = match why {
                Ok((loaded, why)) => (format!("{:?}", loaded.claims), format!("{why:?}")),
                Err(error) => (String::new(), error.to_string()),
            };
            here.tell(|| format!("task {}: it does not end because of {why}; claims {claims}", task.id));
        }
        here.tell(|| "that is all".to_owned());
    });
    for _ in 0..1000 {
        world.step()?;
    }
    Ok(())
}

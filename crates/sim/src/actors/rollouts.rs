//! Two operators of rollouts: they declare devices, start rollouts, and pause, resume, abort and remove them, often both at
//! once.

use std::{pin::Pin, rc::Rc};

use windlass_core::{Actor, Device, Name, RolloutCommand};
use windlass_engine::EngineError;

use super::{
    Live,
    submitter::{repeat, until_answered},
};
use crate::{
    flows,
    judge::Seen,
    rollouts::{self, DEVICES_MAX, ROLLOUTS_MAX},
    world::{Host, World},
};

/// The longest time until the next command, and until the next change of a device, in milliseconds.
const COMMAND_EVERY_MS: u64 = 4_000;
const DEVICES_EVERY_MS: u64 = 15_000;

/// The longest time until the next rollout is started, in milliseconds.
const START_EVERY_MS: u64 = 10_000;

/// The interval of looks at paused rollouts once the world is calm, in milliseconds.
const RESUME_EVERY_MS: u64 = 2_000;

/// How often an operator repeats an unanswered call.
const TRIES_MAX: u32 = 5;

type Doing<T> = Pin<Box<dyn Future<Output = Result<T, EngineError>>>>;

/// Starts the operators.
pub(crate) fn start_rollouts(world: &Rc<World>, persons: [usize; 2]) {
    let operators = persons.map(Host::Person);
    world.spawn(operators[0], start(world.clone(), operators[0]));
    world.spawn(operators[0], interfere(world.clone(), operators));
    world.spawn(operators[1], change_devices(world.clone(), operators[1]));
    world.spawn(operators[1], resume_all(world.clone(), operators[1]));
}

/// Declares devices and starts rollouts over them.
async fn start(world: Rc<World>, host: Host) {
    world.begin_to_submit();
    let flow = flows::rolled_out(&world);
    let applied = until_answered(&world, host, move |live: Rc<Live>| {
        let flow = flow.clone();
        Box::pin(async move { live.engine.apply_flow(flow, live.now()).await.map(drop) }) as Doing<()>
    });
    let devices = (0..world.within(2..=DEVICES_MAX)).map(|index| rollouts::device(&world, index)).collect();
    if applied.await.is_some() && apply(&world, host, devices).await {
        for index in 0..world.within(1..=ROLLOUTS_MAX) {
            begin(&world, host, rollouts::name(index)).await;
            world.sleep(world.below(START_EVERY_MS)).await;
        }
    }
    world.end_to_submit();
}

async fn begin(world: &Rc<World>, host: Host, name: Name) {
    let definition = rollouts::definition(world);
    world.tell(|| format!("rollout {name}: {host:?} starts {definition:?}"));
    let asked = name.clone();
    let started = until_answered(world, host, move |live: Rc<Live>| {
        let (name, definition) = (asked.clone(), definition.clone());
        Box::pin(async move {
            let (report, _) = live.engine.start_rollout(name, definition, by(host), live.now()).await?;
            Ok(report.rollout.version)
        }) as Doing<u64>
    });
    if let Some(version) = started.await {
        world.count("rollout: started");
        world.see(Seen::RolloutTold { rollout: name, version });
    }
}

/// Gives commands until the world is calm.
async fn interfere(world: Rc<World>, operators: [Host; 2]) {
    // Nobody touches the rollouts of some worlds.
    while !world.is_calm() && world.config.interference > 0 {
        world.sleep(world.within(100..=COMMAND_EVERY_MS)).await;
        let names: Vec<Name> = {
            let judge = world.judge.borrow();
            judge.truth.rollouts.all().map(|rollout| rollout.name.clone()).collect()
        };
        let Some(name) = world.choose(&names).cloned() else { continue };
        if world.chance(50) {
            remove(&world, operators[0], name).await;
            continue;
        }
        let both = world.chance(400);
        for operator in operators.into_iter().take(if both { 2 } else { 1 }) {
            let (reason, by) = (Some("why not".into()), by(operator));
            let command = match world.below(20) {
                0 => RolloutCommand::Abort { by, reason },
                1..=9 => RolloutCommand::Pause { by, reason },
                _ => RolloutCommand::Resume,
            };
            let (here, name) = (world.clone(), name.clone());
            world.spawn(operator, async move {
                // Some repeat a command whatever its result.
                for _ in 0..if here.chance(200) { 2 } else { 1 } {
                    tell(&here, operator, &name, command.clone()).await;
                }
            });
        }
    }
}

async fn tell(world: &Rc<World>, operator: Host, name: &Name, command: RolloutCommand) {
    world.tell(|| format!("rollout {name}: {operator:?} asks for {command:?}"));
    let what = match &command {
        RolloutCommand::Pause { .. } => "rollout: paused",
        RolloutCommand::Abort { .. } => "rollout: aborted by an operator",
        _ => "rollout: resumed",
    };
    let asked = name.clone();
    let told = repeat(world, operator, TRIES_MAX, move |live: Rc<Live>| {
        let (name, command) = (asked.clone(), command.clone());
        Box::pin(async move {
            let report = live.engine.tell_rollout(&name, command, by(operator), live.now()).await?;
            Ok(report.rollout.version)
        }) as Doing<u64>
    })
    .await;
    match told {
        Some(Ok(version)) => {
            world.count(what);
            world.tell(|| format!("rollout {name}: {what}, as version {version}"));
            world.see(Seen::RolloutTold { rollout: name.clone(), version });
        }
        Some(Err(_)) => world.count("rollout: command refused"),
        None => {}
    }
}

async fn remove(world: &Rc<World>, host: Host, name: Name) {
    let removed = repeat(world, host, TRIES_MAX, move |live: Rc<Live>| {
        let name = name.clone();
        Box::pin(async move { live.engine.remove_rollout(&name, by(host), live.now()).await.map(drop) })
            as Doing<()>
    });
    if let Some(Ok(())) = removed.await {
        world.count("rollout: removed");
    }
}

/// Changes labels of devices, declares further ones and removes some until the world is calm.
async fn change_devices(world: Rc<World>, host: Host) {
    while !world.is_calm() && world.config.interference > 0 {
        world.sleep(world.within(100..=DEVICES_EVERY_MS)).await;
        let index = world.below(DEVICES_MAX + 2);
        if world.chance(300) {
            let name = rollouts::device_name(index);
            let removed = repeat(&world, host, TRIES_MAX, move |live: Rc<Live>| {
                let name = name.clone();
                Box::pin(async move { live.engine.remove_device(&name, false).await.map(drop) }) as Doing<()>
            });
            removed.await;
        } else {
            apply(&world, host, vec![rollouts::device(&world, index)]).await;
        }
    }
}

async fn apply(world: &Rc<World>, host: Host, devices: Vec<Device>) -> bool {
    let applied = until_answered(world, host, move |live: Rc<Live>| {
        let devices = devices.clone();
        Box::pin(async move { live.engine.apply_devices(&devices, live.now()).await.map(drop) }) as Doing<()>
    });
    applied.await.is_some()
}

/// Resumes paused rollouts when the world is calm, as long as it exists: a pause may arrive late.
async fn resume_all(world: Rc<World>, host: Host) {
    loop {
        world.sleep(RESUME_EVERY_MS).await;
        if !world.is_calm() {
            continue;
        }
        let paused: Vec<Name> = {
            let judge = world.judge.borrow();
            let paused = judge.truth.rollouts.all().filter(|rollout| rollout.paused.is_some());
            paused.map(|rollout| rollout.name.clone()).collect()
        };
        for name in paused {
            tell(&world, host, &name, RolloutCommand::Resume).await;
        }
    }
}

fn by(operator: Host) -> Option<Actor> {
    Some(Actor { name: format!("{operator:?}").into(), claimed: true })
}

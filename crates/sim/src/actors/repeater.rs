//! Two operators who run ended tasks again, and often send the same command concurrently.

use std::{pin::Pin, rc::Rc};

use windlass_core::{ActState, Actor, Command, Json, Resolution, Task, TaskId};
use windlass_engine::{EngineError, Rerun};
use windlass_store::SubmitKey;

use super::{Live, submitter::repeat};
use crate::{
    judge::Seen,
    world::{Host, World},
};

/// The most reruns in a world: each one is another task that must end.
const RERUNS_MAX: u64 = 12;

/// Marks the key of a rerun, in place of the number of a submitter.
const SCOPE: u8 = 200;

/// How often an operator repeats an unanswered call.
const TRIES_MAX: u32 = 5;

type Telling = Pin<Box<dyn Future<Output = Result<u64, EngineError>>>>;
type Starting = Pin<Box<dyn Future<Output = Result<TaskId, EngineError>>>>;

/// Repeats commands and runs tasks again until the world is calm.
pub(crate) async fn repeat_commands(world: Rc<World>, persons: [usize; 2]) {
    let operators = persons.map(Host::Person);
    let mut reruns = 0;
    while !world.is_calm() {
        world.sleep(world.within(50..=1000)).await;
        let task = match world.chance(400) && reruns < RERUNS_MAX {
            true => world.judge.borrow().truth.any_ended(&world),
            false => None,
        };
        if let Some(task) = task {
            reruns += 1;
            rerun(&world, operators, &task, reruns).await;
        } else {
            let task = world.judge.borrow().truth.any_task(&world);
            if let Some(task) = task {
                command(&world, operators, &task).await;
            }
        }
    }
}

/// Runs an ended task again. With a key both operators request the same run, and get the same task.
async fn rerun(world: &Rc<World>, operators: [Host; 2], old: &Task, number: u64) {
    let key = world.chance(500).then(|| {
        let mut scope = [0; 32];
        scope[0] = SCOPE;
        scope[1..9].copy_from_slice(&number.to_be_bytes());
        SubmitKey { scope, fingerprint: scope }
    });
    let steps = old.flow.steps.len() as u64;
    let rerun = Rerun {
        from: world.chance(500).then(|| usize::try_from(world.below(steps)).unwrap_or(0)),
        params: world.chance(300).then(|| Json::parse("{\"size\":3,\"missing\":1}").ok()).flatten(),
        overrides_unique: world.chance(300),
        key,
        fingerprint_before: None,
        by: by(),
        traceparent: None,
    };
    let is_twice = world.chance(400);
    for operator in operators.into_iter().take(if is_twice { 2 } else { 1 }) {
        let (here, old, rerun) = (world.clone(), old.clone(), rerun.clone());
        world.begin_to_submit();
        world.spawn(operator, async move {
            run_again(&here, operator, &old, rerun).await;
            here.end_to_submit();
        });
    }
}

async fn run_again(world: &Rc<World>, operator: Host, old: &Task, rerun: Rerun) {
    let params = Json::merge([Some(&old.input.params), rerun.params.as_ref()].into_iter().flatten());
    let same = old.flow.unique.as_ref().and_then(|unique| unique.key.text(&params).ok());
    let (id, key, overrides) = (old.id, rerun.key.clone(), rerun.overrides_unique);
    world.tell(|| format!("task {id}: {operator:?} asks for {rerun:?}"));
    let tries = if key.is_some() { TRIES_MAX } else { 1 };
    let answer = repeat(world, operator, tries, move |live: Rc<Live>| {
        let rerun = rerun.clone();
        Box::pin(async move {
            let accepted = live.engine.rerun(id, rerun, live.now()).await;
            accepted.map(|accepted| accepted.loaded.task.id)
        }) as Starting
    })
    .await;
    match answer {
        Some(Ok(task)) => {
            world.count(if overrides && same.is_some() {
                "rerun: unique overridden"
            } else {
                "rerun: accepted"
            });
            world.tell(|| format!("task {id}: task {task} is its rerun"));
            world.see(Seen::Accepted { task, key: key.map(|key| key.scope), same });
        }
        Some(Err(_)) => world.count("rerun: refused"),
        None => world.count("rerun: without answer"),
    }
}

/// Sends a task a suitable command, from one operator or both.
async fn command(world: &Rc<World>, operators: [Host; 2], task: &Task) {
    let Some(command) = draw(world, task) else { return };
    let both = world.chance(600);
    for operator in operators.into_iter().take(if both { 2 } else { 1 }) {
        let (here, id, command) = (world.clone(), task.id, command.clone());
        world.spawn(operator, async move {
            // Some repeat a command whatever its result.
            for _ in 0..if here.chance(200) { 2 } else { 1 } {
                tell(&here, operator, id, command.clone()).await;
            }
        });
    }
}

fn draw(world: &World, task: &Task) -> Option<Command> {
    let stuck = task.state.stuck.as_ref().and_then(|stuck| stuck.step);
    let waits = || {
        let delayed =
            |act: &windlass_core::Act| matches!(act.state, ActState::Delayed { .. }) && act.attempt > 0;
        task.open_acts().find(|(_, act)| delayed(act)).map(|(key, _)| key.step)
    };
    if let Some(step) = stuck {
        let resolution = match world.below(4) {
            0 => Resolution::Retry(None),
            1 => Resolution::Retry(Json::parse("{\"size\":2,\"missing\":1}").ok()),
            2 => Resolution::Skip,
            _ => Resolution::Done(None),
        };
        return Some(Command::Resolve { step, resolution, by: by() });
    }
    if let Some(step) = waits().filter(|_| world.chance(700)) {
        world.count("command: retry now");
        return Some(Command::Resolve { step, resolution: Resolution::Retry(None), by: by() });
    }
    match world.below(10) {
        0 => Some(Command::Cancel { by: by() }),
        1 if world.chance(500) => Some(Command::Stop { by: by() }),
        1 => Some(Command::Pause { by: by() }),
        _ if task.state.pause.is_paused() => Some(Command::Resume { by: by() }),
        _ => None,
    }
}

async fn tell(world: &Rc<World>, operator: Host, id: TaskId, command: Command) {
    world.tell(|| format!("task {id}: {operator:?} asks for {command:?}"));
    let told = repeat(world, operator, TRIES_MAX, move |live: Rc<Live>| {
        let command = command.clone();
        Box::pin(async move { Ok(live.engine.tell(id, command).await?.task.state.events) }) as Telling
    })
    .await;
    match told {
        Some(Ok(events)) => {
            world.count("command: repeated");
            world.see(Seen::Told { task: id, events });
        }
        Some(Err(_)) => world.count("command: repeated, refused"),
        None => {}
    }
}

fn by() -> Option<Actor> {
    Some(Actor { name: "repeater".into(), claimed: true })
}

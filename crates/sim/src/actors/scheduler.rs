//! An operator who applies a trigger, gives it other parameters while it fires, and removes it in the end.

use std::{collections::BTreeMap, pin::Pin, rc::Rc};

use windlass_core::{
    CatchUp, Json, Millis, Name, Overlap, SPAN_MAX, Timing, TriggerDefinition, TriggerSchedule,
    TriggerSource, TriggeredFlow,
};
use windlass_engine::EngineError;

use super::{Live, submitter::until_answered};
use crate::{
    flows,
    world::{Host, World},
};

/// The name of the trigger.
const TRIGGER: &str = "ticks";

/// The interval of the trigger: clocks jump by up to two minutes, and each instant is caught up.
const INTERVAL_MS: std::ops::RangeInclusive<u64> = 2_000..=15_000;

/// The longest delay of an instant.
const JITTER_MS_MAX: u64 = 3_000;

/// How often the trigger is removed again once the world is calm.
const REMOVED_EVERY_MS: u64 = 60_000;

type Doing = Pin<Box<dyn Future<Output = Result<(), EngineError>>>>;

/// Applies a flow and a trigger; removes the trigger when the world is calm.
pub(crate) async fn apply_trigger(world: Rc<World>, person: usize) {
    world.begin_to_submit();
    let host = Host::Person(person);
    let flow = flows::triggered();
    let applied = until_answered(&world, host, move |live: Rc<Live>| {
        let flow = flow.clone();
        Box::pin(async move { live.engine.apply_flow(flow, live.now()).await.map(drop) }) as Doing
    });
    if applied.await.is_some() {
        let interval = Millis(world.within(INTERVAL_MS));
        let jitter = Millis(if world.chance(300) { world.below(JITTER_MS_MAX) } else { 0 });
        let mut size = 0;
        while !world.is_calm() {
            apply(&world, host, definition(interval, jitter, size)).await;
            world.sleep(world.within(1_000..=30_000)).await;
            size = world.below(5);
        }
        remove(&world, host).await;
    }
    world.end_to_submit();
    // An earlier call may still be in transit to a slow server, and apply the trigger again.
    loop {
        world.sleep(REMOVED_EVERY_MS).await;
        remove(&world, host).await;
    }
}

async fn apply(world: &Rc<World>, host: Host, definition: TriggerDefinition) {
    let applied = until_answered(world, host, move |live: Rc<Live>| {
        let definition = definition.clone();
        Box::pin(async move {
            let name = Name::new(TRIGGER).unwrap_or_else(|error| panic!("{error}"));
            live.engine.apply_trigger(name, definition, live.now()).await.map(drop)
        }) as Doing
    });
    if applied.await.is_some() {
        world.count("trigger: applied");
    }
}

/// Removes the trigger, however often that takes: a world with a trigger that fires never comes to rest.
async fn remove(world: &Rc<World>, host: Host) {
    loop {
        let removed = until_answered(world, host, |live: Rc<Live>| {
            Box::pin(async move {
                let name = Name::new(TRIGGER).unwrap_or_else(|error| panic!("{error}"));
                match live.engine.remove_trigger(&name, live.now()).await {
                    // It was removed by a call whose answer was lost, or never applied.
                    Ok(_) | Err(EngineError::UnknownTrigger(_)) => Ok(()),
                    Err(error) => Err(error),
                }
            }) as Doing
        });
        if removed.await.is_some() {
            return;
        }
    }
}

/// Every instant is to be fired: none is left out because it is late, or because tasks run.
fn definition(interval: Millis, jitter: Millis, size: u64) -> TriggerDefinition {
    let schedule = TriggerSchedule {
        timing: Timing::Every { interval },
        jitter,
        catch_up: CatchUp::All { within: SPAN_MAX },
        overlap: Overlap::Allow,
    };
    let flow = TriggeredFlow {
        flow: flows::triggered().name,
        params: Json::parse(&format!("{{\"size\":{size}}}")).unwrap_or_else(|_| Json::empty()),
        map: BTreeMap::new(),
        labels: BTreeMap::new(),
        priority: 0,
    };
    TriggerDefinition { source: TriggerSource::Schedule(schedule), flows: vec![flow], classic: false }
}

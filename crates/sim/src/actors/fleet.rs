//! The devices of a world, the operator who declares them, and what happens to their broker.

use std::{pin::Pin, rc::Rc};

use windlass_core::{Device, Name, PresenceRule};
use windlass_engine::EngineError;

use super::{Live, field_device, submitter::until_answered};
use crate::{
    fleet,
    world::{Host, World},
};

/// The number of the operator who declares devices, and the first one of a device, above those of all others.
const OPERATOR: usize = 30;
const FIRST: usize = 31;

/// The longest time until a declaration is changed, and until something happens to the broker, in milliseconds.
const CHANGED_EVERY_MS: u64 = 20_000;
const BROKER_EVERY_MS: u64 = 12_000;

/// A call that was given up has ended by now, in milliseconds, while the world is calm.
const UNDER_WAY_MS: u64 = 5_000;

/// The longest time for which the broker is down, in milliseconds: in general and rarely.
const DOWN_MS: u64 = 3_000;
const DOWN_LONG_MS: u64 = 20_000;

type Doing = Pin<Box<dyn Future<Output = Result<(), EngineError>>>>;

/// Starts the devices, and what concerns all of them.
pub(crate) fn start_fleet(world: &Rc<World>) {
    world.spawn(Host::Person(OPERATOR), declare_devices(world.clone()));
    for index in 0..world.config.fleet.devices.len() {
        world.spawn(Host::Person(FIRST + index), field_device::live(world.clone(), index));
    }
    if world.config.fleet.broker_fails {
        world.spawn(Host::Nature, disturb_broker(world.clone()));
    }
}

/// Declares the devices, changes a declaration at times, and removes a device. In the end all are as they are.
async fn declare_devices(world: Rc<World>) {
    world.begin_to_submit();
    let count = world.config.fleet.devices.len();
    let all = || (0..count).map(|index| world.config.fleet.declaration(index)).collect::<Vec<_>>();
    apply(&world, all()).await;
    while !world.is_calm() {
        world.sleep(world.within(500..=CHANGED_EVERY_MS)).await;
        let index = usize::try_from(world.below(count as u64)).unwrap_or(0);
        let mut device = world.config.fleet.declaration(index);
        match world.below(4) {
            0 => remove(&world, fleet::device(index), world.chance(300)).await,
            1 => {
                device.presence = PresenceRule::Always;
                apply(&world, vec![device]).await;
            }
            _ => {
                apply(&world, all()).await;
            }
        }
    }
    // A call that a server was too slow to answer may still be under way: it may remove a device that is declared now.
    for _ in 0..2 {
        while !apply(&world, all()).await {}
        world.sleep(UNDER_WAY_MS).await;
    }
    world.end_to_submit();
}

async fn apply(world: &Rc<World>, devices: Vec<Device>) -> bool {
    let applied = until_answered(world, Host::Person(OPERATOR), move |live: Rc<Live>| {
        let devices = devices.clone();
        Box::pin(async move { live.engine.apply_devices(&devices, live.now()).await.map(drop) }) as Doing
    });
    let is_applied = applied.await.is_some();
    if is_applied {
        world.count("devices: applied");
    }
    is_applied
}

async fn remove(world: &Rc<World>, device: Name, force: bool) {
    let removed = until_answered(world, Host::Person(OPERATOR), move |live: Rc<Live>| {
        let device = device.clone();
        Box::pin(async move { live.engine.remove_device(&device, force).await.map(drop) }) as Doing
    });
    if removed.await.is_some() {
        world.count("device: removed");
    }
}

/// The broker restarts, or is down for a while, until the world is calm.
async fn disturb_broker(world: Rc<World>) {
    loop {
        world.sleep(world.within(500..=BROKER_EVERY_MS)).await;
        if world.is_calm() {
            return;
        }
        world.mqtt.go_down();
        if world.config.fleet.broker_forgets && world.chance(400) {
            world.count("fault: broker of devices wiped");
            world.tell(|| "the broker of devices loses everything".to_owned());
            world.mqtt.wipe();
        }
        world.count("fault: broker of devices down");
        let down = world.within(10..=if world.chance(200) { DOWN_LONG_MS } else { DOWN_MS });
        world.tell(|| format!("the broker of devices is down for {down} ms"));
        world.sleep(down).await;
        world.mqtt.come_up();
    }
}

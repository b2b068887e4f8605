//! Background work of servers: they delete old rows, and report damaged rows.

use std::{
    rc::Rc,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use windlass_core::Millis;
use windlass_engine::{
    loops,
    services::{DamageReporter, DeviceKeeper, EnqueueImporter, Janitor, RolloutKeeper, TriggerKeeper},
};
use windlass_store::Retention;

use super::{Live, application::Reader, consumer};
use crate::{
    kinds::Kind,
    stores::MqttThere,
    world::{Device, Host, World},
};

/// The pause between two rounds of the janitor.
const SWEEP_MS: u64 = 3_000;

/// The shortest retention of ended tasks: longer than duplicates are deduplicated to them (`flows::unique`).
pub(crate) const KEPT_MS: u64 = 12_000;

/// Starts this server's background work for the kind of world.
pub(super) fn begin(world: &Rc<World>, server: usize, live: &Rc<Live>) {
    let (host, engine) = (Host::Server(server), &live.engine);
    let count = |what: &'static str| {
        let world = world.clone();
        move || world.count(what)
    };
    if world.config.is(Kind::Sweeps) {
        let retention = Retention {
            tasks: Millis(KEPT_MS + world.below(20_000)),
            logs: Millis(world.within(1_000..=20_000)),
            audit: Millis(world.within(1_000..=20_000)),
            keeps_unannounced: world.config.announces,
            messages_until: None,
        };
        let elapsed = world.elapsed();
        let janitor = Janitor::new(engine.clone(), retention, move || Millis(elapsed.load(Relaxed)));
        let every = Millis(world.within(SWEEP_MS / 4..=SWEEP_MS));
        let deleted = count("janitor deleted something");
        world.spawn(host, loops::sweep(janitor, every, live.clone(), move |_| deleted()));
    }
    if world.config.is(Kind::Broker) {
        consumer::begin(world, server, live);
    }
    if world.config.is(Kind::Enqueued) {
        let importer = EnqueueImporter::new(engine.clone(), Arc::new(Reader));
        let settled = count("enqueued tasks settled");
        world.spawn(host, loops::import_enqueued(importer, live.clone(), move |_| settled()));
    }
    if world.config.is(Kind::Triggers) {
        world.spawn(host, loops::keep_triggers(TriggerKeeper::new(engine.clone()), live.clone()));
    }
    if world.config.is(Kind::Rollouts) {
        world.spawn(host, loops::keep_rollouts(RolloutKeeper::new(engine.clone()), live.clone()));
    }
    if world.config.is(Kind::Devices) {
        give_jobs(world, host, live);
    }
    if world.config.is(Kind::DamagedRows) {
        let raised = count("damaged row reported");
        let raised = move |alarms| (0..alarms).for_each(|_| raised());
        world.spawn(host, loops::report_damage(DamageReporter::new(engine.clone()), live.clone(), raised));
    }
}

/// Gives devices their jobs over a connection to their broker.
fn give_jobs(world: &Rc<World>, host: Host, live: &Rc<Live>) {
    let way = Device::default();
    world.add_device(way.clone());
    let dice = fastrand::Rng::with_seed(world.random());
    let network = MqttThere::new(world.mqtt.clone(), way, dice, world.config.faults.doubled, world.elapsed());
    let keeper = Arc::new(DeviceKeeper::new(live.engine.clone(), Arc::new(network)));
    world.spawn(host, loops::give_jobs(keeper.clone(), live.clone()));
    world.spawn(host, loops::hear_devices(keeper.clone(), live.clone()));
    live.keeper.replace(Some(keeper));
}

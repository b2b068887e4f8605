//! What servers do beside the work: they delete what was kept long enough, and report damaged rows.

use std::{rc::Rc, sync::Arc};

use windlass_core::Millis;
use windlass_engine::{
    loops,
    services::{DamageReporter, EnqueueImporter, Janitor},
};
use windlass_store::Retention;

use super::{Live, application::Reader, consumer};
use crate::{
    kinds::Kind,
    world::{Host, World},
};

/// Between two rounds of the janitor.
const SWEEP_MS: u64 = 3_000;

/// For how long ended tasks are kept at least: longer than one stands for others (`flows::unique`).
pub(crate) const KEPT_MS: u64 = 12_000;

/// Begins what this server does beside the work in such a world.
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
            keeps_unannounced: world.config.announces,
        };
        let janitor = Janitor::new(engine.clone(), retention);
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
    if world.config.is(Kind::DamagedRows) {
        let raised = count("damaged row reported");
        let raised = move |alarms| (0..alarms).for_each(|_| raised());
        world.spawn(host, loops::report_damage(DamageReporter::new(engine.clone()), live.clone(), raised));
    }
}

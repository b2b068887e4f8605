//! What servers do beside the work: they delete what was kept long enough, and report damaged rows.

use std::{rc::Rc, sync::Arc};

use windlass_core::Millis;
use windlass_engine::services::{DamageReporter, EnqueueImporter, Janitor};
use windlass_store::Retention;

use super::{Live, application::Reader, consumer};
use crate::{
    kinds::Kind,
    world::{Host, World},
};

/// Between two rounds of the janitor.
const SWEEP_MS: u64 = 3_000;

/// Between two looks for damaged rows, as in the program.
const REPORT_MS: u64 = 1_000;

/// Between two looks for tasks that were enqueued, as in the program.
const ENQUEUED_MS: u64 = 1_000;

/// For how long ended tasks are kept at least: longer than one stands for others (`flows::unique`).
pub(crate) const KEPT_MS: u64 = 12_000;

/// Begins what this server does beside the work in such a world.
pub(super) fn begin(world: &Rc<World>, server: usize, live: &Rc<Live>) {
    if world.config.is(Kind::Sweeps) {
        world.spawn(Host::Server(server), sweep(world.clone(), live.clone()));
    }
    if world.config.is(Kind::Broker) {
        consumer::begin(world, server, live);
    }
    if world.config.is(Kind::Enqueued) {
        world.spawn(Host::Server(server), take_in(world.clone(), live.clone()));
    }
    if world.config.is(Kind::DamagedRows) {
        world.spawn(Host::Server(server), report_damage(world.clone(), live.clone()));
    }
}

async fn sweep(world: Rc<World>, live: Rc<Live>) {
    let retention = Retention {
        tasks: Millis(KEPT_MS + world.below(20_000)),
        logs: Millis(world.within(1_000..=20_000)),
        keeps_unannounced: world.config.announces,
    };
    let janitor = Janitor::new(live.engine.clone(), retention);
    loop {
        world.sleep(world.within(SWEEP_MS / 4..=SWEEP_MS)).await;
        // What fails is tried again in the next round.
        while janitor.run_once(live.now()).await.is_ok_and(|rows| rows > 0) {
            world.count("janitor deleted something");
        }
    }
}

async fn take_in(world: Rc<World>, live: Rc<Live>) {
    let enqueue_importer = EnqueueImporter::new(live.engine.clone(), Arc::new(Reader));
    loop {
        // What fails is tried again in the next round.
        while enqueue_importer.run_once(live.now()).await.is_ok_and(|settled| settled > 0) {
            world.count("enqueued tasks settled");
        }
        world.sleep(ENQUEUED_MS).await;
    }
}

async fn report_damage(world: Rc<World>, live: Rc<Live>) {
    let reporter = DamageReporter::new(live.engine.clone());
    loop {
        world.sleep(REPORT_MS).await;
        if let Ok(raised @ 1..) = reporter.run_once().await {
            (0..raised).for_each(|_| world.count("damaged row reported"));
        }
    }
}

//! Faults of machines: they are killed, hang, or are disconnected; clocks jump; disks fill up and slow down.

use std::rc::Rc;

use super::{servers, worker};
use crate::{
    config::Fault,
    judge::Seen,
    world::{Host, World},
};

/// Causes faults until the world is calm.
pub(crate) async fn rage(world: Rc<World>) {
    for server in 0..world.servers.count() {
        servers::start(&world, server);
    }
    for index in 0..world.config.workers.len() {
        if !world.config.workers[index].is_spare {
            worker::start_worker(&world, index);
        }
    }
    let faults = world.config.faults.clone();
    while !faults.kinds.is_empty() {
        world.sleep(world.within(1..=faults.every_ms.max(1))).await;
        if world.is_calm() {
            return;
        }
        if let Some(fault) = world.choose(&faults.kinds) {
            strike(&world, *fault);
        }
    }
}

/// Ends all faults. Hosts that are stopped, disconnected or slow recover by themselves at the time drawn for
/// it.
pub(crate) fn be_calm(world: &Rc<World>) {
    world.become_calm();
    world.tell(|| "from here on nothing goes wrong".to_owned());
}

fn strike(world: &Rc<World>, fault: Fault) {
    let server = usize::try_from(world.below(world.servers.count() as u64)).unwrap_or(0);
    let index = usize::try_from(world.below(world.config.workers.len() as u64)).unwrap_or(0);
    match fault {
        Fault::ServerKilled => {
            if world.servers.live(server).is_some() && !world.is_paused(Host::Server(server)) {
                world.count("fault: server killed");
                servers::kill(world, server);
                let down = if world.chance(500) { world.below(100) } else { world.below(8000) };
                world.after(down, "server starts", move |world| servers::start(world, server));
            }
        }
        Fault::ServerPaused => stand_still(world, Host::Server(server), "fault: server paused"),
        Fault::WorkerKilled => {
            world.count("fault: worker killed");
            kill_worker(world, index);
        }
        Fault::WorkerPaused => {
            if world.chance(500) {
                stand_still(world, Host::Commands(index), "fault: commands paused");
            }
            stand_still(world, Host::Worker(index), "fault: worker paused");
        }
        Fault::Partition => {
            world.count("fault: partition");
            let host = if world.chance(800) { Host::Worker(index) } else { Host::Person(0) };
            let length = world.within(100..=20_000);
            world.tell(|| format!("{host:?} is cut off from server {server} for {length} ms"));
            world.note_touch(server);
            world.network.cut(host, server);
            world.after(length, "network heals", move |world| world.network.heal(host, server));
        }
        Fault::ClockJump => {
            world.count("fault: clock jumped");
            let far = if world.chance(300) { 120_000 } else { 5_000 };
            let jump = i64::try_from(world.below(2 * far)).unwrap_or(0) - i64::try_from(far).unwrap_or(0);
            world.tell(|| format!("the clock of server {server} is wrong by {jump} ms"));
            world.servers.set_clock(server, jump);
        }
        Fault::StoreFull => {
            world.count("fault: disk full");
            let device = world.servers.device(server);
            device.set_full(true, world);
            world.tell(|| format!("the disk of server {server} is full"));
            world.after(world.within(100..=5000), "room is made", move |world| device.set_full(false, world));
        }
        Fault::ServerStutters => {
            world.count("fault: server stutters");
            stutter(world, Host::Server(server), world.within(10..=60));
        }
        Fault::ServerStopped => {
            if world.servers.live(server).is_some() && !world.is_paused(Host::Server(server)) {
                world.count("fault: server stopped in good order");
                servers::stop(world, server);
                let down = world.within(500..=3000);
                world.after(down, "server starts", move |world| start_if_down(world, server));
            }
        }
        Fault::StoreSlow => {
            world.count("fault: disk slow");
            let until = world.now() + world.within(100..=5000);
            world.servers.device(server).slow_down(until);
        }
    }
}

/// Starts a server once it has stopped.
fn start_if_down(world: &Rc<World>, server: usize) {
    match world.is_up(Host::Server(server)) {
        true => world.after(100, "server starts", move |world| start_if_down(world, server)),
        false => servers::start(world, server),
    }
}

/// Pauses and resumes a host this number of times.
fn stutter(world: &Rc<World>, host: Host, times: u64) {
    if times == 0 || world.is_calm() || world.is_paused(host) {
        return;
    }
    if let Host::Server(server) = host {
        world.note_touch(server);
    }
    world.pause(host);
    let (stands, runs) = (world.within(300..=900), world.within(10..=600));
    world.after(stands, "goes on", move |world| {
        world.resume(host);
        world.see(Seen::ServerResumed);
        world.after(runs, "stutters", move |world| stutter(world, host, times - 1));
    });
}

fn stand_still(world: &Rc<World>, host: Host, what: &'static str) {
    if world.is_paused(host) {
        return;
    }
    world.count(what);
    let length = if world.chance(500) { world.within(10..=900) } else { world.within(1000..=40_000) };
    world.tell(|| format!("{host:?} stands still for {length} ms"));
    if let Host::Server(server) = host {
        world.note_touch(server);
    }
    world.pause(host);
    world.after(length, "goes on", move |world| {
        world.resume(host);
        if matches!(host, Host::Server(_)) {
            world.see(Seen::ServerResumed);
        }
    });
}

/// Kills a worker's process together with its commands. Another one starts some time later.
pub(super) fn kill_worker(world: &Rc<World>, index: usize) {
    if !world.is_up(Host::Worker(index)) {
        return;
    }
    world.tell(|| format!("worker {index} is killed"));
    world.see(Seen::WorkerKilled { worker: index });
    world.kill(Host::Worker(index));
    world.kill(Host::Commands(index));
    let down = world.within(10..=5000);
    world.after(down, "worker starts", move |world| worker::start_worker(world, index));
}

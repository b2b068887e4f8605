//! Processes that campaign for a name, lead, renew and resign, as the client library does. Some die while they lead.

use std::{pin::Pin, rc::Rc, sync::atomic::Ordering::Relaxed};

use windlass_core::{Leader, LockName, Millis, leader_lock};
use windlass_engine::{Campaign, Election, EngineError};

use super::{
    Live,
    chooser::{Choice, Chooser},
    submitter::repeat,
};
use crate::{
    judge::Seen,
    world::{Host, World},
};

/// The name that all of them campaign for.
const NAME: &str = "fleet/leader";

/// The lease of each of them.
const LEASE_MS: u64 = 4_000;

/// The part of the lease in which a leader may act, as the client library counts it.
const ACTS_MS: u64 = LEASE_MS - LEASE_MS / 50;

type Electing = Pin<Box<dyn Future<Output = Result<Election, EngineError>>>>;
type Resigning = Pin<Box<dyn Future<Output = Result<(), EngineError>>>>;

/// Campaigns until the world is calm.
pub(crate) async fn campaign_for_name(world: Rc<World>, person: usize, chooser: Option<Rc<Chooser>>) {
    let process = Process { host: Host::Person(person), person, world, chooser };
    for term in 1.. {
        let number = (person as u128) << 64 | term;
        if !process.elected(number).await {
            return;
        }
        process.world.sleep(process.world.within(10..=3_000)).await;
    }
}

/// Whether this is the lock that they campaign for. An operator who takes it deposes a leader, which may act until its
/// time is over; the lock may be free when the operator chooses it.
pub(super) fn is_led(lock: &LockName) -> bool {
    leader_lock(NAME).as_ref() == Some(lock)
}

struct Process {
    world: Rc<World>,
    host: Host,
    person: usize,
    /// Who chooses the candidate, in place of the store alone.
    chooser: Option<Rc<Chooser>>,
}

impl Process {
    /// Campaigns, and leads for a while. False when the world is calm.
    async fn elected(&self, number: u128) -> bool {
        let world = &self.world;
        while !world.is_calm() {
            let sent = world.now();
            let Choice::Chosen(chosen_until) = self.choose() else {
                world.sleep(world.within(100..=1_000)).await;
                continue;
            };
            if let Some(fence) = self.ask(number, None).await.and_then(|election| election.fence) {
                world.count("leader: elected");
                self.lead(number, fence, sent + ACTS_MS, chosen_until).await;
                return true;
            }
            world.sleep(world.within(100..=1_000)).await;
        }
        false
    }

    /// Leads until it resigns, dies, or has lost its leadership.
    async fn lead(&self, number: u128, fence: u64, mut confirmed_until: u64, mut chosen_until: u64) {
        let world = &self.world;
        let ends = world.now() + world.within(500..=20_000);
        let dies = world.chance(300);
        loop {
            let until = confirmed_until.min(chosen_until);
            world.see(Seen::Leads { number, fence, until });
            world.sleep(world.within(50..=LEASE_MS / 3)).await;
            if world.now() >= until {
                world.count("leader: not renewed in time");
                return;
            }
            if world.now() >= ends || world.is_calm() {
                world.see(Seen::LeadsNoMore { number });
                world.count(if dies { "leader: died" } else { "leader: resigned" });
                if !dies {
                    self.resign(number).await;
                }
                return;
            }
            match self.choose() {
                Choice::Chosen(until) => chosen_until = until,
                Choice::Silence => {}
                Choice::Other => {
                    world.count("leader: chosen no more");
                    world.see(Seen::LeadsNoMore { number });
                    return;
                }
            }
            let sent = world.now();
            match self.ask(number, Some(fence)).await {
                Some(Election { fence: Some(_), .. }) => {
                    confirmed_until = confirmed_until.max(sent + ACTS_MS);
                }
                Some(_) => {
                    world.count("leader: deposed");
                    world.see(Seen::LeadsNoMore { number });
                    return;
                }
                None => world.count("leader: renewal without answer"),
            }
        }
    }

    async fn ask(&self, number: u128, renews: Option<u64>) -> Option<Election> {
        let elapsed = self.world.elapsed();
        let answer = repeat(&self.world, self.host, 1, move |live: Rc<Live>| {
            let elapsed = elapsed.clone();
            let leader =
                Leader { name: NAME.into(), id: "process".into(), value: "".into(), lease: Millis(LEASE_MS) };
            Box::pin(async move {
                let campaign = Campaign { number, leader, renews };
                live.engine.campaign(&campaign, &|| Millis(elapsed.load(Relaxed))).await
            }) as Electing
        });
        answer.await?.ok()
    }

    fn choose(&self) -> Choice {
        let ask = |chooser: &Rc<Chooser>| chooser.ask(&self.world, self.person);
        self.chooser.as_ref().map_or(Choice::Chosen(u64::MAX), ask)
    }

    async fn resign(&self, number: u128) {
        let resigned = repeat(&self.world, self.host, 3, move |live: Rc<Live>| {
            Box::pin(async move { live.engine.resign(NAME, number).await }) as Resigning
        });
        if resigned.await.is_none() {
            self.world.count("leader: resignation without answer");
        }
        if let Some(chooser) = &self.chooser {
            chooser.resign(self.person);
        }
    }
}

//! Processes that lead under a lease: what remains of those that died.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::SeqCst},
};

use windlass_core::{Leader, Millis};
use windlass_engine::{Campaign, services::Janitor};
use windlass_store::Retention;

use crate::world::World;

const LEASE: u64 = 4_000;

/// How long the lock of a leader stays after its lease.
const KEPT: u64 = 600_000;

/// The process of one server, with its own time.
struct Servant {
    world: World,
    uptime: Arc<AtomicU64>,
    janitor: Janitor,
}

impl Servant {
    fn new() -> Self {
        let (world, uptime) = (World::new(), Arc::new(AtomicU64::new(0)));
        let retention =
            Retention { tasks: Millis(0), logs: Millis(0), keeps_unannounced: false, ..Retention::default() };
        let time = uptime.clone();
        let janitor = Janitor::new(world.engine.clone(), retention, move || Millis(time.load(SeqCst)));
        Self { world, uptime, janitor }
    }

    /// The fence of a candidate that campaigns or renews.
    fn campaign(&self, number: u128, renews: Option<u64>) -> Option<u64> {
        let leader = Leader { name: "a/b".into(), id: "host".into(), value: "".into(), lease: Millis(LEASE) };
        let campaign = Campaign { number, leader, renews };
        let time = || Millis(self.uptime.load(SeqCst));
        self.world.drive(self.world.engine.campaign(&campaign, &time)).unwrap().fence
    }

    /// Time passes, then the janitor looks around until nothing is left to do. Returns how many locks there are then.
    fn locks_after(&self, passed: u64) -> usize {
        self.uptime.fetch_add(passed, SeqCst);
        while self.world.drive(self.janitor.run_once(self.world.now())).unwrap() > 0 {}
        self.world.drive(self.world.engine.locks(None, 10)).unwrap().len()
    }
}

#[test]
fn the_lock_of_a_leader_that_died_is_deleted_in_the_end_and_the_fence_grows() {
    let servant = Servant::new();
    let first = servant.campaign(1, None).expect("it is free");
    assert_eq!(servant.locks_after(0), 1);
    assert_eq!(servant.locks_after(LEASE + KEPT - 1), 1, "an operator can see who died");
    assert_eq!(servant.campaign(1, Some(first)), Some(first), "it had stood still");
    assert_eq!(servant.locks_after(1), 1, "it has renewed");
    assert_eq!(servant.locks_after(LEASE + KEPT), 0);
    assert_eq!(servant.campaign(1, Some(first)), None, "who was deposed does not lead by a renewal");
    let second = servant.campaign(2, None).expect("it is free");
    assert!(second > first);
}

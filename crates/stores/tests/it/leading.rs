//! Writes of the leader of a service: a takeover cannot come between the check of its lease and its commit, and the check
//! takes no round trip.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use tokio::time::timeout;
use windlass_conformance::block_on;
use windlass_core::{ActKey, Millis};
use windlass_store::{
    AttemptId, Change, Leadership, Leave, Now, Outcome, Retention, ServerId, Service, Store, StoreError,
    archive,
};
use windlass_stores::connect;

use crate::disturbed::{NOW, PATIENCE, SESSION, add_flow, id, line, new_task, renew};

/// A database as it is asked.
pub(crate) struct Shared<'d> {
    pub(crate) store: &'d dyn Store,
    pub(crate) ask: &'d (dyn Fn(&str) -> String + Sync),
    /// A statement that sleeps for 3 s. A commit waits longer for a lock.
    pub(crate) sleep: &'d str,
    /// How many connections sleep.
    pub(crate) asleep: &'d str,
}

impl Shared<'_> {
    fn lead(&self) -> Leadership {
        let (service, length) = (Service::Timekeeping, Millis::from_secs(3));
        block_on(self.store.lease(service, ServerId(1), length, NOW)).unwrap().leadership(service)
    }

    fn commit(&self, change: Change, led: Option<Leadership>) -> Result<Vec<Outcome>, StoreError> {
        let nobody = Leave::default();
        let committed = self.store.commit_and_claim(vec![change], &[], &nobody, led, NOW);
        block_on(committed).map(|(outcomes, _)| outcomes)
    }

    /// Another server is about to take the lease: what is committed meanwhile waits for it, and is refused then.
    pub(crate) fn a_takeover_is_waited_for(&self) {
        let flow = add_flow(self.store);
        assert_eq!(self.commit(new_task(&flow, 1), None).unwrap(), [Outcome::Committed]);
        for change in [new_task(&flow, 2), line(1)] {
            let led = Some(self.lead());
            let committed = thread::scope(|scope| {
                let takeover = scope.spawn(|| {
                    (self.ask)(&format!(
                        "begin; update windlass_service set fence = fence + 1; {}; commit",
                        self.sleep
                    ))
                });
                let until = Instant::now() + PATIENCE;
                while (self.ask)(self.asleep) != "1" {
                    assert!(Instant::now() < until && !takeover.is_finished(), "it has the row");
                    thread::sleep(Duration::from_millis(10));
                }
                self.commit(change, led)
            });
            assert_eq!(committed, Err(StoreError::LeaseLost));
        }
    }

    /// Each write takes as many round trips with a lease as without one.
    pub(crate) fn a_check_takes_no_trip(&self) {
        let flow = add_flow(self.store);
        renew(self.store);
        let led = Some(self.lead());
        let trips = || self.store.cluster().and_then(|cluster| cluster.round_trips()).unwrap();
        let commits = |changes: [Change; 2], led| {
            changes.map(|change| {
                let before = trips();
                assert_eq!(self.commit(change, led).unwrap(), [Outcome::Committed]);
                trips() - before
            })
        };
        // The first commit of a connection may have to prepare statements.
        commits([new_task(&flow, 1), line(1)], led);
        let without = commits([new_task(&flow, 2), line(2)], None);
        assert_eq!((commits([new_task(&flow, 3), line(3)], led), without), ([1, 2], [1, 2]));
        let attempt = AttemptId { task: id(1), key: ActKey::forward(0), attempt: 1, claim: 1 };
        let others = |led| {
            let before = trips();
            block_on(self.store.release(SESSION, attempt, led, NOW)).unwrap();
            let released = trips() - before;
            block_on(self.store.sweep(&Retention::default(), led, NOW, 10)).unwrap();
            [released, trips() - before - released]
        };
        assert_eq!(others(led), others(None));
    }
}

/// Fences of leases go on over restarts, and over an import of what another database holds, at `from`: also over one that
/// was broken off and cleared.
pub(crate) async fn fences_never_fall(into: String, from: String) {
    let (into, from) = (connect(&into).unwrap(), connect(&from).unwrap());
    let mut exported = Vec::new();
    let mut snapshot = from.snapshot().await.unwrap();
    archive::export(&mut *snapshot, &mut exported, &mut |_| {}, NOW).await.unwrap();
    let (mut fence, mut before) = (0, None);
    for number in 1..=4 {
        let store = into.open().await.unwrap();
        let now = Now { mono: Millis(NOW.mono.0 + 3_000 * number), ..NOW };
        let service = Service::Sweeping;
        let lease = store.lease(service, ServerId(number.into()), Millis::from_secs(3), now).await.unwrap();
        assert!(lease.holder == ServerId(number.into()) && lease.fence > fence, "{lease:?} after {fence}");
        let swept = store.sweep(&Retention::default(), before, now, 10).await;
        assert_eq!(swept.is_err(), before.is_some(), "{swept:?}");
        (fence, before) = (lease.fence, Some(lease.leadership(service)));
        if number == 2 {
            archive::import(&*store, &mut &exported[..], &mut |_| {}, now).await.unwrap();
            into.to_fill().await.unwrap().clear().await.unwrap();
        }
        if number == 3 {
            archive::import(&*store, &mut &exported[..], &mut |_| {}, now).await.unwrap();
        }
    }
}

/// A server that waits to lead a service hears when its leader has ended, and not when another server has.
pub(crate) async fn a_release_is_heard(store: Arc<dyn Store>) {
    const WANTED: Service = Service::Timekeeping;
    // Longer than any store takes to hear of it.
    const SILENCE: Duration = Duration::from_secs(1);

    let lead = |service, server| {
        let store = store.clone();
        async move {
            let lease = store.lease(service, ServerId(server), Millis::from_secs(3), NOW);
            lease.await.unwrap().holder
        }
    };
    assert_eq!(lead(WANTED, 1).await, ServerId(1));
    assert_eq!(lead(Service::Sweeping, 2).await, ServerId(2));
    store.leave(ServerId(2)).await.unwrap();
    let mut released = store.cluster().unwrap().released(&[WANTED]);
    assert!(timeout(SILENCE, &mut released).await.is_err(), "nobody has released this one");
    store.leave(ServerId(1)).await.unwrap();
    timeout(PATIENCE, released).await.unwrap();
    assert_eq!(lead(WANTED, 3).await, ServerId(3));
}

//! Servers on one store: their list, and which one runs a service for all.

use windlass_core::{Command, Millis, TaskId};
use windlass_store::{
    Announced, Ask, Change, Claimed, Leadership, Leave, Outcome, Retention, SERVER_FORGOTTEN_AFTER,
    SERVER_SILENT_AFTER, ServerId, ServerState, Service, ServiceLease, SessionId, StoreError, TaskChange,
};

use crate::{
    World,
    history::line,
    topic,
    world::{claim_request, report},
};

topic![
    servers_are_listed_as_they_were_heard_of_last,
    a_server_that_leaves_is_forgotten_and_one_that_is_silent_is_in_time,
    a_service_has_one_server_until_its_lease_ends,
    whoever_takes_a_service_over_gets_a_higher_fence,
    what_a_server_did_that_leaves_is_free_at_once,
    a_leader_whose_lease_another_server_has_writes_nothing,
    a_lease_that_has_ended_stands_until_another_server_takes_it,
];

const LENGTH: Millis = Millis::from_secs(3);

async fn register(world: &mut World, number: u128, address: &str) {
    let server = ServerState {
        id: ServerId(number),
        version: "0.2.0".into(),
        address: address.into(),
        level: 2,
        started_at: world.now.wall,
        heard_at: world.now.wall,
        heard: world.now.mono,
    };
    world.store().register(server).await.expect("registering succeeds");
}

async fn servers(world: &mut World) -> Vec<ServerState> {
    world.store().servers().await.expect("listing servers succeeds")
}

async fn lease(world: &mut World, service: Service, server: u128) -> ServiceLease {
    let now = world.now;
    world.store().lease(service, ServerId(server), LENGTH, now).await.expect("asking for a lease succeeds")
}

async fn leave(world: &mut World, server: u128) {
    world.store().leave(ServerId(server)).await.expect("leaving succeeds");
}

async fn servers_are_listed_as_they_were_heard_of_last(mut world: World) {
    assert_eq!(servers(&mut world).await, []);
    register(&mut world, 2, "http://two").await;
    world.pass(Millis(10));
    register(&mut world, 1, "http://one").await;
    let first = servers(&mut world).await.remove(0);
    world.pass(Millis(1_000));
    let again = ServerState {
        address: "http://two:2".into(),
        level: 3,
        heard_at: world.now.wall,
        heard: world.now.mono,
        ..first
    };
    world.store().register(again.clone()).await.expect("registering succeeds");
    let listed = servers(&mut world).await;
    assert_eq!(listed[0], again);
    assert_eq!((listed.len(), &*listed[1].address), (2, "http://one"));
    world.pass(Millis(SERVER_SILENT_AFTER.0 - 1_000));
    assert_eq!(listed.iter().map(|server| server.is_up(world.now.mono)).collect::<Vec<_>>(), [true, false]);
}

async fn a_server_that_leaves_is_forgotten_and_one_that_is_silent_is_in_time(mut world: World) {
    register(&mut world, 1, "http://one").await;
    register(&mut world, 2, "http://two").await;
    leave(&mut world, 1).await;
    assert_eq!(servers(&mut world).await.len(), 1);
    world.pass(SERVER_FORGOTTEN_AFTER);
    register(&mut world, 3, "http://three").await;
    let listed = servers(&mut world).await;
    assert_eq!(listed.iter().map(|server| server.id.0).collect::<Vec<_>>(), [3]);
}

async fn a_service_has_one_server_until_its_lease_ends(mut world: World) {
    let taken = lease(&mut world, Service::Timekeeping, 1).await;
    assert_eq!((taken.holder, taken.until.0), (ServerId(1), world.now.mono.0 + LENGTH.0));
    assert_eq!(lease(&mut world, Service::Timekeeping, 2).await, taken, "it sees the holder");
    assert_eq!(lease(&mut world, Service::Sweeping, 2).await.holder, ServerId(2), "each by itself");
    world.pass(Millis(LENGTH.0 - 1));
    assert_eq!(lease(&mut world, Service::Timekeeping, 2).await, taken);
    let renewed = lease(&mut world, Service::Timekeeping, 1).await;
    assert_eq!((renewed.fence, renewed.until.0), (taken.fence, world.now.mono.0 + LENGTH.0));
    world.pass(Millis(LENGTH.0 - 1));
    assert_eq!(lease(&mut world, Service::Timekeeping, 2).await, renewed);
    world.pass(Millis(1));
    assert_eq!(lease(&mut world, Service::Timekeeping, 2).await.holder, ServerId(2));
}

async fn whoever_takes_a_service_over_gets_a_higher_fence(mut world: World) {
    let mut fence = 0;
    for server in [1, 2, 1] {
        let lease = lease(&mut world, Service::Timekeeping, server).await;
        assert!(lease.holder == ServerId(server) && lease.fence > fence, "{lease:?} after {fence}");
        fence = lease.fence;
        world.pass(LENGTH);
    }
    world.reopen().await;
    world.pass(LENGTH);
    assert!(lease(&mut world, Service::Timekeeping, 3).await.fence > fence);
}

async fn what_a_server_did_that_leaves_is_free_at_once(mut world: World) {
    register(&mut world, 1, "http://one").await;
    let before = lease(&mut world, Service::Timekeeping, 1).await;
    let other = lease(&mut world, Service::Sweeping, 2).await;
    leave(&mut world, 1).await;
    let after = lease(&mut world, Service::Timekeeping, 3).await;
    assert!(after.holder == ServerId(3) && after.fence > before.fence);
    assert_eq!(lease(&mut world, Service::Sweeping, 3).await, other);
}

/// Deletes everything that has ended.
const KEEPS_NOTHING: Retention = Retention {
    tasks: Millis(0),
    logs: Millis(0),
    audit: Millis(0),
    keeps_unannounced: false,
    messages_until: None,
};

/// Every way in which the leader of a service writes, beside settling what applications enqueued.
async fn write_each_way(
    world: &mut World,
    led: Leadership,
    changes: [TaskChange; 2],
    claimed: &Claimed,
    announced: Announced,
) -> Vec<Result<(), StoreError>> {
    let (now, led, nobody) = (world.now, Some(led), Leave::default());
    let store = world.store();
    let [new, next] = changes;
    let ask = Ask { session: SessionId(2), claim_request: claim_request("work", 1) };
    let mut results = Vec::new();
    // A batch of new tasks only, one that reads what it changes, one that also claims, and one without a version.
    let batches: [(Change, &[Ask]); 4] = [
        (new.into(), &[]),
        (next.into(), &[]),
        (Change::Probe, &[ask]),
        (Change::Announced(vec![announced]), &[]),
    ];
    for (change, asks) in batches {
        let written = store.commit_and_claim(vec![change], asks, &nobody, led, now).await;
        results.push(written.map(|(outcomes, _)| assert_eq!(outcomes, [Outcome::Committed])));
    }
    results.push(store.release(claimed.session, claimed.id, led, now).await);
    results.push(store.sweep(&KEEPS_NOTHING, led, now, 100).await.map(drop));
    results
}

async fn a_leader_whose_lease_another_server_has_writes_nothing(mut world: World) {
    if world.store().cluster().is_none() {
        // No other server can have the lease.
        return;
    }
    let flow = world.add_flow(line("flow", 1)).await;
    let session = world.session(1).await;
    world.session(2).await;
    let (taken, waits, ended) =
        (world.submit(&flow).await, world.submit(&flow).await, world.submit(&flow).await);
    let claimed = world.claim_one(session).await;
    assert_eq!(claimed.id.task, taken);
    world.apply(ended, Command::Cancel { by: None }).await;
    let mut unannounced = world.new_task(&flow, |_| {});
    unannounced.announces = true;
    let announced = Announced { task: unannounced.task.id, after: 0 };
    world.commit_one(unannounced).await;
    let changes = [world.new_task(&flow, |_| {}), world.decide(waits, &Command::Cancel { by: None }).await];
    let new = changes[0].task.id;
    let mut old = Vec::new();
    for service in Service::ALL {
        old.push(lease(&mut world, service, 1).await.leadership(service));
    }
    world.pass(LENGTH);
    for (service, old) in Service::ALL.into_iter().zip(old) {
        let lease = lease(&mut world, service, 2).await;
        assert_eq!(lease.holder, ServerId(2));
        // The fence alone is not enough, nor is the holder.
        let stolen = Leadership { holder: old.holder, ..lease.leadership(service) };
        let outdated = Leadership { holder: lease.holder, ..old };
        for led in [old, stolen, outdated] {
            let results = write_each_way(&mut world, led, changes.clone(), &claimed, announced).await;
            assert_eq!(results, vec![Err(StoreError::LeaseLost); 6], "{led:?}");
        }
    }
    assert!(world.find(new).await.is_none() && world.find(ended).await.is_some());
    assert!(!world.load(waits).await.task.is_ended());
    let claims = world.load(taken).await.claims.len() + world.load(waits).await.claims.len();
    assert_eq!(claims, 1, "nothing was claimed or released");
    assert_eq!(world.store().unannounced(TaskId::NONE, 10).await.expect("reading succeeds").len(), 1);
    // The others are not hindered, nor is the server that has the lease.
    world.submit(&flow).await;
    let led = lease(&mut world, Service::Timekeeping, 2).await.leadership(Service::Timekeeping);
    let results = write_each_way(&mut world, led, changes, &claimed, announced).await;
    assert_eq!(results, vec![Ok(()); 6]);
    assert!(world.find(new).await.is_some() && world.find(ended).await.is_none());
    assert!(world.load(taken).await.claims.is_empty());
    assert!(world.store().unannounced(TaskId::NONE, 10).await.expect("reading succeeds").is_empty());
}

async fn a_lease_that_has_ended_stands_until_another_server_takes_it(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let session = world.session(1).await;
    let id = world.submit(&flow).await;
    let claimed = world.claim_one(session).await;
    let led = lease(&mut world, Service::Timekeeping, 1).await.leadership(Service::Timekeeping);
    world.pass(LENGTH);
    let done = world.decide(id, &report(&claimed, windlass_core::Outcome::Succeeded(None))).await;
    let now = world.now;
    let (store, nobody) = (world.store(), Leave::default());
    let written = store.commit_and_claim(vec![done.into()], &[], &nobody, Some(led), now).await;
    let written = written.map(|(outcomes, _)| outcomes);
    assert_eq!(written, Ok(vec![Outcome::Committed]));
}

//! Servers on one store: their list, and which one runs a service for all.

use windlass_core::Millis;
use windlass_store::{
    SERVER_FORGOTTEN_AFTER, SERVER_SILENT_AFTER, ServerId, ServerState, Service, ServiceLease,
};

use crate::{World, topic};

topic![
    servers_are_listed_as_they_were_heard_of_last,
    a_server_that_leaves_is_forgotten_and_one_that_is_silent_is_in_time,
    a_service_has_one_server_until_its_lease_ends,
    whoever_takes_a_service_over_gets_a_higher_fence,
    what_a_server_did_that_leaves_is_free_at_once,
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

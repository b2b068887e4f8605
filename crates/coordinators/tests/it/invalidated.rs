//! Sessions and leases that an operator ends under a leader.

use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};
use windlass_coordinators::{
    Campaign, CoordinatorError,
    conformance::{elect, resign, until_answered},
    connect,
};
use windlass_testkit::{Consul, Etcd};

use crate::servers::LEASE;

const PATIENCE: Duration = Duration::from_secs(60);

/// The leader notices, and the one that waits leads instead, with a higher fence.
async fn ends(url: &str, invalidate: impl FnOnce()) {
    let coordinator = connect(url).unwrap();
    let [first, second] = ["first", "second"].map(|id| Campaign::new("invalidated", id, LEASE));
    let first = elect(&*coordinator, &first).await;
    let invalidating = async {
        sleep(LEASE / 4).await;
        invalidate();
    };
    let ended = async {
        timeout(PATIENCE, first.ended()).await.expect("the end is noticed in time");
        assert!(Instant::now() >= first.acts_until());
    };
    let (second, (), ()) = tokio::join!(elect(&*coordinator, &second), ended, invalidating);
    assert!(second.fence() > first.fence());
    let renewed = until_answered(|| first.renew()).await;
    assert!(matches!(renewed, Err(CoordinatorError::Lost(_))), "{renewed:?}");
    let leader = until_answered(|| coordinator.leader("invalidated")).await.unwrap();
    assert_eq!(leader.map(|leader| leader.id).as_deref(), Some("second"), "the first one did not disturb it");
    resign(&*second).await;
}

#[tokio::test]
async fn a_session_of_consul() {
    let Some(server) = Consul::shared().unwrap() else { return };
    ends(&format!("consul://127.0.0.1:{}", server.port()), || {
        let key = server.ask("GET", "/v1/kv/invalidated", "").unwrap();
        let (_, rest) = key.split_once("\"Session\":\"").expect("the key is locked");
        let session = rest.split('"').next().unwrap();
        server.ask("PUT", &format!("/v1/session/destroy/{session}"), "").unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_lease_of_etcd() {
    let Some(server) = Etcd::shared().unwrap() else { return };
    ends(&format!("etcd://127.0.0.1:{}", server.port()), || {
        let keys =
            server.ask(&["get", "--prefix", "invalidated/", "--keys-only", "--sort-by=CREATE"]).unwrap();
        let first = keys.lines().next().expect("there is a leader");
        let lease = first.rsplit('/').next().unwrap();
        server.ask(&["lease", "revoke", lease]).unwrap();
    })
    .await;
}

//! Sessions and leases that an operator ends under a leader.

use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};
use windlass_coordinators::{Campaign, Coordinator, CoordinatorError, Leadership, connect};
use windlass_testkit::{Consul, Etcd};

use crate::servers::LEASE;

const PATIENCE: Duration = Duration::from_secs(60);

async fn elect(coordinator: &dyn Coordinator, id: &str) -> Box<dyn Leadership> {
    let campaign = Campaign::new("invalidated", id, LEASE);
    timeout(PATIENCE, coordinator.campaign(&campaign)).await.expect("it is elected in time").unwrap()
}

/// The leader notices, and the one that waits leads instead, with a higher fence.
async fn ends(url: &str, invalidate: impl FnOnce()) {
    let coordinator = connect(url).unwrap();
    let first = elect(&*coordinator, "first").await;
    let invalidating = async {
        sleep(LEASE / 4).await;
        invalidate();
    };
    let ended = async {
        timeout(PATIENCE, first.ended()).await.expect("the end is noticed in time");
        assert!(Instant::now() >= first.acts_until());
    };
    let (second, (), ()) = tokio::join!(elect(&*coordinator, "second"), ended, invalidating);
    assert!(second.fence() > first.fence());
    assert!(matches!(first.renew().await, Err(CoordinatorError::Lost(_))));
    let leader = coordinator.leader("invalidated").await.unwrap();
    assert_eq!(leader.map(|leader| leader.id).as_deref(), Some("second"), "the first one did not disturb it");
    second.resign().await.unwrap();
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

//! What servers refuse: leases that are too short for their settings, and strangers.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use windlass_coordinators::{Campaign, CoordinatorError, Leadership, connect};
use windlass_testkit::{Consul, Etcd, ZooKeeper};

use crate::servers::LEASE;

const PATIENCE: Duration = Duration::from_secs(60);

async fn campaign(url: &str, lease: Duration) -> Result<Box<dyn Leadership>, CoordinatorError> {
    let coordinator = connect(url).unwrap();
    let campaign = Campaign::new("refusals/name", "candidate", lease);
    timeout(PATIENCE, coordinator.campaign(&campaign)).await.expect("an answer in time")
}

async fn is_too_short(url: &str, lease: Duration, words: &str) {
    let error = campaign(url, lease).await.err().expect("the lease is too short");
    let is_explained =
        matches!(&error, CoordinatorError::Invalid(why) if why.contains("too short") && why.contains(words));
    assert!(is_explained, "{error}");
}

/// Leads with this URL, and returns after a resignation.
async fn leads(url: &str, lease: Duration) {
    campaign(url, lease).await.unwrap().resign().await.unwrap();
}

async fn is_refused(url: &str) {
    let error = campaign(url, LEASE).await.err().expect("it is refused");
    assert!(matches!(error, CoordinatorError::Refused(_)), "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[tokio::test]
async fn by_consul() {
    let token = "b1gs33cr-0000-4000-8000-000000000001".replace(['g', 's', 'r'], "0");
    let acl = format!(
        "acl {{ enabled = true, default_policy = \"allow\", tokens {{ initial_management = \"{token}\" }} }}"
    );
    let settings = ["session_ttl_min = \"10s\"", &acl];
    let Some(server) = Consul::start_with(&settings).unwrap() else { return };
    let url = |login: &str| format!("consul://{login}127.0.0.1:{}", server.port());
    is_too_short(&url(""), Duration::from_secs(22), "session_ttl_min").await;
    leads(&url(""), Duration::from_secs(23)).await;
    leads(&url(&format!(":{token}@")), Duration::from_secs(23)).await;
    is_refused(&url(":secret@")).await;
}

#[tokio::test]
async fn by_etcd() {
    let settings = ["heartbeat-interval=500", "election-timeout=5000"];
    if let Some(server) = Etcd::start_with(&settings).unwrap() {
        let url = format!("etcd://127.0.0.1:{}", server.port());
        is_too_short(&url, Duration::from_secs(7), "its minimum is 8 s").await;
        leads(&url, Duration::from_secs(8)).await;
    }
    let Some(server) = Etcd::start().unwrap() else { return };
    server.ask(&["user", "add", "root:p%@ss"]).unwrap();
    server.ask(&["user", "grant-role", "root", "root"]).unwrap();
    server.ask(&["auth", "enable"]).unwrap();
    let url = |login: &str| format!("etcd://{login}127.0.0.1:{}", server.port());
    is_refused(&url("")).await;
    is_refused(&url("root:secret@")).await;
    let leadership = campaign(&url("root:p%25%40ss@"), LEASE * 10).await.unwrap();
    leadership.renew().await.unwrap();
    // A server that is started again does not know the token of the login.
    server.kill().unwrap();
    server.restart().unwrap();
    while let Err(error) = leadership.renew().await {
        assert!(error.is_passing(), "{error}");
        sleep(Duration::from_millis(20)).await;
    }
    leadership.resign().await.unwrap();
}

#[tokio::test]
async fn by_zookeeper() {
    let Some(server) = ZooKeeper::start_with(&["minSessionTimeout=4000"]).unwrap() else { return };
    let url = |login: &str| format!("zookeeper://{login}127.0.0.1:{}/fleet", server.port());
    is_too_short(&url(""), Duration::from_millis(5999), "4s").await;
    // The first one creates the folder: its user may enter, and nobody else.
    leads(&url("ops:secret@"), LEASE * 2).await;
    leads(&url("ops:secret@"), LEASE * 2).await;
    let error = campaign(&url("ops:other@"), LEASE * 2).await.err().expect("it is refused");
    assert!(matches!(error, CoordinatorError::Refused(_)), "{error}");
    let error = campaign(&url(""), LEASE * 2).await.err().expect("it is refused");
    assert!(matches!(error, CoordinatorError::Refused(_)), "{error}");
}

/// A URL with the port of something else.
#[tokio::test]
async fn by_servers_of_other_products() {
    let (Some(consul), Some(etcd)) = (Consul::shared().unwrap(), Etcd::shared().unwrap()) else { return };
    for (url, words) in [
        (format!("etcd://127.0.0.1:{}", consul.port()), "etcd does not accept a request: 404"),
        (format!("consul://127.0.0.1:{}", etcd.port()), "Consul does not accept a request: 404"),
        (format!("zookeeper://127.0.0.1:{}", etcd.port()), "the coordinator is unavailable"),
    ] {
        let error = campaign(&url, LEASE / 2).await.err().expect("it is another server");
        assert!(error.to_string().contains(words), "{error}");
    }
}

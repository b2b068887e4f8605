//! Leaders under real coordinators, behind a network that fails.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use tokio::time::{sleep, timeout};
use windlass_client::{
    Leader,
    coordinators::{Campaign, Coordinator, connect},
};
use windlass_testkit::{Consul, Etcd, Proxy, ZooKeeper};

const LEASE: Duration = Duration::from_secs(12);

/// Far more than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A coordinator, reached directly and by a network that fails.
struct Stage {
    direct: Arc<dyn Coordinator>,
    proxied: Arc<dyn Coordinator>,
    network: Proxy,
}

impl Stage {
    fn new(scheme: &str, port: u16) -> Self {
        let network = Proxy::start(port).unwrap();
        let at = |port| connect(&format!("{scheme}://127.0.0.1:{port}")).unwrap();
        Self { direct: at(port), proxied: at(network.port()), network }
    }

    /// One stage for each product that is installed.
    fn all() -> Vec<Self> {
        let consul = Consul::shared().unwrap().map(|server| Self::new("consul", server.port()));
        let etcd = Etcd::shared().unwrap().map(|server| Self::new("etcd", server.port()));
        let zookeeper = ZooKeeper::shared().unwrap().map(|server| Self::new("zookeeper", server.port()));
        [consul, etcd, zookeeper].into_iter().flatten().collect()
    }

    /// Runs a scenario on all products at the same time, because each run takes longer than the lease.
    async fn each<F: Future<Output = ()>>(scenario: impl Fn(Self) -> F) {
        join_all(Self::all().into_iter().map(scenario)).await;
    }

    fn say(&self, what: &str, since: Instant) {
        let product = self.direct.name().split(':').next().unwrap();
        eprintln!("{product}: {what} after {:.2} s", since.elapsed().as_secs_f64());
    }
}

async fn elect(coordinator: &Arc<dyn Coordinator>, name: &str, id: &str) -> Leader {
    let campaign = Campaign::new(name, id, LEASE);
    timeout(PATIENCE, Leader::campaign(&**coordinator, &campaign)).await.expect("elected in time").unwrap()
}

/// A campaign beside the test.
fn stand_by(
    coordinator: &Arc<dyn Coordinator>,
    name: &'static str,
) -> tokio::task::JoinHandle<(Leader, Instant)> {
    let coordinator = coordinator.clone();
    tokio::spawn(async move { (elect(&coordinator, name, "second").await, Instant::now()) })
}

#[tokio::test]
async fn failed_renewals_do_not_end_leadership_before_its_time() {
    Stage::each(|stage| async move {
        let first = elect(&stage.proxied, "cut-off", "first").await;
        let second = stand_by(&stage.direct, "cut-off");
        for _ in 0..3 {
            // A renewal is sent every LEASE / 6: at least one meets this outage.
            let bound = first.acts_until();
            stage.network.cut();
            sleep(LEASE / 4).await;
            assert!(!first.term().is_lost() && Instant::now() < bound);
            stage.network.heal();
            while first.acts_until() == bound {
                sleep(Duration::from_millis(5)).await;
                assert!(!first.term().is_lost(), "it was renewed in time");
            }
        }
        stage.network.cut();
        let cut = Instant::now();
        first.at_risk().await;
        assert!(Instant::now() < first.acts_until(), "there is time left to stop");
        stage.say("at risk", cut);
        assert!(!first.term().is_lost());
        let bound = first.acts_until();
        first.lost().await;
        stage.say("lost", cut);
        assert!(Instant::now() >= bound);
        let (second, elected) = second.await.unwrap();
        stage.say("the next one is elected", cut);
        assert!(elected >= bound, "nobody else leads before");
        assert!(second.fence() > first.fence());
        second.resign().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_resignation_lets_the_next_one_lead_at_once() {
    Stage::each(|stage| async move {
        let first = elect(&stage.direct, "resigns", "first").await;
        let fence = first.fence();
        let second = stand_by(&stage.direct, "resigns");
        assert_eq!(first.while_leading(async { 7 }).await, Some(7));
        sleep(LEASE).await;
        let bound = first.acts_until();
        let (term, resigned) = (first.term().clone(), Instant::now());
        first.resign().await.unwrap();
        assert!(term.is_lost());
        let (second, elected) = second.await.unwrap();
        stage.say("elected", resigned);
        assert!(elected < bound, "it did not wait for the lease");
        assert!(second.fence() > fence);
        second.resign().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_dropped_leader_sends_nothing_and_is_replaced_after_its_time() {
    Stage::each(|stage| async move {
        let first = elect(&stage.direct, "dropped", "first").await;
        let second = stand_by(&stage.direct, "dropped");
        let (term, dropped) = (first.term().clone(), Instant::now());
        let bound = term.acts_until();
        drop(first);
        term.lost().await;
        let (second, elected) = second.await.unwrap();
        stage.say("elected", dropped);
        assert!(elected >= bound);
        second.resign().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn work_ends_as_soon_as_the_coordinator_reports_the_end() {
    let Some(server) = Consul::shared().unwrap() else { return };
    let stage = Stage::new("consul", server.port());
    let first = elect(&stage.direct, "deleted", "first").await;
    let bound = first.acts_until();
    server.ask("DELETE", "/v1/kv/deleted", "").unwrap();
    let worked = timeout(PATIENCE, first.while_leading(std::future::pending::<()>())).await;
    assert_eq!(worked.expect("the work is dropped"), None);
    assert!(Instant::now() < bound, "nobody waited for the end of the time");
    assert!(first.acts_until() <= Instant::now() && first.term().is_lost());
}

#[tokio::test]
async fn an_impossible_campaign_is_refused_without_a_coordinator() {
    let nobody = connect("etcd://127.0.0.1:9").unwrap();
    let campaign = Campaign::new("a name", "first", LEASE);
    let error = Leader::campaign(&*nobody, &campaign).await.unwrap_err().to_string();
    assert!(error.contains("invalid name"), "{error}");
}

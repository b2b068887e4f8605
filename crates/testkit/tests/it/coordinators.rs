//! Servers that elect leaders, alone and three of them.

use windlass_testkit::{
    Clustered, Consul, ConsulProduct, Ensemble, Etcd, EtcdProduct, Server, ZooKeeper, ZooKeeperProduct,
};

use super::java::comes_back;

#[test]
fn consul_comes_back() {
    comes_back::<ConsulProduct>();
}

#[test]
fn etcd_comes_back() {
    comes_back::<EtcdProduct>();
}

#[test]
fn zookeeper_comes_back() {
    comes_back::<ZooKeeperProduct>();
}

/// What was written is there after a kill.
#[test]
fn they_keep_their_data() {
    let (consul, etcd, zookeeper) = (Consul::start(), Etcd::start(), ZooKeeper::start());
    if let Some(server) = consul.unwrap() {
        server.ask("PUT", "/v1/kv/a", "1").unwrap();
        server.kill().unwrap();
        server.restart().unwrap();
        // Without `consistent`, a new leader answers before it has read its log.
        assert_eq!(server.ask("GET", "/v1/kv/a?raw&consistent", "").unwrap(), "1");
        server.ask("GET", "/v1/kv/b?raw", "").unwrap_err();
    }
    if let Some(server) = etcd.unwrap() {
        server.ask(&["put", "a", "1"]).unwrap();
        server.kill().unwrap();
        server.restart().unwrap();
        assert_eq!(server.ask(&["get", "a", "--print-value-only"]).unwrap(), "1");
    }
    if let Some(server) = zookeeper.unwrap() {
        server.ask(&["create", "/a", "1"]).unwrap();
        server.kill().unwrap();
        server.restart().unwrap();
        assert!(server.ask(&["get", "/a"]).unwrap().lines().any(|line| line == "1"));
    }
}

/// Any one of three may be killed; two may not; all come back.
fn three_are_one<P: Clustered>(write: fn(&Server<P>, &str) -> anyhow::Result<()>) {
    let Some(ensemble) = Ensemble::<P>::start().unwrap() else { return };
    let [first, second, third] = ensemble.nodes() else { panic!("there are three") };
    write(first, "a").unwrap();
    first.kill().unwrap();
    // Nothing is written while those that are left elect a leader.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while let Err(error) = write(second, "b") {
        assert!(std::time::Instant::now() < until, "{error:#}");
    }
    second.kill().unwrap();
    write(third, "c").unwrap_err();
    ensemble.restart().unwrap();
    write(third, "d").unwrap();
    ensemble.kill().unwrap();
    ensemble.restart().unwrap();
    write(first, "e").unwrap();
}

#[test]
fn three_etcds_are_one() {
    three_are_one::<EtcdProduct>(|server, key| server.ask(&["put", key, "1"]).map(drop));
}

#[test]
fn three_zookeepers_are_one() {
    three_are_one::<ZooKeeperProduct>(|server, key| {
        // A client of a server without a quorum would wait for long.
        server.is_leader()?;
        server.ask(&["create", &format!("/{key}"), "1"]).map(drop)
    });
    let Some(ensemble) = Ensemble::<ZooKeeperProduct>::start().unwrap() else { return };
    let leaders = ensemble.nodes().iter().filter(|node| node.is_leader().unwrap()).count();
    assert_eq!(leaders, 1);
}

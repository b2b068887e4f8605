//! ZooKeeper: alone, and three servers.

use windlass_testkit::{Ensemble, ZooKeeper as Server, ZooKeeperProduct};

use crate::servers::{Kind, conform};

fn kind() -> Kind<ZooKeeperProduct> {
    let delete = |server: &Server, name: &str| drop(server.ask(&["deleteall", &format!("/{name}")]).unwrap());
    Kind { scheme: "zookeeper", delete }
}

#[test]
fn zookeeper_conforms() {
    let Some(server) = Server::shared().unwrap() else { return };
    let Some(own) = Ensemble::start().unwrap() else { return };
    conform(kind, server, own);
}

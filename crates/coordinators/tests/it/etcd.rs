//! etcd: alone, and three servers.

use windlass_coordinators::conformance;
use windlass_testkit::{Ensemble, Etcd as Server, EtcdProduct};

use crate::servers::{Kind, Own, Shared};

const KIND: Kind<EtcdProduct> = Kind {
    scheme: "etcd",
    delete: |server, name| drop(server.ask(&["del", "--prefix", &format!("{name}/")]).unwrap()),
};

#[test]
fn etcd_conforms() {
    let Some(server) = Server::shared().unwrap() else { return };
    conformance::run(&Shared { kind: KIND, server });
}

#[test]
fn etcd_conforms_when_disturbed() {
    let Some(servers) = Ensemble::start().unwrap() else { return };
    conformance::run_disturbed(&Own::new(KIND, servers));
}

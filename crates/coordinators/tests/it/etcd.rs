//! etcd: alone, and three servers.

use windlass_testkit::{Ensemble, Etcd as Server, EtcdProduct};

use crate::servers::{Kind, conform};

fn kind() -> Kind<EtcdProduct> {
    let delete =
        |server: &Server, name: &str| drop(server.ask(&["del", "--prefix", &format!("{name}/")]).unwrap());
    Kind { scheme: "etcd", delete }
}

#[test]
fn etcd_conforms() {
    let Some(server) = Server::shared().unwrap() else { return };
    let Some(own) = Ensemble::start().unwrap() else { return };
    conform(kind, server, own);
}

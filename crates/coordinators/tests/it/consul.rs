//! Consul: one server.

use windlass_testkit::{Consul as Server, ConsulProduct};

use crate::servers::{Kind, conform};

fn kind() -> Kind<ConsulProduct> {
    let delete =
        |server: &Server, name: &str| drop(server.ask("DELETE", &format!("/v1/kv/{name}"), "").unwrap());
    Kind { scheme: "consul", delete }
}

#[test]
fn consul_conforms() {
    let Some(server) = Server::shared().unwrap() else { return };
    let Some(own) = Server::start().unwrap() else { return };
    conform(kind, server, own.into());
}

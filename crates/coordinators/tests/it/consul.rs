//! Consul: one server.

use windlass_coordinators::conformance;
use windlass_testkit::{Consul as Server, ConsulProduct};

use crate::servers::{Kind, Own, Shared};

const KIND: Kind<ConsulProduct> = Kind {
    scheme: "consul",
    delete: |server, name| drop(server.ask("DELETE", &format!("/v1/kv/{name}"), "").unwrap()),
};

#[test]
fn consul_conforms() {
    let Some(server) = Server::shared().unwrap() else { return };
    conformance::run(&Shared { kind: KIND, server });
}

#[test]
fn consul_conforms_when_disturbed() {
    let Some(server) = Server::start().unwrap() else { return };
    conformance::run_disturbed(&Own::new(KIND, server.into()));
}

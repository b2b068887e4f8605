//! Redis.

use std::{sync::Arc, time::Duration};

use windlass_brokers::{
    Broker, Queue, Redis,
    conformance::{self, Disturbances, Promises, Subject},
};
use windlass_testkit::{Proxy, Redis as Server};

/// A server, and the kind of queues that is looked at.
struct Queues<'s> {
    server: &'s Server,
    kind: &'static str,
    /// In front of it, where it is disturbed.
    proxy: Option<Proxy>,
}

impl Subject for Queues<'_> {
    fn connect(&self) -> Arc<dyn Broker> {
        let port = self.proxy.as_ref().map_or(self.server.port(), Proxy::port);
        Arc::new(Redis::open(&self.server.url_at(port)).unwrap())
    }

    fn queue(&self, name: &str) -> Queue {
        Queue { name: name.to_owned(), kind: Some(self.kind.to_owned()) }
    }

    fn delete(&self, queue: &Queue) {
        // What stands beside a list goes only with all data.
        self.server.ask(&["DEL", &queue.name, &format!("{}:windlass-identity", queue.name)]).unwrap();
    }

    fn promises(&self) -> Promises {
        let is_stream = self.kind == "stream";
        Promises {
            silent_after: Duration::from_secs(1),
            keeps_order: true,
            keeps_ids: is_stream,
            binary: true,
            shares: true,
            acknowledges_each: true,
            counts_deliveries: is_stream,
            heeds_silence: is_stream,
            survives_a_kill: true,
        }
    }
}

impl Disturbances for Queues<'_> {
    fn kill(&self) {
        self.server.kill().unwrap();
    }

    fn restart(&self) {
        self.server.restart().unwrap();
    }

    fn cut(&self) {
        self.proxy.as_ref().unwrap().cut();
    }

    fn heal(&self) {
        self.proxy.as_ref().unwrap().heal();
    }
}

#[test]
fn streams_conform() {
    let Some(server) = Server::shared().unwrap() else { return };
    conformance::run(&Queues { server, kind: "stream", proxy: None });
}

#[test]
fn lists_conform() {
    let Some(server) = Server::shared().unwrap() else { return };
    conformance::run(&Queues { server, kind: "list", proxy: None });
}

#[test]
fn streams_conform_when_disturbed() {
    let Some(server) = Server::start_with(&["appendfsync=always"]).unwrap() else { return };
    let proxy = Some(Proxy::start(server.port()).unwrap());
    conformance::run_disturbed(&Queues { server: &server, kind: "stream", proxy });
}

//! Kafka.

use std::{sync::Arc, time::Duration};

use windlass_brokers::{
    Broker, Kafka, Queue,
    conformance::{self, Disturbances, Promises, Subject},
};
use windlass_testkit::Kafka as Server;

/// A server, and topics that are deleted by what it brings along.
struct Topics<'s> {
    server: &'s Server,
}

impl Subject for Topics<'_> {
    fn connect(&self) -> Arc<dyn Broker> {
        // The group of the suite is the one to look at.
        Arc::new(Kafka::new(&format!("{}?group=workers", self.server.url())).unwrap())
    }

    fn delete(&self, queue: &Queue) {
        self.server.delete(&queue.name).unwrap();
    }

    fn promises(&self) -> Promises {
        Promises {
            silent_after: Duration::from_secs(1),
            keeps_order: true,
            keeps_ids: true,
            binary: true,
            shares: true,
            acknowledges_each: false,
            counts_deliveries: false,
            heeds_silence: false,
            survives_a_kill: true,
        }
    }
}

impl Disturbances for Topics<'_> {
    fn kill(&self) {
        self.server.kill().unwrap();
    }

    fn restart(&self) {
        self.server.restart().unwrap();
    }

    // Clients of Kafka connect to where the server says that it is, so a proxy before it sees them once. What stands still
    // is away as well.
    fn cut(&self) {
        self.server.pause().unwrap();
    }

    fn heal(&self) {
        self.server.resume().unwrap();
    }
}

#[test]
fn topics_conform() {
    let Some(server) = Server::shared().unwrap() else { return };
    conformance::run(&Topics { server });
}

#[test]
fn topics_conform_when_disturbed() {
    let Some(server) = Server::start().unwrap() else { return };
    conformance::run_disturbed(&Topics { server: &server });
}

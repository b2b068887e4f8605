//! Redis: both kinds of queues keep to what every broker does; what only Redis can do to them is in `faults.rs`.

mod announcing;
mod faults;
mod others;
mod tls;

use std::{
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use windlass_brokers::{
    Broker, Consumer, ConsumerSettings, Delivery, Message, Queue, Redis,
    conformance::{self, Disturbances, Promises, Subject},
};
use windlass_testkit::{Proxy, Redis as Server};

const PATIENCE: Duration = Duration::from_secs(30);

fn stream(name: &str) -> Queue {
    Queue { name: name.to_owned(), kind: Some("stream".to_owned()) }
}

fn list(name: &str) -> Queue {
    Queue { name: name.to_owned(), kind: Some("list".to_owned()) }
}

fn messages(numbers: Range<u32>) -> Vec<Message> {
    numbers.map(|number| Message::new(format!("id-{number}"), "", number.to_string())).collect()
}

fn settings() -> ConsumerSettings {
    ConsumerSettings {
        binding: None,
        group: "workers".to_owned(),
        name: "tests".to_owned(),
        in_hands_max: 100,
        silent_after: Duration::from_secs(20),
    }
}

/// Receives exactly this number of messages.
async fn take(consumer: &mut dyn Consumer, count: usize) -> Vec<Delivery> {
    let until = Instant::now() + PATIENCE;
    let mut taken = Vec::new();
    while taken.len() < count {
        assert!(Instant::now() < until, "{} of {count} came within {PATIENCE:?}", taken.len());
        taken.extend(consumer.receive(count - taken.len(), Duration::from_secs(1)).await.unwrap());
    }
    taken
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "{what} within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

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
            heeds_silence: self.kind != "list",
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
fn reliable_lists_conform() {
    let Some(server) = Server::shared().unwrap() else { return };
    conformance::run(&Queues { server, kind: "reliable-list", proxy: None });
}

#[test]
fn reliable_lists_conform_when_disturbed() {
    let Some(server) = Server::start_with(&["appendfsync=always"]).unwrap() else { return };
    let proxy = Some(Proxy::start(server.port()).unwrap());
    conformance::run_disturbed(&Queues { server: &server, kind: "reliable-list", proxy });
}

#[test]
fn streams_conform_when_disturbed() {
    let Some(server) = Server::start_with(&["appendfsync=always"]).unwrap() else { return };
    let proxy = Some(Proxy::start(server.port()).unwrap());
    conformance::run_disturbed(&Queues { server: &server, kind: "stream", proxy });
}

//! The servers of a product, as the common suite wants them.

use std::{thread, time::Duration};

use windlass_coordinators::conformance::{self, Disturbances, Subject};
use windlass_testkit::{Ensemble, Product, Proxy, Server};

/// The lease of all tests.
pub(crate) const LEASE: Duration = Duration::from_secs(4);

/// What is particular to a product.
pub(crate) struct Kind<P: Product> {
    /// The scheme of its URLs.
    pub(crate) scheme: &'static str,
    /// Deletes the keys of all candidates of a name.
    pub(crate) delete: fn(&Server<P>, &str),
}

impl<P: Product> Kind<P> {
    /// The URL of several addresses.
    pub(crate) fn url(&self, ports: &[u16]) -> String {
        let hosts: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("{}://{}", self.scheme, hosts.join(","))
    }
}

/// The server that all tests share.
struct Shared<P: Product> {
    kind: Kind<P>,
    server: &'static Server<P>,
}

impl<P: Product> Subject for Shared<P> {
    fn url(&self) -> String {
        self.kind.url(&[self.server.port()])
    }

    fn lease(&self) -> Duration {
        LEASE
    }

    fn delete(&self, name: &str) {
        (self.kind.delete)(self.server, name);
    }
}

/// Servers of one test, with a network before them.
struct Own<P: Product> {
    kind: Kind<P>,
    servers: Ensemble<P>,
    proxies: Vec<Proxy>,
}

impl<P: Product> Own<P> {
    fn new(kind: Kind<P>, servers: Ensemble<P>) -> Self {
        let proxies = servers.ports().into_iter().map(|port| Proxy::start(port).unwrap()).collect();
        Self { kind, servers, proxies }
    }
}

impl<P: Product> Subject for Own<P> {
    fn url(&self) -> String {
        self.kind.url(&self.servers.ports())
    }

    fn lease(&self) -> Duration {
        LEASE
    }

    fn delete(&self, name: &str) {
        (self.kind.delete)(&self.servers.nodes()[0], name);
    }
}

impl<P: Product> Disturbances for Own<P> {
    fn proxied_url(&self) -> String {
        self.kind.url(&self.proxies.iter().map(Proxy::port).collect::<Vec<u16>>())
    }

    fn cut(&self) {
        self.proxies.iter().for_each(Proxy::cut);
    }

    fn delay(&self, delay: Duration) {
        self.proxies.iter().for_each(|proxy| proxy.delay(delay));
    }

    fn heal(&self) {
        self.proxies.iter().for_each(Proxy::heal);
    }

    fn kill_first(&self) -> bool {
        let nodes = self.servers.nodes();
        if nodes.len() > 1 {
            nodes[0].kill().unwrap();
        }
        nodes.len() > 1
    }

    fn kill_most(&self) {
        let nodes = self.servers.nodes();
        nodes[..nodes.len() / 2 + 1].iter().for_each(|node| node.kill().unwrap());
    }

    fn kill_all(&self) {
        self.servers.kill().unwrap();
    }

    fn restart(&self) {
        self.servers.restart().unwrap();
    }
}

/// Runs both suites at once: they wait most of the time.
pub(crate) fn conform<P: Product>(kind: fn() -> Kind<P>, server: &'static Server<P>, own: Ensemble<P>) {
    thread::scope(|scope| {
        scope.spawn(|| conformance::run(&Shared { kind: kind(), server }));
        scope.spawn(|| conformance::run_disturbed(&Own::new(kind(), own)));
    });
}

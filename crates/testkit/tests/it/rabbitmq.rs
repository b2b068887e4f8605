//! RabbitMQ alone and as a cluster, and HAProxy before it.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpStream},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use windlass_testkit::{HaProxy, Place, Product, Proxy, RabbitMq, RabbitMqCluster, RabbitMqProduct};

const PATIENCE: Duration = Duration::from_secs(30);

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "{what} within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The expression that makes a durable quorum queue.
fn declare(name: &str) -> String {
    format!(
        "{{new, _}} = rabbit_amqqueue:declare(rabbit_misc:r(<<\"/\">>, queue, <<\"{name}\">>), true, false, \
         [{{<<\"x-queue-type\">>, longstr, <<\"quorum\">>}}], none, <<\"guest\">>), ok"
    )
}

/// The expression that says how many queues there are.
const QUEUES: &str = "length(rabbit_amqqueue:list())";

/// What was declared is there after a kill and after a stop, on the same port; a stranger is not taken for it.
#[test]
fn a_server_comes_back_with_its_queues() {
    let Some(server) = RabbitMq::start().unwrap() else { return };
    let port = server.port();
    let first = server.process_id().unwrap();
    assert_eq!(server.evaluate(&declare("q")).unwrap(), "ok");
    server.sync().unwrap();
    server.kill().unwrap();
    server.evaluate(QUEUES).unwrap_err();
    server.restart().unwrap();
    server.restart().unwrap_err();
    assert_eq!(server.evaluate(QUEUES).unwrap(), "1");
    server.stop().unwrap();
    server.restart().unwrap();
    assert_eq!((server.port(), server.evaluate(QUEUES).unwrap().as_str()), (port, "1"));
    assert_ne!(server.process_id(), Some(first));
    server.evaluate("no_such_module:f()").unwrap_err();

    // The same answers come by another port, where this server is not: the proxy is a stranger there.
    let proxy = Proxy::start(port).unwrap();
    let product = RabbitMqProduct::find().unwrap();
    let there = Place { data: Path::new("/"), port: proxy.port(), settings: &[] };
    assert!(!product.answers(&there, 1).unwrap());
    assert!(product.answers(&Place { port, ..there }, 1).unwrap());
}

/// A queue made on one server is known to the others, and HAProxy sends nobody to one that is gone.
#[test]
fn a_cluster_is_one_broker_behind_one_address() {
    let Some(cluster) = RabbitMqCluster::start().unwrap() else { return };
    let [one, two, three] = cluster.nodes() else { panic!("three are wanted") };
    one.evaluate(&declare("q")).unwrap();
    assert_eq!(three.evaluate(QUEUES).unwrap(), "1");

    let Some(proxy) = HaProxy::in_front_of(&[one.port(), two.port()]).unwrap() else { return };
    let connect = || {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port())).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"AMQP\0\0\x09\x01").unwrap();
        let mut said = [0];
        // What is left unread lies there when the connection is shut down; so read on in pieces.
        stream.read_exact(&mut said).map(|()| stream)
    };
    let mut streams: Vec<TcpStream> = (0..4).map(|_| connect().unwrap()).collect();
    two.kill().unwrap();
    until("connections to a server that is gone are closed", || {
        let ended = |stream: &mut TcpStream| {
            stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
            let mut piece = [0; 1024];
            matches!(stream.read(&mut piece), Ok(0))
        };
        streams.iter_mut().filter_map(|stream| ended(stream).then_some(())).count() == 2
    });
    connect().unwrap();
    connect().unwrap();
    two.restart().unwrap();
    cluster.wait_until_whole().unwrap();
    assert_eq!(two.evaluate(QUEUES).unwrap(), "1");
}

//! Servers written in Java.

use std::path::Path;

use windlass_testkit::{ElasticMqProduct, KafkaProduct, Place, Product, Server};

/// It comes back on its port after a kill and after a stop, and is not taken for another one.
pub(super) fn comes_back<P: Product>() {
    let Some(server) = Server::<P>::start().unwrap() else { return };
    let port = server.port();
    let first = server.process_id().unwrap();
    server.kill().unwrap();
    server.restart().unwrap();
    server.restart().unwrap_err();
    server.stop().unwrap();
    server.restart().unwrap();
    assert_eq!(server.port(), port);
    assert_ne!(server.process_id(), Some(first));

    let product = P::find().unwrap();
    let process = server.process_id().unwrap();
    let data = server.directory().join("data");
    let place = Place { data: &data, port, settings: &[] };
    assert!(product.answers(&place, process).unwrap());

    let Some(other) = Server::<P>::start_with(P::QUICK).unwrap() else { return };
    let theirs = Place { data: Path::new("/nowhere/data"), port: other.port(), settings: &[] };
    let mine_there = Place { port: other.port(), ..place };
    assert!(!product.answers(&theirs, process).unwrap());
    assert!(!product.answers(&mine_there, process).unwrap());
    server.stop().unwrap();
    product.answers(&place, process).unwrap_err();
}

#[test]
fn kafka_comes_back() {
    comes_back::<KafkaProduct>();
}

#[test]
fn elasticmq_comes_back() {
    comes_back::<ElasticMqProduct>();
}

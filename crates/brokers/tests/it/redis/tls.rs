//! Redis by TLS.

use windlass_brokers::{Broker as _, BrokerError, Queue, Redis};
use windlass_testkit::Redis as Server;

use super::{messages, settings, take};
use crate::refusal_of;
use windlass_testkit::{certificate, free_port};

/// A certificate that nobody vouches for is refused, and one that the URL names is taken, for its name alone.
#[tokio::test]
async fn certificates_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    certificate::make(folder.path());
    let file = |name: &str| folder.path().join(name).display().to_string();
    let port = free_port().unwrap();
    let settings_of_server = [
        format!("tls-port={port}"),
        format!("tls-cert-file={}", file("server.pem")),
        format!("tls-key-file={}", file("server.key")),
        "tls-auth-clients=no".to_owned(),
        "requirepass=s3cret".to_owned(),
    ];
    let settings_of_server: Vec<&str> = settings_of_server.iter().map(String::as_str).collect();
    let Some(_server) = Server::start_with(&settings_of_server).unwrap() else { return };

    let url = format!("rediss://:s3cret@localhost:{port}");
    let queue = Queue::new("tls");
    let error = Redis::open(&url).unwrap().declare(&queue).await.unwrap_err();
    assert!(matches!(&error, BrokerError::Refused(why) if why.contains("certificate")), "{error}");

    let broker = Redis::open(&format!("{url}?cacert={}", file("authority.pem"))).unwrap();
    assert_eq!(broker.name(), format!("rediss://localhost:{port}/0"));
    broker.publish(&queue, &messages(0..1)).await.remove(0).unwrap();
    let taken = take(&mut *broker.consume(&queue, &settings()).await.unwrap(), 1).await;
    assert_eq!(taken[0].message, messages(0..1)[0]);

    let elsewhere = url.replace("localhost", "127.0.0.1");
    let broker = Redis::open(&format!("{elsewhere}?cacert={}", file("authority.pem"))).unwrap();
    let error = broker.declare(&queue).await.unwrap_err();
    assert!(matches!(&error, BrokerError::Refused(why) if why.contains("certificate")), "{error}");
}

/// Where the server asks for certificates, a client without one is refused, as is one whose certificate has another authority.
#[tokio::test]
async fn a_client_shows_its_certificate() {
    let folder = certificate::folder();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let port = free_port().unwrap();
    let settings_of_server = [
        format!("tls-port={port}"),
        format!("tls-cert-file={}", file("server.pem")),
        format!("tls-key-file={}", file("server.key")),
        format!("tls-ca-cert-file={}", file("authority.pem")),
    ];
    let settings_of_server: Vec<&str> = settings_of_server.iter().map(String::as_str).collect();
    let Some(_server) = Server::start_with(&settings_of_server).unwrap() else { return };

    let url = format!("rediss://localhost:{port}?cacert={}", file("authority.pem"));
    let queue = Queue::new("tls");
    let why = refusal_of(async || Redis::open(&url).unwrap().declare(&queue).await.unwrap_err()).await;
    assert!(why.contains("?cert=FILE&key=FILE"), "{why}");
    let with = |certificate: &str, key: &str| format!("{url}&cert={}&key={}", file(certificate), file(key));
    Redis::open(&with("client.pem", "client.key")).unwrap().declare(&queue).await.unwrap();
    let stranger = with("stranger.pem", "stranger.key");
    let why = refusal_of(async || Redis::open(&stranger).unwrap().declare(&queue).await.unwrap_err()).await;
    assert!(why.contains("does not trust"), "{why}");
    for (certificate, key, named) in
        [("missing.pem", "client.key", "missing.pem"), ("client.pem", "server.key", "server.key")]
    {
        let error = Redis::open(&with(certificate, key)).err().expect("it is refused").to_string();
        assert!(error.contains(named), "{error}");
    }
}

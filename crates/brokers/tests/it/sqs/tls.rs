//! SQS by TLS: HAProxy before ElasticMQ, which speaks plain HTTP.

use windlass_brokers::{Broker as _, BrokerError, Queue, Sqs};
use windlass_testkit::{ElasticMq, HaProxy, certificate};

use super::{messages, settings, take};

/// A certificate that nobody vouches for is refused, and one that the URL names is taken, for its name alone.
#[tokio::test]
async fn certificates_are_checked() {
    let Some(server) = ElasticMq::shared().unwrap() else { return };
    let folder = certificate::folder();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let certificate = folder.path().join("both.pem");
    let both = ["server.pem", "server.key"].map(|name| std::fs::read_to_string(file(name)).unwrap());
    std::fs::write(&certificate, both.concat()).unwrap();
    let Some(proxy) = HaProxy::decrypting(server.port(), &certificate).unwrap() else { return };

    let port = proxy.port();
    let queue = Queue::new("tls");
    let refused = async |url: &str| {
        let error = Sqs::new(url).unwrap().declare(&queue).await.unwrap_err();
        assert!(
            matches!(&error, BrokerError::Refused(why) if why.contains("?cacert=FILE")),
            "{url}: {error}"
        );
    };
    let trusting = |host: &str, name: &str| format!("sqs+https://x:x@{host}:{port}?cacert={}", file(name));
    refused(&format!("sqs+https://x:x@localhost:{port}")).await;
    refused(&trusting("localhost", "stranger.pem")).await;
    refused(&trusting("127.0.0.1", "authority.pem")).await;

    let broker = Sqs::new(&trusting("localhost", "authority.pem")).unwrap();
    assert_eq!(broker.name(), format!("sqs+https://localhost:{port}"));
    broker.publish(&queue, &messages(1)).await.remove(0).unwrap();
    let taken = take(&mut *broker.consume(&queue, &settings(30)).await.unwrap(), 1).await;
    assert_eq!(taken[0].message, messages(1)[0]);

    for name in ["missing.pem", "server.key"] {
        let error = Sqs::new(&trusting("localhost", name)).expect_err("it is refused").to_string();
        assert!(error.contains(name), "{error}");
    }
}

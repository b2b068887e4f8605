//! RabbitMQ by TLS.

use windlass_brokers::{Broker, BrokerError, Queue, RabbitMq};
use windlass_testkit::RabbitMq as Server;

use super::{message, settings, take};
use crate::refusal_of;
use windlass_testkit::{certificate, free_port};

/// A certificate that nobody vouches for is refused, and one that the URL names is taken.
#[tokio::test]
async fn certificates_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    certificate::make(folder.path());
    let file = |name: &str| folder.path().join(name).display().to_string();
    let port = free_port().unwrap();
    let settings_of_server = [
        format!("listeners.ssl.1=127.0.0.1:{port}"),
        format!("ssl_options.certfile={}", file("server.pem")),
        format!("ssl_options.keyfile={}", file("server.key")),
        format!("ssl_options.cacertfile={}", file("authority.pem")),
        // Clients may have a certificate, and one that they have must be of this authority.
        "ssl_options.verify=verify_peer".to_owned(),
    ];
    let settings_of_server: Vec<&str> = settings_of_server.iter().map(String::as_str).collect();
    let Some(_server) = Server::start_with(&settings_of_server).unwrap() else { return };

    let url = format!("amqps://guest:guest@localhost:{port}/");
    let queue = Queue::new("tls");
    let error = RabbitMq::new(&url).unwrap().declare(&queue).await.unwrap_err();
    assert!(matches!(&error, BrokerError::Refused(why) if why.contains("certificate")), "{error}");

    let broker = RabbitMq::new(&format!("{url}?cacert={}", file("authority.pem"))).unwrap();
    broker.publish(&queue, &[message(1)]).await.remove(0).unwrap();
    let taken = take(&mut *broker.consume(&queue, &settings(10)).await.unwrap(), 1).await;
    assert_eq!(taken[0].message, message(1));

    let with = |certificate: &str| {
        let (certificate, key) = (file(&format!("{certificate}.pem")), file(&format!("{certificate}.key")));
        format!("{url}?cacert={}&cert={certificate}&key={key}", file("authority.pem"))
    };
    RabbitMq::new(&with("client")).unwrap().declare(&queue).await.unwrap();
    let stranger = async || RabbitMq::new(&with("stranger")).unwrap().declare(&queue).await.unwrap_err();
    let why = refusal_of(stranger).await;
    assert!(why.contains("?cert=FILE&key=FILE"), "{why}");
    let error = RabbitMq::new(&with("missing")).unwrap().declare(&queue).await.unwrap_err();
    assert!(matches!(&error, BrokerError::Invalid(why) if why.contains("missing.key")), "{error}");

    // The name must be the one that the certificate is for.
    let elsewhere = url.replace("localhost", "127.0.0.1");
    let broker = RabbitMq::new(&format!("{elsewhere}?cacert={}", file("authority.pem"))).unwrap();
    let error = broker.declare(&queue).await.unwrap_err();
    assert!(matches!(&error, BrokerError::Refused(_)), "{error}");
    let broker = RabbitMq::new(&format!("{url}?cacert={}", file("missing.pem"))).unwrap();
    let error = broker.declare(&queue).await.unwrap_err();
    assert!(matches!(&error, BrokerError::Invalid(why) if why.contains("missing.pem")), "{error}");
}

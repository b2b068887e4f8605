//! Kafka by TLS, and with users.

use std::{
    fs,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use tokio::time::sleep;
use windlass_brokers::{Broker, BrokerError, Kafka, Queue};
use windlass_testkit::Kafka as Server;

use super::{PATIENCE, messages, next, number, settings};
use windlass_testkit::{certificate, free_port};

const PASSWORD: &str = "s3cret/@:?";

/// As it is written in a URL.
const PASSWORD_IN_URL: &str = "s3cret%2F%40%3A%3F";

/// A server that lets the user `windlass` in, by TLS and without.
struct Guarded {
    server: Server,
    folder: TempDir,
    by_tls: u16,
    plain: u16,
    /// By TLS, for clients with certificates.
    mutual: u16,
}

impl Guarded {
    fn start() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        certificate::make(folder.path());
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        let keys = folder.path().join("keys.pem");
        fs::write(&keys, read("server.key") + &read("server.pem")).unwrap();
        let (by_tls, plain, mutual) = (free_port().unwrap(), free_port().unwrap(), free_port().unwrap());

        let both = format!(
            "SASL_SSL://localhost:{by_tls},SASL_PLAINTEXT://localhost:{plain},SSL://localhost:{mutual}"
        );
        let mut lines = vec![
            format!(
                "listeners=PLAINTEXT://127.0.0.1:{{port}},CONTROLLER://127.0.0.1:{{controller}},{}",
                both.replace("localhost", "127.0.0.1")
            ),
            format!("advertised.listeners=PLAINTEXT://127.0.0.1:{{port}},{both}"),
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,\
             SASL_SSL:SASL_SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL"
                .to_owned(),
            "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512".to_owned(),
            "ssl.keystore.type=PEM".to_owned(),
            format!("ssl.keystore.location={}", keys.display()),
            "listener.name.ssl.ssl.client.auth=required".to_owned(),
            "listener.name.ssl.ssl.truststore.type=PEM".to_owned(),
            format!(
                "listener.name.ssl.ssl.truststore.location={}",
                folder.path().join("authority.pem").display()
            ),
        ];
        let modules = "org.apache.kafka.common.security";
        for listener in ["sasl_ssl", "sasl_plaintext"] {
            let of = |mechanism: &str, module: &str| {
                format!("listener.name.{listener}.{mechanism}.sasl.jaas.config={modules}.{module};")
            };
            lines.push(of("scram-sha-256", "scram.ScramLoginModule required"));
            lines.push(of("scram-sha-512", "scram.ScramLoginModule required"));
            let user = format!("plain.PlainLoginModule required user_windlass=\"{PASSWORD}\"");
            lines.push(of("plain", &user));
        }
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let server = Server::start_with(&lines).unwrap()?;
        server.let_in("windlass", "SCRAM-SHA-512", PASSWORD).unwrap();
        Some(Self { server, folder, by_tls, plain, mutual })
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// By TLS, with this user and these parameters.
    fn by_tls(&self, user: &str, parameters: &str) -> String {
        format!(
            "kafkas://{user}localhost:{}?partitions=1&cacert={}{parameters}",
            self.by_tls,
            self.file("authority.pem")
        )
    }

    fn plain(&self, user: &str, parameters: &str) -> String {
        format!("kafka://{user}localhost:{}?partitions=1{parameters}", self.plain)
    }
}

/// What the broker at this URL says that refuses us.
async fn refusal(url: &str) -> String {
    let broker = Kafka::new(url).unwrap();
    match broker.declare(&Queue::new("closed")).await {
        Err(BrokerError::Refused(why)) => why,
        other => panic!("{}: {other:?}", broker.name()),
    }
}

/// Users can log in with every mechanism, with TLS and without; anybody else is refused with the reason.
#[tokio::test]
async fn who_proves_who_he_is_comes_in() {
    let Some(guarded) = Guarded::start() else { return };
    guarded.server.let_in("windlass", "SCRAM-SHA-256", PASSWORD).unwrap();
    let user = format!("windlass:{PASSWORD_IN_URL}@");
    let open = [
        guarded.by_tls(&user, ""),
        guarded.by_tls(&user, "&sasl=SCRAM-SHA-256"),
        guarded.by_tls(&user, "&sasl=PLAIN"),
        guarded.plain(&user, ""),
        guarded.plain(&user, "&sasl=PLAIN"),
    ];
    for (number, url) in open.iter().enumerate() {
        let broker = Kafka::new(url).unwrap();
        assert!(!broker.name().contains(['@', '?']), "{}", broker.name());
        let queue = Queue::new(format!("open-{number}"));
        broker.publish(&queue, &messages(0..1)).await.remove(0).unwrap();
        let mut consumer = broker.consume(&queue, &settings(PATIENCE)).await.unwrap();
        let came = next(&mut *consumer).await;
        assert_eq!(came.message, messages(0..1)[0]);
        consumer.acknowledge(&[came.receipt]).await.unwrap();
        assert_eq!(broker.look(&queue).await.unwrap().messages, Some(0));
    }

    let stranger = "windlass:n0t-it@";
    let wrong = [
        guarded.by_tls(stranger, ""),
        guarded.by_tls(stranger, "&sasl=PLAIN"),
        guarded.plain(stranger, "&sasl=SCRAM-SHA-256"),
        guarded.plain(&user.replace("windlass", "nobody"), ""),
    ];
    let authority = format!("cacert={}", guarded.file("authority.pem"));
    let distrusted = [
        guarded.by_tls(&user, "").replace(&authority, ""),
        guarded.by_tls(&user, "").replace("authority.pem", "other.pem"),
        // The name must be the one that the certificate is for.
        guarded.by_tls(&user, "").replace("localhost", "127.0.0.1"),
    ];
    let elsewhere = guarded.folder.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    certificate::make(&elsewhere);
    fs::copy(elsewhere.join("authority.pem"), guarded.file("other.pem")).unwrap();
    let wrong = refusals(wrong).await;
    assert!(wrong.iter().all(|why| why.contains("uthentication") && !why.contains("n0t-it")), "{wrong:#?}");
    assert!(wrong.iter().all(|why| !why.contains("s3cret")), "{wrong:#?}");
    let distrusted = refusals(distrusted).await;
    assert!(
        distrusted.iter().all(|why| why.contains("certificate") && why.contains("?cacert=")),
        "{distrusted:#?}"
    );

    let invalid = guarded.by_tls(&user, "").replace("authority.pem", "server.key");
    let error = Kafka::new(&invalid).err().expect("it is refused").to_string();
    assert!(error.contains("server.key"), "{error}");

    // Clients with certificates.
    let mutual = |parameters: &str| {
        let authority = guarded.file("authority.pem");
        format!("kafkas://localhost:{}?partitions=1&cacert={authority}{parameters}", guarded.mutual)
    };
    let of = |name: &str| {
        format!("&cert={}&key={}", guarded.file(&format!("{name}.pem")), guarded.file(&format!("{name}.key")))
    };
    let broker = Kafka::new(&mutual(&of("client"))).unwrap();
    let queue = Queue::new("mutual");
    broker.publish(&queue, &messages(0..1)).await.remove(0).unwrap();
    assert_eq!(broker.look(&queue).await.unwrap().messages, Some(1));
    let refused = refusals([mutual(""), mutual(&of("stranger"))]).await;
    assert!(refused.iter().all(|why| why.contains("?cert=FILE&key=FILE")), "{refused:#?}");
    let error = Kafka::new(&mutual(&of("missing"))).err().expect("it is refused").to_string();
    assert!(error.contains("missing.key"), "{error}");
}

/// What each of them is refused with, asked at once: each takes as long as there may be no answer.
async fn refusals(urls: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut asking = tokio::task::JoinSet::new();
    for url in urls {
        asking.spawn(async move { refusal(&url).await });
    }
    asking.join_all().await
}

/// A user is locked out while he works, and let in again: everybody goes on by himself, and nothing is lost.
#[tokio::test]
async fn who_is_let_in_again_goes_on() {
    let Some(guarded) = Guarded::start() else { return };
    let broker = Kafka::new(&guarded.by_tls(&format!("windlass:{PASSWORD_IN_URL}@"), "")).unwrap();
    let queue = Queue::new("locked-out");
    for outcome in broker.publish(&queue, &messages(0..2)).await {
        outcome.unwrap();
    }
    let mut consumer = broker.consume(&queue, &settings(PATIENCE)).await.unwrap();
    let done = next(&mut *consumer).await;
    consumer.acknowledge(&[done.receipt]).await.unwrap();
    let held = next(&mut *consumer).await;
    assert_eq!(number(&held), 1);

    guarded.server.lock_out("windlass", "SCRAM-SHA-512").unwrap();
    // Who has a connection keeps it.
    guarded.server.kill().unwrap();
    guarded.server.restart().unwrap();
    let refused = |error: &BrokerError| {
        let text = error.to_string();
        assert!(error.is_passing() || matches!(error, BrokerError::Refused(_)), "{text}");
        assert!(!text.contains("s3cret"), "{text}");
        matches!(error, BrokerError::Refused(_))
    };
    // Each of them may take ten seconds to find out, several times.
    let until = Instant::now() + PATIENCE * 2;
    let (mut to_send, mut to_receive, mut to_look) = (false, false, false);
    while !(to_send && to_receive && to_look) {
        assert!(Instant::now() < until, "{to_send} {to_receive} {to_look}");
        to_send |=
            broker.publish(&queue, &messages(2..3)).await.remove(0).is_err_and(|error| refused(&error));
        to_receive |= consumer.receive(1, Duration::from_secs(1)).await.is_err_and(|error| refused(&error));
        to_look |= broker.look(&queue).await.is_err_and(|error| refused(&error));
    }

    guarded.server.let_in("windlass", "SCRAM-SHA-512", PASSWORD).unwrap();
    let begun = Instant::now();
    while let Err(error) = broker.publish(&queue, &messages(3..4)).await.remove(0) {
        assert!(begun.elapsed() < PATIENCE, "{error}");
        refused(&error);
    }
    // What was in flight still is, unless the cluster gave him up meanwhile.
    let is_settled = consumer.acknowledge(&[held.receipt]).await.is_ok();
    let mut missing = if is_settled { vec![3] } else { vec![1, 3] };
    while !missing.is_empty() {
        assert!(begun.elapsed() < PATIENCE, "{missing:?} do not come");
        match consumer.receive(10, Duration::from_secs(1)).await {
            Ok(came) => missing.retain(|wanted| !came.iter().any(|delivery| number(delivery) == *wanted)),
            Err(error) => {
                refused(&error);
                sleep(Duration::from_millis(50)).await;
            }
        }
    }
    println!("all came {:.1?} after the user was let in again", begun.elapsed());
}

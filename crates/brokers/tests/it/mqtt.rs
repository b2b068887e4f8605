//! MQTT on a real Mosquitto.

use std::time::{Duration, Instant};

use windlass_brokers::{
    BrokerError, DeviceCommand, DeviceMessage, DeviceNetwork as _, Mqtt, MqttSettings, MqttVersion,
};
use windlass_testkit::Mosquitto;

use windlass_testkit::certificate;

const PATIENCE: Duration = Duration::from_secs(30);

const WAIT: Duration = Duration::from_millis(200);

fn settings(version: MqttVersion, id: &str, filter: &str) -> MqttSettings {
    MqttSettings { client_id: id.to_owned(), filters: vec![filter.to_owned()], version }
}

fn client(version: MqttVersion, url: &str, id: &str, filter: &str) -> Mqtt {
    Mqtt::open(url, settings(version, id, filter)).unwrap()
}

/// Tests of both versions of the protocol.
macro_rules! in_both_versions {
    ($($name:ident),* $(,)?) => {
        mod v3 {
            $(#[tokio::test]
            async fn $name() {
                super::$name(windlass_brokers::MqttVersion::V3).await;
            })*
        }

        mod v5 {
            $(#[tokio::test]
            async fn $name() {
                super::$name(windlass_brokers::MqttVersion::V5).await;
            })*
        }
    };
}

in_both_versions! {
    thousands_of_messages_come_once_and_in_order,
    what_was_not_acknowledged_comes_again_and_the_rest_does_not,
    a_broker_that_dies_loses_nothing_that_was_confirmed,
    a_broker_that_forgot_everything_is_subscribed_again,
    status_that_the_broker_kept_is_marked,
    another_client_with_the_same_id_ends_the_connection,
    a_wrong_password_is_refused_without_being_shown,
    what_cannot_be_published_is_refused_at_once,
    a_payload_of_256_kib_comes_whole_and_a_longer_one_is_cut,
    a_long_backlog_is_received,
    what_is_published_is_acknowledged_while_nobody_receives,
    messages_that_nobody_asks_for_are_left_to_the_broker_from_a_limit_on,
    certificates_are_checked,
    a_client_shows_its_certificate_where_the_broker_wants_one,
    what_the_broker_does_not_allow_is_refused_with_a_reason,
}

fn command(topic: &str, payload: impl Into<Vec<u8>>) -> DeviceCommand {
    DeviceCommand { topic: topic.to_owned(), payload: payload.into() }
}

/// Publishes over the open connection, or a new one.
async fn publish(client: &Mqtt, messages: &[DeviceCommand]) -> Vec<Result<(), BrokerError>> {
    let outcomes = match client.connect().await {
        Ok(connection) => connection.publish(messages).await,
        Err(error) => Err(error),
    };
    outcomes.unwrap_or_else(|error| vec![Err(error); messages.len()])
}

/// Waits for messages over the open connection, or a new one.
async fn next(client: &Mqtt, max: usize, wait: Duration) -> Result<Vec<DeviceMessage>, BrokerError> {
    client.connect().await?.receive(max, wait).await
}

/// Receives until `count` messages are there, without acknowledging them.
async fn receive(client: &Mqtt, count: usize) -> Vec<DeviceMessage> {
    let until = Instant::now() + PATIENCE;
    let mut found = Vec::new();
    while found.len() < count {
        assert!(Instant::now() < until, "{} of {count} messages came", found.len());
        // An error is a lost connection: the next call connects again.
        found.extend(next(client, count, WAIT).await.unwrap_or_default());
    }
    found
}

async fn acknowledge(client: &Mqtt, messages: &[DeviceMessage]) {
    let receipts: Vec<u64> = messages.iter().map(|message| message.receipt).collect();
    client.connect().await.unwrap().acknowledge(&receipts).await.unwrap();
}

fn texts(messages: &[DeviceMessage]) -> Vec<String> {
    messages.iter().map(|message| String::from_utf8_lossy(&message.payload).into_owned()).collect()
}

async fn thousands_of_messages_come_once_and_in_order(version: MqttVersion) {
    const COUNT: usize = 5_000;
    let Some(server) = Mosquitto::start().unwrap() else { return };
    let (one, other) =
        (client(version, &server.url(), "one", "none"), client(version, &server.url(), "other", "jobs/+"));
    other.connect().await.unwrap();
    let messages: Vec<DeviceCommand> = (0..COUNT).map(|n| command("jobs/a", n.to_string())).collect();
    let begun = Instant::now();
    let publish = async {
        for part in messages.chunks(500) {
            assert!(publish(&one, part).await.iter().all(Result::is_ok));
        }
        begun.elapsed()
    };
    let hear = async {
        let mut found = Vec::new();
        while found.len() < COUNT {
            let part = receive(&other, 1).await;
            acknowledge(&other, &part).await;
            found.extend(part);
        }
        found
    };
    let (published, found) = tokio::join!(publish, hear);
    let expected: Vec<String> = (0..COUNT).map(|n| n.to_string()).collect();
    assert_eq!(texts(&found), expected);
    let rate = |took: Duration| (COUNT as f64 / took.as_secs_f64()) as u64;
    println!("published {}/s, received {}/s", rate(published), rate(begun.elapsed()));
    assert_eq!(next(&other, 1, WAIT).await.unwrap(), []);
}

async fn what_was_not_acknowledged_comes_again_and_the_rest_does_not(version: MqttVersion) {
    let Some(server) = Mosquitto::start().unwrap() else { return };
    let subscriber = client(version, &server.url(), "subscriber", "#");
    let connection = subscriber.connect().await.unwrap();
    for n in 0..4 {
        server.publish("a", &n.to_string(), false).unwrap();
    }
    let first = receive(&subscriber, 4).await;
    assert_eq!(texts(&first), ["0", "1", "2", "3"]);
    acknowledge(&subscriber, &first[..2]).await;
    subscriber.disconnect().await;
    // What comes while it is disconnected waits as well.
    server.publish("a", "4", false).unwrap();
    let again = receive(&subscriber, 3).await;
    assert_eq!(texts(&again), ["2", "3", "4"]);
    // What is called over a connection that has ended has no effect.
    connection.acknowledge(&[again[0].receipt]).await.unwrap();
    connection.publish(&[command("a", "5")]).await.unwrap_err();
    connection.receive(1, WAIT).await.unwrap_err();
    subscriber.disconnect().await;
    let again = receive(&subscriber, 3).await;
    assert_eq!(texts(&again), ["2", "3", "4"]);
    acknowledge(&subscriber, &again).await;
    subscriber.disconnect().await;
    subscriber.connect().await.unwrap();
    assert_eq!(next(&subscriber, 1, WAIT).await.unwrap(), []);
}

async fn a_broker_that_dies_loses_nothing_that_was_confirmed(version: MqttVersion) {
    let Some(server) = Mosquitto::start().unwrap() else { return };
    let (one, other) =
        (client(version, &server.url(), "one", "none"), client(version, &server.url(), "other", "jobs"));
    other.connect().await.unwrap();
    assert_eq!(publish(&one, &[command("jobs", "before")]).await, [Ok(())]);
    // Mosquitto confirms messages before it saves them.
    server.save().unwrap();
    server.kill().unwrap();
    let [outcome] = &publish(&one, &[command("jobs", "meanwhile")]).await[..] else { panic!("one outcome") };
    assert!(matches!(outcome, Err(BrokerError::Unreachable(_))), "{outcome:?}");
    server.restart().unwrap();
    // A client that lost a new connection waits before it connects again.
    let until = Instant::now() + PATIENCE;
    while publish(&one, &[command("jobs", "after")]).await != [Ok(())] {
        assert!(Instant::now() < until, "it connects again");
        tokio::time::sleep(WAIT).await;
    }
    let found = receive(&other, 2).await;
    assert_eq!(texts(&found), ["before", "after"]);
}

async fn a_broker_that_forgot_everything_is_subscribed_again(version: MqttVersion) {
    let Some(server) = Mosquitto::start().unwrap() else { return };
    let subscriber = client(version, &server.url(), "subscriber", "jobs");
    subscriber.connect().await.unwrap();
    server.kill().unwrap();
    server.wipe().unwrap();
    server.restart().unwrap();
    let until = Instant::now() + PATIENCE;
    while next(&subscriber, 1, WAIT).await.is_err() {
        assert!(Instant::now() < until, "it connects again");
    }
    server.publish("jobs", "after", false).unwrap();
    assert_eq!(texts(&receive(&subscriber, 1).await), ["after"]);
}

async fn status_that_the_broker_kept_is_marked(version: MqttVersion) {
    let Some(server) = Mosquitto::start().unwrap() else { return };
    server.publish("pump/status", "online", true).unwrap();
    let subscriber = client(version, &server.url(), "subscriber", "+/status");
    let found = receive(&subscriber, 1).await;
    assert!(found[0].retained);
    server.publish("pump/status", "offline", true).unwrap();
    let found = receive(&subscriber, 1).await;
    assert_eq!((found[0].retained, texts(&found)), (false, vec!["offline".to_owned()]));
}

async fn another_client_with_the_same_id_ends_the_connection(version: MqttVersion) {
    let Some(server) = Mosquitto::start().unwrap() else { return };
    let (first, second) =
        (client(version, &server.url(), "same", "#"), client(version, &server.url(), "same", "#"));
    first.connect().await.unwrap();
    second.connect().await.unwrap();
    // The one that lost its connection may take the other one's.
    let (one, other) = tokio::join!(next(&first, 1, PATIENCE / 10), next(&second, 1, PATIENCE / 10));
    let error = one.err().or(other.err()).unwrap();
    assert!(matches!(&error, BrokerError::Unreachable(why) if why.contains("the same client id")), "{error}");
}

async fn a_wrong_password_is_refused_without_being_shown(version: MqttVersion) {
    let Some(server) = Mosquitto::start_with(&["login=windlass:right"]).unwrap() else { return };
    let right = client(version, &server.url(), "right", "#");
    right.connect().await.unwrap();
    let wrong = client(version, &server.url().replace(":right@", ":secret@"), "wrong", "#");
    let error = wrong.connect().await.err().unwrap();
    assert!(matches!(error, BrokerError::Refused(_)), "{error}");
    assert!(!error.to_string().contains("secret") && !wrong.name().contains("secret"));
}

async fn what_cannot_be_published_is_refused_at_once(version: MqttVersion) {
    let Some(server) = Mosquitto::start().unwrap() else { return };
    let one = client(version, &server.url(), "one", "none");
    let large = vec![b'x'; 600 << 10];
    let outcomes = publish(&one, &[command("a/+", "x"), command("a", large), command("a", "x")]).await;
    assert!(matches!(outcomes[0], Err(BrokerError::Invalid(_))), "{outcomes:?}");
    assert!(matches!(outcomes[1], Err(BrokerError::TooLarge { .. })), "{outcomes:?}");
    assert_eq!(outcomes[2], Ok(()));
    let invalid = settings(version, "one", "a/#/b");
    assert!(matches!(Mqtt::open(&server.url(), invalid), Err(BrokerError::Invalid(_))));
}

async fn a_payload_of_256_kib_comes_whole_and_a_longer_one_is_cut(version: MqttVersion) {
    let Some(server) = Mosquitto::start().unwrap() else { return };
    let (one, other) =
        (client(version, &server.url(), "one", "none"), client(version, &server.url(), "other", "large"));
    other.connect().await.unwrap();
    let large = vec![b'x'; 256 << 10];
    let larger = vec![b'x'; 300 << 10];
    assert_eq!(
        publish(&one, &[command("large", large.clone()), command("large", larger)]).await,
        [Ok(()), Ok(())]
    );
    let found = receive(&other, 2).await;
    assert!(found.iter().all(|message| message.payload == large));
    acknowledge(&other, &found).await;
}

/// So much that it comes before the answer to the subscription.
async fn a_long_backlog_is_received(version: MqttVersion) {
    const COUNT: usize = 1_500;
    let Some(server) = Mosquitto::start_with(&["max_inflight_messages=0"]).unwrap() else { return };
    let (one, other) =
        (client(version, &server.url(), "one", "none"), client(version, &server.url(), "other", "jobs"));
    other.connect().await.unwrap();
    other.disconnect().await;
    let messages: Vec<DeviceCommand> = (0..COUNT).map(|n| command("jobs", n.to_string())).collect();
    assert!(publish(&one, &messages).await.iter().all(Result::is_ok));
    let found = receive(&other, COUNT).await;
    let expected: Vec<String> = (0..COUNT).map(|n| n.to_string()).collect();
    assert_eq!(texts(&found), expected);
}

async fn what_is_published_is_acknowledged_while_nobody_receives(version: MqttVersion) {
    const COUNT: usize = 2_000;
    let Some(server) = Mosquitto::start_with(&["max_inflight_messages=0"]).unwrap() else { return };
    let one = client(version, &server.url(), "one", "jobs");
    one.connect().await.unwrap();
    // It receives all that it publishes, and nobody asks for it.
    let messages: Vec<DeviceCommand> = (0..COUNT).map(|n| command("jobs", n.to_string())).collect();
    assert!(publish(&one, &messages).await.iter().all(Result::is_ok));
    assert_eq!(publish(&one, &[command("jobs", "last")]).await, [Ok(())]);
    let found = receive(&one, COUNT + 1).await;
    let expected: Vec<String> = (0..COUNT).map(|n| n.to_string()).chain(["last".to_owned()]).collect();
    assert_eq!(texts(&found), expected);
}

/// More than is kept for a receiver.
async fn messages_that_nobody_asks_for_are_left_to_the_broker_from_a_limit_on(version: MqttVersion) {
    const COUNT: usize = 300;
    let Some(server) = Mosquitto::start_with(&["max_inflight_messages=0"]).unwrap() else { return };
    let (one, other) =
        (client(version, &server.url(), "one", "none"), client(version, &server.url(), "other", "jobs"));
    other.connect().await.unwrap();
    let payload = |n: usize| [n.to_string().into_bytes(), vec![b' '; 256 << 10]].concat();
    for part in (0..COUNT).collect::<Vec<_>>().chunks(50) {
        let messages: Vec<DeviceCommand> = part.iter().map(|n| command("jobs", payload(*n))).collect();
        assert!(publish(&one, &messages).await.iter().all(Result::is_ok));
        // It goes on to work, and confirms that it has heard what came before.
        assert_eq!(publish(&other, &[command("none", "x")]).await, [Ok(())]);
    }
    let (mut found, mut interrupted) = (Vec::new(), 0);
    while found.len() < COUNT {
        match next(&other, COUNT, PATIENCE / 10).await {
            Ok(part) => {
                acknowledge(&other, &part).await;
                found.extend(part);
            }
            Err(error) if error.to_string().contains("64 MiB") => interrupted += 1,
            // It does not connect again at once.
            Err(_) => {}
        }
    }
    assert!(interrupted > 0, "the rest came by a new connection");
    let numbers = texts(&found).into_iter().map(|text| text.trim().to_owned());
    let expected: Vec<String> = (0..COUNT).map(|n| n.to_string()).collect();
    assert_eq!(numbers.collect::<Vec<_>>(), expected, "none is lost, none comes twice, all in order");
}

/// A certificate that nobody vouches for is refused, and one that the URL names is taken, for its name alone; the password
/// counts as well.
async fn certificates_are_checked(version: MqttVersion) {
    let folder = tempfile::tempdir().unwrap();
    certificate::make(folder.path());
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (cert, key) = (format!("certfile={}", file("server.pem")), format!("keyfile={}", file("server.key")));
    let Some((server, port)) = start_with_tls(&["login=windlass:right", &cert, &key]) else { return };
    let url = format!("mqtts://windlass:right@localhost:{port}");
    let open = |url: String| Mqtt::open(&url, settings(version, "one", "jobs"));

    let error = open(url.clone()).unwrap().connect().await.err().unwrap();
    assert!(matches!(&error, BrokerError::Refused(why) if why.contains("?cacert=FILE")), "{error}");

    let trusts = format!("?cacert={}", file("authority.pem"));
    let one = open(format!("{url}{trusts}")).unwrap();
    assert_eq!(one.name(), format!("mqtts://localhost:{port}"));
    one.connect().await.unwrap();
    assert_eq!(publish(&one, &[command("jobs", "x")]).await, [Ok(())]);
    assert_eq!(texts(&receive(&one, 1).await), ["x"]);
    server.publish("jobs", "y", false).unwrap();
    assert_eq!(texts(&receive(&one, 1).await), ["y"]);

    // The name must be the one that the certificate is for.
    let elsewhere = url.replace("localhost", "127.0.0.1");
    let error = open(format!("{elsewhere}{trusts}")).unwrap().connect().await.err().unwrap();
    assert!(matches!(&error, BrokerError::Refused(why) if why.contains("certificate")), "{error}");
    let wrong = url.replace(":right@", ":secret@");
    let error = open(format!("{wrong}{trusts}")).unwrap().connect().await.err().unwrap();
    assert!(matches!(&error, BrokerError::Refused(_)) && !error.to_string().contains("secret"), "{error}");
    for missing in ["missing.pem", "authority.key"] {
        let Err(error) = open(format!("{url}?cacert={}", file(missing))) else { panic!("{missing}") };
        assert!(matches!(&error, BrokerError::Invalid(why) if why.contains(missing)), "{error}");
    }
}

async fn a_client_shows_its_certificate_where_the_broker_wants_one(version: MqttVersion) {
    let folder = tempfile::tempdir().unwrap();
    certificate::make(folder.path());
    let file = |name: &str| folder.path().join(name).display().to_string();
    let lines = [
        format!("certfile={}", file("server.pem")),
        format!("keyfile={}", file("server.key")),
        format!("cafile={}", file("authority.pem")),
        "require_certificate=true".to_owned(),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let Some((_server, port)) = start_with_tls(&lines) else { return };
    let url = format!("mqtts://localhost:{port}?cacert={}", file("authority.pem"));
    let open = |url: &str| Mqtt::open(url, settings(version, "one", "jobs"));

    let error = open(&url).unwrap().connect().await.err().unwrap();
    assert!(matches!(&error, BrokerError::Refused(why) if why.contains("?cert=FILE&key=FILE")), "{error}");
    let with =
        |certificate: &str, key: &str| open(&format!("{url}&cert={}&key={}", file(certificate), file(key)));
    with("server.pem", "server.key").unwrap().connect().await.unwrap();
    for (certificate, key, named) in [
        ("missing.pem", "server.key", "missing.pem"),
        ("server.pem", "missing.key", "missing.key"),
        ("server.pem", "authority.key", "authority.key"),
    ] {
        let Err(error) = with(certificate, key) else { panic!("{named}") };
        assert!(matches!(&error, BrokerError::Invalid(why) if why.contains(named)), "{error}");
    }
}

async fn what_the_broker_does_not_allow_is_refused_with_a_reason(version: MqttVersion) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("acl");
    std::fs::write(&file, "topic read allowed\n").unwrap();
    certificate::readable(folder.path(), &file);
    let acl = format!("acl_file={}", file.display());
    let Some(server) = Mosquitto::start_with(&[&acl]).unwrap() else { return };
    let one = client(version, &server.url(), "one", "allowed");
    let outcomes = publish(&one, &[command("forbidden", "x")]).await;
    match version {
        // Nothing in the protocol says so.
        MqttVersion::V3 => assert_eq!(outcomes, [Ok(())]),
        MqttVersion::V5 => {
            let [Err(BrokerError::Refused(why))] = &outcomes[..] else { panic!("{outcomes:?}") };
            assert!(why.contains("NotAuthorized"), "{why}");
        }
    }
}

/// A broker with a second listener, by TLS, that these lines configure; and its port.
fn start_with_tls(lines: &[&str]) -> Option<(Mosquitto, u16)> {
    let port = windlass_testkit::free_port().unwrap();
    let listener = format!("listener={port} 127.0.0.1");
    let (login, lines): (Vec<&str>, Vec<&str>) = lines.iter().partition(|line| line.starts_with("login="));
    let settings = [login, vec![&listener], lines].concat();
    Some((Mosquitto::start_with(&settings).unwrap()?, port))
}

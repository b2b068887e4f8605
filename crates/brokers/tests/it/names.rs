//! Valid names of queues and topics of each product, checked without a server.

use windlass_brokers::{Broker, BrokerError, Queue, Topic, connect};

/// Nobody listens here.
const NOWHERE: &str = "127.0.0.1:1";

/// A name, a kind where one is given, and the words it is refused with.
type Refused<'s> = (&'s str, Option<&'s str>, &'s str);

fn broker(scheme: &str) -> std::sync::Arc<dyn Broker> {
    connect(&format!("{scheme}://{NOWHERE}")).unwrap()
}

fn queue((name, kind): (&str, Option<&str>)) -> Queue {
    Queue { name: name.to_owned(), kind: kind.map(str::to_owned) }
}

fn topic((name, kind): (&str, Option<&str>)) -> Topic {
    Topic { name: name.to_owned(), kind: kind.map(str::to_owned), keep: 1 }
}

fn is_refused(outcome: Result<(), BrokerError>, (name, kind, words): Refused<'_>) {
    let error = outcome.expect_err(&format!("{name:?} of the kind {kind:?} is refused"));
    assert!(matches!(&error, BrokerError::Invalid(why) if why.contains(words)), "{words}: {error}");
}

fn queues(broker: &dyn Broker, good: &[(&str, Option<&str>)], refused: &[Refused<'_>]) {
    for good in good {
        assert_eq!(broker.check(&queue(*good)), Ok(()), "{good:?}");
    }
    for refused @ (name, kind, _) in refused {
        is_refused(broker.check(&queue((name, *kind))), *refused);
    }
}

fn topics(broker: &dyn Broker, good: &[(&str, Option<&str>)], refused: &[Refused<'_>]) {
    for good in good {
        assert_eq!(broker.check_topic(&topic(*good)), Ok(()), "{good:?}");
    }
    for refused @ (name, kind, _) in refused {
        is_refused(broker.check_topic(&topic((name, *kind))), *refused);
    }
}

#[cfg(feature = "redis")]
#[test]
fn of_redis() {
    let broker = broker("redis");
    queues(
        &*broker,
        &[("no/body: ü", None), ("q", Some("stream")), ("q", Some("list"))],
        &[("q", Some("quorum"), "a stream, a list or a reliable-list"), ("", None, "is empty")],
    );
    topics(
        &*broker,
        &[("events", None), ("events", Some("stream"))],
        &[
            ("events", Some("pubsub"), "drops messages"),
            ("events", Some("list"), "can be a stream"),
            ("", None, "is empty"),
        ],
    );
}

#[cfg(feature = "rabbitmq")]
#[test]
fn of_rabbitmq() {
    let (broker, long) = (broker("amqp"), "x".repeat(256));
    let shared = [("", None, "has no name"), (long.as_str(), None, "255 bytes")];
    queues(
        &*broker,
        &[(&long[1..], None), ("no/body", Some("quorum")), ("q", Some("classic"))],
        &[
            shared[0],
            shared[1],
            ("q", Some("stream"), "single-active, classic or plain"),
            ("amq.q", None, "the server"),
        ],
    );
    topics(
        &*broker,
        &[("amq.topic", None), ("e", Some("fanout")), ("e", Some("quorum"))],
        &[
            ("", None, "1 to 255 bytes"),
            (&long, None, "1 to 255 bytes"),
            ("e", Some("direct"), "topic or fanout"),
            ("amq.q", Some("classic"), "the server"),
        ],
    );
}

#[cfg(feature = "kafka")]
#[test]
fn of_kafka() {
    let (broker, long) = (broker("kafka"), "x".repeat(250));
    let good = [(&long[1..], None), ("no.body_1-dead", None)];
    let refused = [
        ("", None, "cannot be a topic"),
        (&long, None, "1 to 249"),
        ("no/body", None, "letters, digits"),
        (".hidden", None, "must not be a dot"),
        ("q", Some("list"), "leave the kind out"),
    ];
    queues(&*broker, &good, &refused);
    topics(&*broker, &good, &refused);
}

#[cfg(feature = "sqs")]
#[test]
fn of_sqs() {
    let (broker, long) = (broker("sqs+http"), "x".repeat(81));
    let good =
        [(&long[1..], None), ("q", Some("standard")), ("q.fifo", None), ("No_body-1.fifo", Some("fifo"))];
    let refused = [
        ("", None, "1 to 80 letters"),
        (".fifo", None, "1 to 80 letters"),
        (&long, None, "1 to 80 letters"),
        ("no/body", None, "1 to 80 letters"),
        ("no.body", None, "1 to 80 letters"),
        ("q", Some("fifo"), "end in .fifo"),
        ("q.fifo", Some("standard"), "end in .fifo"),
        ("q", Some("list"), "standard and fifo"),
    ];
    queues(&*broker, &good, &refused);
    topics(&*broker, &good, &refused);
}

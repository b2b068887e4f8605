//! Topics of RabbitMQ: exchanges, heard by queues that are bound to them.

use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use windlass_brokers::{
    Announcement, Broker, BrokerError, Consumer, Message, Queue, RabbitMq, Topic,
    conformance::{self, Audience, Listener, Subject as _},
};
use windlass_testkit::{Proxy, RabbitMq as Server};

use super::{
    Queues,
    faults::{as_user, make_user},
    settings, take,
};
use crate::subscriber;

/// The name of an exchange, and of a queue, as the server has them.
fn resource(kind: &str, name: &str) -> String {
    format!("rabbit_misc:r(<<\"/\">>, {kind}, <<\"{name}\">>)")
}

/// Makes an exchange, as anybody may.
fn make_exchange(server: &Server, name: &str, kind: &str, auto_delete: bool) {
    let exchange = resource("exchange", name);
    let made = server.evaluate(&format!(
        "rabbit_exchange:declare({exchange}, {kind}, true, {auto_delete}, false, [], <<\"guest\">>), ok"
    ));
    made.unwrap();
}

/// Binds a queue to an exchange, by a pattern.
fn bind(server: &Server, exchange: &str, pattern: &str, queue: &str) {
    let (exchange, queue) = (resource("exchange", exchange), resource("queue", queue));
    let bound = server.evaluate(&format!(
        "ok = rabbit_binding:add({{binding, {exchange}, <<\"{pattern}\">>, {queue}, []}}, <<\"guest\">>)"
    ));
    bound.unwrap();
}

/// Somebody with a queue of his own, bound by this pattern.
async fn listen(broker: &dyn Broker, server: &Server, exchange: &str, pattern: &str) -> Box<dyn Consumer> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let queue = Queue::new(format!("listener-{}", COUNT.fetch_add(1, Ordering::Relaxed)));
    broker.declare(&queue).await.unwrap();
    bind(server, exchange, pattern, &queue.name);
    broker.consume(&queue, &settings(1_000)).await.unwrap()
}

#[async_trait]
impl Audience for Queues<'_> {
    async fn listen(&self, topic: &Topic) -> Box<dyn Listener + '_> {
        make_exchange(self.server, &topic.name, "topic", false);
        Box::new(listen(&*self.connect(), self.server, &topic.name, "#").await)
    }

    fn delete_topic(&self, topic: &Topic) {
        let exchange = resource("exchange", &topic.name);
        self.server
            .evaluate(&format!("ok = rabbit_exchange:delete({exchange}, false, <<\"guest\">>)"))
            .unwrap();
    }
}

#[test]
fn topics_conform() {
    let Some(server) = Server::shared().unwrap() else { return };
    conformance::run_announcing(&Queues { server, kind: "quorum", proxy: None });
}

#[test]
fn topics_conform_when_disturbed() {
    let Some(server) = Server::start().unwrap() else { return };
    let proxy = Some(Proxy::start(server.port()).unwrap());
    conformance::run_announcing_disturbed(&Queues { server: &server, kind: "quorum", proxy });
}

fn topic(name: &str, kind: Option<&str>) -> Topic {
    Topic { name: name.to_owned(), kind: kind.map(str::to_owned), keep: 0 }
}

fn announcement(subject: &str) -> Announcement {
    Announcement { subject: subject.to_owned(), message: Message::new(subject, "key", "said") }
}

/// What a listener hears of two announcements, in their order.
async fn heard(listener: &mut dyn Consumer, count: usize) -> Vec<String> {
    let mut heard: Vec<String> =
        take(listener, count).await.into_iter().map(|delivery| delivery.message.id).collect();
    heard.sort();
    heard
}

/// Everybody hears of the subjects that he has asked for.
#[tokio::test]
async fn a_subject_is_a_routing_key() {
    let Some(server) = Server::shared().unwrap() else { return };
    let broker = RabbitMq::new(&server.url()).unwrap();
    make_exchange(server, "subjects", "topic", false);
    let mut all = listen(&broker, server, "subjects", "#").await;
    let mut tasks = listen(&broker, server, "subjects", "task.#").await;
    let said = ["step.failed", "task.accepted", "task.ended"].map(announcement);
    assert!(broker.announce(&topic("subjects", None), &said).await.iter().all(Result::is_ok));
    assert_eq!(heard(&mut *all, 3).await, ["step.failed", "task.accepted", "task.ended"]);
    assert_eq!(heard(&mut *tasks, 2).await, ["task.accepted", "task.ended"]);
    // The first three were sent together, so what comes now was sent after what was not for this one.
    let said = [announcement("task.last")];
    assert_eq!(broker.announce(&topic("subjects", None), &said).await, [Ok(())]);
    assert_eq!(heard(&mut *tasks, 1).await, ["task.last"]);
}

/// To all that are bound, whatever they asked for; and into one queue.
#[tokio::test]
async fn a_topic_may_be_a_fanout_or_a_queue() {
    let Some(server) = Server::shared().unwrap() else { return };
    let broker = RabbitMq::new(&server.url()).unwrap();
    make_exchange(server, "fanned-out", "fanout", false);
    let mut one = listen(&broker, server, "fanned-out", "nothing").await;
    let mut other = listen(&broker, server, "fanned-out", "").await;
    let said = [announcement("task.accepted")];
    assert_eq!(broker.announce(&topic("fanned-out", Some("fanout")), &said).await, [Ok(())]);
    for listener in [&mut one, &mut other] {
        assert_eq!(heard(&mut **listener, 1).await, ["task.accepted"]);
    }
    for kind in ["quorum", "classic"] {
        let queue = Queue { name: format!("announced-{kind}"), kind: Some(kind.to_owned()) };
        assert_eq!(broker.announce(&topic(&queue.name, Some(kind)), &said).await, [Ok(())]);
        let mut consumer = broker.consume(&queue, &settings(1)).await.unwrap();
        assert_eq!(heard(&mut *consumer, 1).await, ["task.accepted"]);
    }
}

/// An exchange of another kind is reported, and one that only its owner set up differently is used as it is.
#[tokio::test]
async fn exchanges_of_others_are_used_if_they_can_be() {
    let Some(server) = Server::shared().unwrap() else { return };
    let broker = RabbitMq::new(&server.url()).unwrap();
    let said = [announcement("task.accepted"), announcement("task.ended")];
    make_exchange(server, "direct-one", "direct", false);
    for kind in [None, Some("fanout")] {
        for outcome in broker.announce(&topic("direct-one", kind), &said).await {
            let error = outcome.unwrap_err();
            let is_told = |why: &str| why.contains("another kind of exchange") && why.contains("'direct'");
            assert!(matches!(&error, BrokerError::Invalid(why) if is_told(why)), "{error}");
        }
    }
    make_exchange(server, "passing", "topic", true);
    for name in ["passing", "amq.topic"] {
        assert_eq!(broker.announce(&topic(name, None), &said).await, [Ok(()), Ok(())], "{name}");
    }
    let error = broker.announce(&topic("amq.mine", None), &said).await.remove(0).unwrap_err();
    assert!(matches!(&error, BrokerError::Refused(why) if why.contains("reserved prefix")), "{error}");
    for name in [String::new(), "x".repeat(256)] {
        let outcome = broker.announce(&topic(&name, None), &said).await.remove(0);
        assert!(matches!(outcome, Err(BrokerError::Invalid(_))), "{outcome:?}");
    }
    let long = announcement(&"x".repeat(256));
    let outcome = broker.announce(&topic("amq.topic", None), &[long]).await.remove(0);
    assert!(matches!(outcome, Err(BrokerError::Invalid(_))), "{outcome:?}");
}

#[tokio::test]
async fn the_subscriber_of_the_page_hears() {
    let Some(server) = Server::shared().unwrap() else { return };
    if subscriber::is_there("pika") {
        let broker = RabbitMq::new(&server.url()).unwrap();
        let there = "amqp://windlass:…@queue.example/";
        subscriber::the_page_is_right(&broker, "rabbitmq.md", (there, &server.url())).await;
    }
}

/// Who may not make exchanges can use one that is there, and who may not write to it hears that.
#[tokio::test]
async fn an_exchange_may_be_given_to_a_user() {
    let Some(server) = Server::shared().unwrap() else { return };
    make_exchange(server, "given", "topic", false);
    make_exchange(server, "not-given", "topic", false);
    make_user(server, "relay", ["^made$", "^(made|given)$", "^$"]);
    let broker = as_user(server, "relay");
    let said = [announcement("task.accepted"), announcement("task.ended")];
    for name in ["made", "given"] {
        assert_eq!(broker.announce(&topic(name, None), &said).await, [Ok(()), Ok(())], "{name}");
    }
    for name in ["not-given", "not-there"] {
        for outcome in broker.announce(&topic(name, None), &said).await {
            assert!(matches!(outcome, Err(BrokerError::Refused(_))), "{name}: {outcome:?}");
        }
    }
}

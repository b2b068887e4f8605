//! SQS, as ElasticMQ speaks it.

mod announcing;
mod tls;

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use windlass_brokers::{
    Broker, BrokerError, Consumer, ConsumerSettings, Delivery, InFlight, Message, Queue, Receipt, Sqs,
    conformance::{self, Disturbances, Promises, Subject},
};
use windlass_testkit::{ElasticMq, Proxy};

const PATIENCE: Duration = Duration::from_secs(10);

/// Queues of one kind, by way of a network that may fail.
struct Queues<'s> {
    server: &'s ElasticMq,
    proxy: Proxy,
    is_fifo: bool,
}

impl Subject for Queues<'_> {
    fn connect(&self) -> Arc<dyn Broker> {
        Arc::new(Sqs::new(&self.server.url_at(self.proxy.port())).unwrap())
    }

    fn queue(&self, name: &str) -> Queue {
        Queue::new(if self.is_fifo { format!("{name}.fifo") } else { name.to_owned() })
    }

    fn delete(&self, queue: &Queue) {
        delete(self.server, &queue.name);
        // SQS makes none of the same name for a minute. ElasticMQ does, but its clock of creation has seconds only.
        std::thread::sleep(Duration::from_secs(1));
    }

    fn promises(&self) -> Promises {
        Promises {
            silent_after: Duration::from_secs(2),
            keeps_order: self.is_fifo,
            keeps_ids: true,
            binary: false,
            shares: true,
            acknowledges_each: true,
            counts_deliveries: true,
            heeds_silence: true,
            // ElasticMQ confirms what it has not written yet. Of SQS nobody can kill enough.
            survives_a_kill: false,
        }
    }
}

impl Disturbances for Queues<'_> {
    fn kill(&self) {
        self.server.kill().unwrap();
    }

    fn restart(&self) {
        self.server.restart().unwrap();
    }

    fn cut(&self) {
        self.proxy.cut();
    }

    fn heal(&self) {
        self.proxy.heal();
    }
}

#[test]
fn standard_queues_conform() {
    let Some(server) = ElasticMq::shared().unwrap() else { return };
    conformance::run(&Queues { server, proxy: Proxy::start(server.port()).unwrap(), is_fifo: false });
}

#[test]
fn fifo_queues_conform() {
    let Some(server) = ElasticMq::shared().unwrap() else { return };
    let queues = Queues { server, proxy: Proxy::start(server.port()).unwrap(), is_fifo: true };
    // ElasticMQ takes more than a second to find one message among thousands of keys that keep order.
    let is_many = |name: &str| name.ends_with("::takes_many_at_once");
    for case in conformance::cases().iter().filter(|case| !is_many(&case.name)) {
        case.run(&queues);
    }
}

#[test]
fn standard_queues_conform_when_disturbed() {
    conform_disturbed(false);
}

#[test]
fn fifo_queues_conform_when_disturbed() {
    conform_disturbed(true);
}

fn conform_disturbed(is_fifo: bool) {
    let Some(server) = ElasticMq::start().unwrap() else { return };
    let proxy = Proxy::start(server.port()).unwrap();
    conformance::run_disturbed(&Queues { server: &server, proxy, is_fifo });
}

fn settings(silent_after: u64) -> ConsumerSettings {
    let silent_after = Duration::from_secs(silent_after);
    ConsumerSettings {
        group: "g".to_owned(),
        name: "c".to_owned(),
        in_hands_max: 1000,
        silent_after,
        binding: None,
    }
}

fn messages(count: usize) -> Vec<Message> {
    (0..count)
        .map(|n| Message::new(format!("id-{n}"), format!("key-{}", n % 7), format!("body {n}")))
        .collect()
}

/// Receives until there are this many, or none comes any more.
async fn take(consumer: &mut dyn Consumer, count: usize) -> Vec<Delivery> {
    let mut taken = Vec::new();
    while taken.len() < count {
        let more = consumer.receive(count - taken.len(), PATIENCE).await.unwrap();
        if more.is_empty() {
            break;
        }
        taken.extend(more);
    }
    taken
}

fn receipts(deliveries: &[Delivery]) -> Vec<Receipt> {
    deliveries.iter().map(|delivery| delivery.receipt.clone()).collect()
}

fn ids(deliveries: &[Delivery]) -> BTreeSet<&str> {
    deliveries.iter().map(|delivery| delivery.message.id.as_str()).collect()
}

#[tokio::test]
async fn many_messages_are_sent_taken_and_done() {
    let Some(server) = ElasticMq::shared().unwrap() else { return };
    let sqs = Sqs::new(&server.url()).unwrap();
    for queue in [Queue::new("many"), Queue::new("many.fifo")] {
        let sent: Vec<Message> =
            messages(123).into_iter().map(|message| message.with_header("windlass-token", "t")).collect();
        assert!(sqs.publish(&queue, &sent).await.iter().all(Result::is_ok));
        assert_eq!(sqs.look(&queue).await.unwrap().messages, Some(123));

        let mut consumer = sqs.consume(&queue, &settings(30)).await.unwrap();
        let mut taken = Vec::new();
        while taken.len() < 123 {
            // Of a key that keeps order, what comes next is there when what came before is done.
            let more = consumer.receive(10, PATIENCE).await.unwrap();
            assert!(!more.is_empty());
            consumer.acknowledge(&receipts(&more)).await.unwrap();
            taken.extend(more);
        }
        assert_eq!(ids(&taken).len(), 123);
        let mut by_id: Vec<&Message> = taken.iter().map(|delivery| &delivery.message).collect();
        by_id.sort_by_key(|message| message.id["id-".len()..].parse::<u32>().unwrap());
        assert!(by_id.iter().zip(&sent).all(|(came, sent)| *came == sent));
        assert_eq!(taken[0].deliveries, Some(1));
        assert_eq!(sqs.look(&queue).await.unwrap().messages, Some(0));
    }
}

#[tokio::test]
async fn a_fifo_queue_keeps_order_and_takes_an_id_once() {
    let Some(server) = ElasticMq::shared().unwrap() else { return };
    let sqs = Sqs::new(&server.url()).unwrap();
    let queue = Queue { name: "order.fifo".to_owned(), kind: Some("fifo".to_owned()) };
    let sent: Vec<Message> = (0..35).map(|n| Message::new(format!("{n}"), "one", format!("{n}"))).collect();
    for _ in 0..2 {
        assert!(sqs.publish(&queue, &sent).await.iter().all(Result::is_ok));
    }
    let mut consumer = sqs.consume(&queue, &settings(30)).await.unwrap();
    let mut taken = Vec::new();
    while taken.len() < 35 {
        let more = consumer.receive(10, PATIENCE).await.unwrap();
        assert!(!more.is_empty());
        consumer.acknowledge(&receipts(&more)).await.unwrap();
        taken.extend(more.into_iter().map(|delivery| delivery.message.id));
    }
    assert_eq!(taken, sent.iter().map(|message| message.id.clone()).collect::<Vec<_>>());
    assert_eq!(sqs.look(&queue).await.unwrap().messages, Some(0));
}

/// What is kept stays hidden beyond its visibility timeout; what is neither kept nor settled comes back.
#[tokio::test]
async fn a_message_is_hidden_while_it_is_kept() {
    let Some(server) = ElasticMq::shared().unwrap() else { return };
    let sqs = Sqs::new(&server.url()).unwrap();
    let queue = Queue::new("kept");
    sqs.publish(&queue, &messages(2)).await;
    let mut one = sqs.consume(&queue, &settings(6)).await.unwrap();
    let mut two = sqs.consume(&queue, &settings(6)).await.unwrap();
    let taken = take(&mut *one, 2).await;
    let look = sqs.look(&queue).await.unwrap();
    assert_eq!((look.messages, look.in_flight), (Some(2), InFlight::Counted));
    let until = Instant::now() + Duration::from_secs(20);
    let mut is_back = false;
    while !is_back {
        assert!(Instant::now() < until, "the message that is not kept comes back");
        one.keep(&[taken[0].receipt.clone()]).await.unwrap();
        for delivery in two.receive(1, Duration::from_secs(1)).await.unwrap() {
            assert_eq!(delivery.message.id, taken[1].message.id);
            assert_eq!(delivery.deliveries, Some(2));
            two.acknowledge(&[delivery.receipt]).await.unwrap();
            is_back = true;
        }
    }
    // Both were taken at the same time: without the calls of `keep` the other message would be back as well.
    assert_eq!(two.receive(1, Duration::from_secs(1)).await.unwrap(), []);
    assert_eq!(sqs.look(&queue).await.unwrap().messages, Some(1));
    one.give_back(&[taken[0].receipt.clone()]).await.unwrap();
    let again = take(&mut *two, 1).await;
    assert_eq!(again[0].message.id, taken[0].message.id);
}

/// A call that waits in vain is dropped, and what came for it is there for the next one.
#[tokio::test]
async fn what_came_for_a_dropped_call_is_not_lost() {
    let Some(server) = ElasticMq::shared().unwrap() else { return };
    let sqs = Sqs::new(&server.url()).unwrap();
    let queue = Queue::new("dropped");
    let mut consumer = sqs.consume(&queue, &settings(60)).await.unwrap();
    for _ in 0..3 {
        tokio::time::timeout(Duration::from_millis(200), consumer.receive(10, PATIENCE)).await.unwrap_err();
    }
    sqs.publish(&queue, &messages(1)).await;
    let begun = Instant::now();
    assert_eq!(take(&mut *consumer, 1).await.len(), 1);
    assert!(begun.elapsed() < PATIENCE);
    // A consumer that is dropped with a message in flight gives it back at once, not in a minute.
    drop(consumer);
    let mut other = sqs.consume(&queue, &settings(60)).await.unwrap();
    assert_eq!(take(&mut *other, 1).await.len(), 1);
}

#[tokio::test]
async fn what_cannot_be_sent_fails_alone() {
    let Some(server) = ElasticMq::shared().unwrap() else { return };
    let sqs = Sqs::new(&server.url()).unwrap();
    let queue = Queue::new("bad");
    let mut sent = messages(4);
    sent[1].body = vec![b'x'; sqs_limit(&sqs)].into();
    sent[2].body = vec![0xff].into();
    let outcomes = sqs.publish(&queue, &sent).await;
    assert!(matches!(outcomes[1], Err(BrokerError::TooLarge { .. })), "{outcomes:?}");
    assert!(matches!(outcomes[2], Err(BrokerError::Invalid(_))), "{outcomes:?}");
    assert!(outcomes[0].is_ok() && outcomes[3].is_ok());
    assert_eq!(sqs.look(&queue).await.unwrap().messages, Some(2));
    let wrong = Queue { name: "bad".to_owned(), kind: Some("fifo".to_owned()) };
    assert!(matches!(sqs.declare(&wrong).await, Err(BrokerError::Invalid(_))));
    let wrong = Queue::new("no such/name");
    assert!(
        matches!(sqs.declare(&wrong).await, Err(BrokerError::Invalid(_))),
        "{:?}",
        sqs.declare(&wrong).await
    );
}

fn sqs_limit(sqs: &Sqs) -> usize {
    sqs.message_bytes_max()
}

/// A queue deleted under everybody is made again by who sends and who receives; what was in it is gone.
#[tokio::test]
async fn a_deleted_queue_is_made_again() {
    let Some(server) = ElasticMq::shared().unwrap() else { return };
    let sqs = Sqs::new(&server.url()).unwrap();
    let queue = Queue::new("deleted");
    sqs.publish(&queue, &messages(1)).await;
    let mut consumer = sqs.consume(&queue, &settings(30)).await.unwrap();
    let taken = take(&mut *consumer, 1).await;
    delete(server, "deleted");
    assert!(matches!(sqs.look(&queue).await, Err(BrokerError::NoQueue(_))));
    consumer.acknowledge(&receipts(&taken)).await.unwrap_err();
    assert!(sqs.publish(&queue, &messages(3)).await.iter().all(Result::is_ok));
    assert_eq!(take(&mut *consumer, 3).await.len(), 3);
    delete(server, "deleted");
    // One call may find it gone; the next one finds a new one.
    let _ = consumer.receive(1, Duration::ZERO).await;
    assert!(consumer.receive(1, Duration::ZERO).await.unwrap().is_empty());
    assert_eq!(sqs.look(&queue).await.unwrap().messages, Some(0));
}

fn delete(server: &ElasticMq, queue: &str) {
    server.ask(&format!("Action=DeleteQueue&QueueUrl=http://127.0.0.1:{}/0/{queue}", server.port())).unwrap();
}

/// While it cannot be reached calls fail, and go well again when it can.
#[tokio::test]
async fn a_server_that_is_away_is_asked_again() {
    let Some(server) = ElasticMq::shared().unwrap() else { return };
    let proxy = Proxy::start(server.port()).unwrap();
    let sqs = Sqs::new(&server.url_at(proxy.port())).unwrap();
    let queue = Queue::new("away");
    let mut consumer = sqs.consume(&queue, &settings(30)).await.unwrap();
    proxy.cut();
    let outcomes = sqs.publish(&queue, &messages(1)).await;
    assert!(matches!(outcomes[..], [Err(BrokerError::Unreachable(_))]), "{outcomes:?}");
    assert!(matches!(consumer.receive(1, PATIENCE).await, Err(BrokerError::Unreachable(_))));
    proxy.heal();
    assert!(sqs.publish(&queue, &messages(1)).await[0].is_ok());
    assert_eq!(take(&mut *consumer, 1).await.len(), 1);
}

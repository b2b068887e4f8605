//! Kafka; who is let in is in `secure.rs`.

mod announcing;
mod secure;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use windlass_brokers::{
    Broker, BrokerError, Consumer, ConsumerSettings, Delivery, Kafka, Message, Queue, Receipt,
    conformance::{self, Disturbances, Promises, Subject},
};
use windlass_testkit::Kafka as Server;

const PATIENCE: Duration = Duration::from_secs(60);

/// A server, and topics that are deleted by what it brings along.
struct Topics<'s> {
    server: &'s Server,
}

impl Subject for Topics<'_> {
    fn connect(&self) -> Arc<dyn Broker> {
        Arc::new(Kafka::new(&self.server.url()).unwrap())
    }

    fn delete(&self, queue: &Queue) {
        self.server.delete(&queue.name).unwrap();
    }

    fn promises(&self) -> Promises {
        Promises {
            silent_after: Duration::from_secs(1),
            keeps_order: true,
            keeps_ids: true,
            binary: true,
            shares: true,
            acknowledges_each: false,
            counts_deliveries: false,
            heeds_silence: false,
            survives_a_kill: true,
        }
    }
}

impl Disturbances for Topics<'_> {
    fn kill(&self) {
        self.server.kill().unwrap();
    }

    fn restart(&self) {
        self.server.restart().unwrap();
    }

    // Clients of Kafka connect to where the server says that it is, so a proxy before it sees them once. What stands still
    // is unavailable as well.
    fn cut(&self) {
        self.server.pause().unwrap();
    }

    fn heal(&self) {
        self.server.resume().unwrap();
    }
}

#[test]
fn topics_conform() {
    let Some(server) = Server::shared().unwrap() else { return };
    conformance::run(&Topics { server });
}

#[test]
fn topics_conform_when_disturbed() {
    let Some(server) = Server::start().unwrap() else { return };
    conformance::run_disturbed(&Topics { server: &server });
}

fn settings(silent_after: Duration) -> ConsumerSettings {
    ConsumerSettings {
        binding: None,
        group: "windlass".to_owned(),
        name: "test".to_owned(),
        in_hands_max: 1_000,
        silent_after,
    }
}

fn messages(numbers: std::ops::Range<u32>) -> Vec<Message> {
    numbers
        .map(|number| Message::new(format!("id-{number}"), format!("key-{number}"), number.to_string()))
        .collect()
}

fn number(delivery: &Delivery) -> u32 {
    std::str::from_utf8(&delivery.message.body).unwrap().parse().unwrap()
}

/// The next message that comes.
async fn next(consumer: &mut dyn Consumer) -> Delivery {
    let came = timeout(PATIENCE, async {
        loop {
            if let Some(delivery) = consumer.receive(1, PATIENCE).await.unwrap().pop() {
                return delivery;
            }
        }
    });
    came.await.expect("a message comes")
}

/// A message that nobody can use is given back again and again, and the others go on beside it. It is not done until
/// somebody says so.
#[tokio::test]
async fn a_message_that_is_given_back_stops_no_other() {
    let Some(server) = Server::shared().unwrap() else { return };
    let kafka = Kafka::new(&format!("{}?partitions=1", server.url())).unwrap();
    let queue = Queue::new("poison");
    assert!(kafka.publish(&queue, &messages(0..20)).await.iter().all(Result::is_ok));
    let mut consumer = kafka.consume(&queue, &settings(PATIENCE)).await.unwrap();
    let mut done = BTreeSet::new();
    let mut given_back = 0;
    while done.len() < 19 || given_back < 5 {
        let delivery = next(&mut *consumer).await;
        if number(&delivery) == 0 {
            given_back += 1;
            consumer.give_back(&[delivery.receipt]).await.unwrap();
        } else {
            consumer.acknowledge(std::slice::from_ref(&delivery.receipt)).await.unwrap();
            assert!(done.insert(number(&delivery)), "it comes once");
        }
    }
    assert_eq!(kafka.look(&queue).await.unwrap().messages, Some(20), "what is behind it waits for it");
    let delivery = next(&mut *consumer).await;
    assert_eq!(number(&delivery), 0);
    consumer.acknowledge(&[delivery.receipt]).await.unwrap();
    assert_eq!(kafka.look(&queue).await.unwrap().messages, Some(0));
    let other = Kafka::new(&format!("{}?group=other", server.url())).unwrap();
    assert_eq!(other.look(&queue).await.unwrap().messages, Some(20), "another group has done nothing yet");
}

/// A consumer that has messages in flight and sends nothing loses them to a consumer that joins, and can settle none of them then.
#[tokio::test]
async fn what_a_silent_consumer_has_goes_to_one_that_joins() {
    let Some(server) = Server::shared().unwrap() else { return };
    let kafka = Kafka::new(&format!("{}?partitions=2", server.url())).unwrap();
    let queue = Queue::new("silent");
    assert!(kafka.publish(&queue, &messages(0..40)).await.iter().all(Result::is_ok));
    let mut silent = kafka.consume(&queue, &settings(Duration::from_secs(1))).await.unwrap();
    let mut receipts = BTreeMap::new();
    while receipts.len() < 40 {
        let delivery = next(&mut *silent).await;
        receipts.insert(number(&delivery), delivery.receipt);
    }
    let mut other = kafka.consume(&queue, &settings(Duration::from_secs(1))).await.unwrap();
    let first = next(&mut *other).await;
    let lost = &receipts[&number(&first)];
    silent.keep(std::slice::from_ref(lost)).await.unwrap_err();
    silent.acknowledge(std::slice::from_ref(lost)).await.unwrap_err();
    other.acknowledge(std::slice::from_ref(&first.receipt)).await.unwrap();
    // Each has one partition now. A receipt begins with the partition of its message.
    let partition = |receipt: &Receipt| receipt.0.split(':').next().map(str::to_owned);
    let moved = receipts.iter().filter(|(_, receipt)| partition(receipt) == partition(lost));
    let moved: BTreeSet<u32> = moved.map(|(number, _)| *number).collect();
    assert!(moved.len() < 40, "{moved:?}");
    let mut theirs = BTreeSet::from([number(&first)]);
    while theirs.len() < moved.len() {
        let delivery = next(&mut *other).await;
        other.acknowledge(std::slice::from_ref(&delivery.receipt)).await.unwrap();
        theirs.insert(number(&delivery));
    }
    assert_eq!(theirs, moved);
    for (number, receipt) in &receipts {
        let settled = silent.acknowledge(std::slice::from_ref(receipt)).await;
        assert_eq!(settled.is_ok(), !theirs.contains(number), "{number}: {settled:?}");
    }
}

/// The server dies while a group with messages in flight divides its partitions again.
#[tokio::test]
async fn a_server_that_dies_in_a_rebalance_loses_nothing() {
    const MESSAGES: u32 = 600;
    let Some(server) = Server::start().unwrap() else { return };
    let kafka = Arc::new(Kafka::new(&format!("{}?partitions=6", server.url())).unwrap());
    let queue = Queue::new("rebalance");
    assert!(kafka.publish(&queue, &messages(0..MESSAGES)).await.iter().all(Result::is_ok));
    let came = Arc::new(Mutex::new(BTreeMap::<u32, u32>::new()));
    let mut workers = JoinSet::new();
    let work = |kafka: Arc<Kafka>, queue: Queue, came: Arc<Mutex<BTreeMap<u32, u32>>>| async move {
        let mut consumer = loop {
            match kafka.consume(&queue, &settings(PATIENCE)).await {
                Ok(consumer) => break consumer,
                Err(error) => assert!(error.is_passing(), "{error}"),
            }
        };
        while came.lock().unwrap().len() < MESSAGES as usize {
            let Ok(some) = consumer.receive(5, Duration::from_millis(200)).await else { continue };
            let receipts: Vec<Receipt> = some.iter().map(|delivery| delivery.receipt.clone()).collect();
            {
                let mut came = came.lock().unwrap();
                some.iter().for_each(|delivery| *came.entry(number(delivery)).or_default() += 1);
            }
            // What is not known to be acknowledged may come again.
            let _ = consumer.acknowledge(&receipts).await;
        }
    };
    workers.spawn(work(Arc::clone(&kafka), queue.clone(), Arc::clone(&came)));
    let some_came = || came.lock().unwrap().len() >= 50;
    timeout(PATIENCE, async {
        while !some_came() {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("work begins");
    workers.spawn(work(Arc::clone(&kafka), queue.clone(), Arc::clone(&came)));
    server.kill().unwrap();
    workers.spawn(work(Arc::clone(&kafka), queue.clone(), Arc::clone(&came)));
    let begun = Instant::now();
    server.restart().unwrap();
    timeout(PATIENCE * 2, workers.join_all()).await.expect("everything comes");
    let came = came.lock().unwrap();
    let again: u32 = came.values().map(|times| times - 1).sum();
    println!(
        "{MESSAGES} sent, 0 lost, {again} came again, all done {:.1?} after the restart began",
        begun.elapsed()
    );
}

/// Where nobody listens calls fail, within a time that callers can wait.
#[tokio::test]
async fn nobody_is_where_nobody_listens() {
    let port = windlass_testkit::free_port().unwrap();
    let kafka = Kafka::new(&format!("kafka://127.0.0.1:{port}")).unwrap();
    let queue = Queue::new("nobody");
    let begun = Instant::now();
    let outcomes = kafka.publish(&queue, &messages(0..2)).await;
    assert!(
        matches!(outcomes[..], [Err(BrokerError::Unreachable(_)), Err(BrokerError::Unreachable(_))]),
        "{outcomes:?}"
    );
    assert!(matches!(kafka.look(&queue).await, Err(BrokerError::Unreachable(_))));
    assert!(matches!(kafka.consume(&queue, &settings(PATIENCE)).await, Err(BrokerError::Unreachable(_))));
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    let wrong = Queue { name: "nobody".to_owned(), kind: Some("quorum".to_owned()) };
    assert!(matches!(kafka.declare(&wrong).await, Err(BrokerError::Invalid(_))));
    assert!(matches!(kafka.declare(&Queue::new("no/body")).await, Err(BrokerError::Invalid(_))));
}

//! Three servers behind one address: any one of them may die, and everybody goes on.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::time::sleep;
use windlass_brokers::{Broker, Queue, RabbitMq};
use windlass_testkit::{HaProxy, RabbitMqCluster};

use super::{PATIENCE, message, receipts, settings};

const PRODUCERS: usize = 2;
const CONSUMERS: usize = 2;
const BATCH: usize = 50;

/// What was confirmed, and what came how often.
#[derive(Default)]
struct Count {
    /// No more batches are begun.
    is_enough: AtomicBool,
    /// No producer is at work any more.
    is_over: AtomicBool,
    next: AtomicU64,
    confirmed: Mutex<BTreeSet<String>>,
    came: Mutex<BTreeMap<String, u32>>,
}

/// Publishes batch after batch, each message until it is confirmed.
async fn produce(broker: Arc<RabbitMq>, queue: Queue, count: Arc<Count>) {
    while !count.is_enough.load(Ordering::SeqCst) {
        let first = count.next.fetch_add(BATCH as u64, Ordering::SeqCst) as usize;
        let mut batch: Vec<_> = (first..first + BATCH).map(message).collect();
        while !batch.is_empty() {
            let outcomes = broker.publish(&queue, &batch).await;
            let mut left = Vec::new();
            for (message, outcome) in batch.into_iter().zip(outcomes) {
                match outcome {
                    Ok(()) => {
                        count.confirmed.lock().unwrap().insert(message.id);
                    }
                    Err(error) => {
                        assert!(error.is_passing(), "{error}");
                        left.push(message);
                    }
                }
            }
            if !left.is_empty() {
                sleep(Duration::from_millis(100)).await;
            }
            batch = left;
        }
    }
}

/// Counts what comes, as often as it comes, and acknowledges it.
async fn consume(broker: Arc<RabbitMq>, queue: Queue, count: Arc<Count>) {
    let mut consumer = None;
    while !count.is_over.load(Ordering::SeqCst) || !is_all_there(&count) {
        let Some(consumer) = &mut consumer else {
            consumer = broker.consume(&queue, &settings(200)).await.ok();
            continue;
        };
        match consumer.receive(100, Duration::from_millis(500)).await {
            Ok(deliveries) => {
                for delivery in &deliveries {
                    *count.came.lock().unwrap().entry(delivery.message.id.clone()).or_default() += 1;
                }
                // What cannot be acknowledged comes again.
                let _ = consumer.acknowledge(&receipts(&deliveries)).await;
            }
            Err(error) => {
                assert!(error.is_passing(), "{error}");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

fn is_all_there(count: &Count) -> bool {
    let (confirmed, came) = (count.confirmed.lock().unwrap(), count.came.lock().unwrap());
    confirmed.iter().all(|id| came.contains_key(id))
}

/// Waits until this number of further messages is confirmed and all confirmed ones have arrived. Returns how long that took.
async fn goes_on(count: &Count, more: usize) -> Duration {
    let begun = Instant::now();
    let wanted = count.confirmed.lock().unwrap().len() + more;
    while count.confirmed.lock().unwrap().len() < wanted {
        assert!(begun.elapsed() < PATIENCE, "publishing goes on within {PATIENCE:?}");
        sleep(Duration::from_millis(10)).await;
    }
    begun.elapsed()
}

/// Everybody knows the proxy's address alone. Each server is killed in turn under load, and comes back before the next one
/// dies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_when_servers_die_in_turn() {
    let Some(cluster) = RabbitMqCluster::start().unwrap() else { return };
    let ports: Vec<u16> = cluster.nodes().iter().map(windlass_testkit::RabbitMq::port).collect();
    let Some(proxy) = HaProxy::in_front_of(&ports).unwrap() else { return };
    let configuration = std::fs::read_to_string(proxy.directory().join("data/haproxy.cfg")).unwrap();
    is_on_the_page(&configuration);
    let url = cluster.nodes()[0].url_at(proxy.port());
    let connect = || Arc::new(RabbitMq::new(&url).unwrap());
    let queue = Queue::new("work");
    connect().declare(&queue).await.unwrap();

    let count = Arc::new(Count::default());
    let producers =
        (0..PRODUCERS).map(|_| tokio::spawn(produce(connect(), queue.clone(), Arc::clone(&count))));
    let producers: Vec<_> = producers.collect();
    let consumers =
        (0..CONSUMERS).map(|_| tokio::spawn(consume(connect(), queue.clone(), Arc::clone(&count))));
    let consumers: Vec<_> = consumers.collect();
    goes_on(&count, 500).await;
    for node in cluster.nodes() {
        node.kill().unwrap();
        let took = goes_on(&count, 500).await;
        println!("{} was killed: 500 more were confirmed after {took:.2?}", node.node());
        tokio::task::block_in_place(|| {
            node.restart().unwrap();
            cluster.wait_until_whole().unwrap();
            wait_for_members(&cluster);
        });
        goes_on(&count, 500).await;
    }
    count.is_enough.store(true, Ordering::SeqCst);
    for task in producers {
        tokio::time::timeout(PATIENCE, task).await.expect("all is confirmed").unwrap();
    }
    count.is_over.store(true, Ordering::SeqCst);
    for task in consumers {
        tokio::time::timeout(PATIENCE, task).await.expect("all that is confirmed comes").unwrap();
    }
    let (confirmed, came) = (count.confirmed.lock().unwrap(), count.came.lock().unwrap());
    let lost = confirmed.iter().filter(|id| !came.contains_key(*id)).count();
    let again: u32 = came.values().map(|times| times - 1).sum();
    println!("{} confirmed, {lost} lost, {again} came again", confirmed.len());
    // Each was sent until it was confirmed, so the two sets are the same.
    assert!(came.keys().eq(confirmed.iter()));
    assert!(confirmed.len() > 3_000);
}

/// The configuration of the proxy that the documentation gives, with other addresses.
fn is_on_the_page(configuration: &str) {
    let page = include_str!("../../../../../docs/operate/brokers/rabbitmq.md");
    for line in configuration.lines() {
        let own = ["  bind ", "  server ", "  stats socket "];
        assert!(own.iter().any(|own| line.starts_with(own)) || page.contains(&format!("{line}\n")), "{line}");
    }
    assert!(page.contains("\ncluster_partition_handling = pause_minority\n"));
}

/// Waits until each server has a member of the queue that runs: a server that is back is not yet one that counts.
fn wait_for_members(cluster: &RabbitMqCluster) {
    let until = Instant::now() + PATIENCE;
    for node in cluster.nodes() {
        // The one queue there is.
        let members =
            "[Q] = rabbit_amqqueue:list(), {Name, _} = amqqueue:get_pid(Q), whereis(Name) =/= undefined";
        while node.evaluate(members).ok().as_deref() != Some("true") {
            assert!(Instant::now() < until, "{} has its member again", node.node());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

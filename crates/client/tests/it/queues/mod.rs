//! Workers that take their attempts from the queues of a broker: a real Redis.

mod lives;
mod one_way;
mod with_server;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use windlass_brokers::{Broker, Consumer, ConsumerSettings, Message, Queue, Redis};
use windlass_client::{Client, Failure, Handler, Job, Outcome, Worker, WorkerBuilder};

use crate::{
    exchange_server::ExchangeServer,
    support::{RunningWorker, handler},
};

/// A broker with a queue of step messages of the module `m` and a results queue, both of one test alone.
struct Bench {
    broker: Arc<dyn Broker>,
    queue: Queue,
    results: Queue,
}

impl Bench {
    /// None where there is no Redis.
    fn start(name: &str) -> Option<Self> {
        let server = windlass_testkit::Redis::shared().unwrap()?;
        Some(Self::at(&server.url(), name, None))
    }

    fn at(url: &str, name: &str, kind: Option<&str>) -> Self {
        let queue = |name: String| Queue { name, kind: kind.map(str::to_owned) };
        let broker = Arc::new(Redis::open(url).unwrap());
        Self {
            broker,
            queue: queue(format!("client-{name}")),
            results: queue(format!("client-{name}-results")),
        }
    }

    async fn publish(&self, steps: impl IntoIterator<Item = Value>) {
        let message = |step: Value| Message::new("1", "t", step.to_string());
        let messages: Vec<Message> = steps.into_iter().map(message).collect();
        assert!(self.broker.publish(&self.queue, &messages).await.iter().all(Result::is_ok));
    }

    /// A worker that reports on the results queue.
    fn one_way(&self, handler: Arc<dyn Handler>) -> WorkerBuilder {
        let builder = Worker::one_way(self.broker.clone(), self.results.clone());
        builder.module("m", None, handler).queue("m", self.queue.clone()).concurrency(8)
    }

    fn start_one_way(&self, handler: Arc<dyn Handler>) -> RunningWorker {
        RunningWorker::start_built(self.one_way(handler).build().unwrap())
    }

    /// A worker that reports to a server.
    fn start_with_server(&self, server: &ExchangeServer, handler: Arc<dyn Handler>) -> RunningWorker {
        let client = Client::new(&server.address.to_string()).unwrap();
        let builder = Worker::builder(client).over(self.broker.clone()).queue("m", self.queue.clone());
        RunningWorker::start_built(builder.module("m", None, handler).concurrency(8).build().unwrap())
    }

    /// The next `count` messages of a queue; each of them is settled.
    async fn read(&self, queue: &Queue, count: usize) -> Vec<Message> {
        let settings = ConsumerSettings {
            binding: None,
            group: "test".to_owned(),
            name: "test".to_owned(),
            in_hands_max: 1000,
            silent_after: Duration::from_secs(30),
        };
        let mut consumer: Box<dyn Consumer> = self.broker.consume(queue, &settings).await.unwrap();
        let mut messages = Vec::new();
        while messages.len() < count {
            let deliveries = consumer.receive(count - messages.len(), Duration::from_secs(20)).await.unwrap();
            assert!(!deliveries.is_empty(), "{count} messages in {queue}, there are {}", messages.len());
            let receipts: Vec<_> = deliveries.iter().map(|delivery| delivery.receipt.clone()).collect();
            consumer.acknowledge(&receipts).await.unwrap();
            messages.extend(deliveries.into_iter().map(|delivery| delivery.message));
        }
        messages
    }

    /// The next `count` results.
    async fn results(&self, count: usize) -> Vec<Value> {
        let messages = self.read(&self.results, count).await;
        messages.iter().map(|message| serde_json::from_slice(&message.body).unwrap()).collect()
    }

    async fn left(&self, queue: &Queue) -> u64 {
        self.broker.look(queue).await.unwrap().messages.unwrap()
    }

    /// Waits until nothing is in the queue of step messages, nor in anybody's hands.
    async fn emptied(&self) {
        for _ in 0..1000 {
            if self.left(&self.queue).await == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{} messages are left", self.left(&self.queue).await);
    }
}

fn step(token: &str) -> Value {
    json!({"TaskId": "t-1", "Cursor": 2, "Type": 1, "Parameters": {"Cpu": 4}, "Module": "m", "Command": "c",
        "Timeout": 60, "Retry": 0, "Token": token})
}

fn step_with(token: &str, changes: &Value) -> Value {
    let mut step = step(token);
    for (field, value) in changes.as_object().unwrap() {
        step[field] = value.clone();
    }
    step
}

fn step_without(token: &str, field: &str) -> Value {
    let mut step = step(token);
    step.as_object_mut().unwrap().remove(field).unwrap();
    step
}

/// Succeeds, and counts how often.
fn counting() -> (Arc<AtomicUsize>, Arc<dyn Handler>) {
    let ran = Arc::new(AtomicUsize::new(0));
    let count = ran.clone();
    let handler = handler(move |_job| {
        count.fetch_add(1, Ordering::SeqCst);
        async { Outcome::Succeeded(None) }
    });
    (ran, handler)
}

fn until_stopped() -> Arc<dyn Handler> {
    handler(|job: Job| async move {
        job.cancelled().await;
        Outcome::Failed(Failure::new("stopped on request"))
    })
}

/// Succeeds when the test says so.
fn until_told() -> (tokio::sync::watch::Sender<bool>, Arc<dyn Handler>) {
    let (go, gone) = tokio::sync::watch::channel(false);
    let handler = handler(move |_job| {
        let mut gone = gone.clone();
        async move {
            gone.wait_for(|gone| *gone).await.unwrap();
            Outcome::Succeeded(None)
        }
    });
    (go, handler)
}

//! Topics of Redis, heard by `redis-cli`.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use windlass_brokers::{
    Announcement, Broker, BrokerError, Message, Redis, Topic,
    conformance::{self, Audience, Listener},
};
use windlass_testkit::{Proxy, Redis as Server};

use super::Queues;
use crate::subscriber;

/// Somebody who reads a stream from its beginning on.
struct Reader<'s> {
    server: &'s Server,
    stream: String,
    last: String,
}

#[async_trait]
impl Listener for Reader<'_> {
    async fn hear(&mut self) -> Vec<Message> {
        let answer =
            self.server.ask(&["--json", "XREAD", "COUNT", "500", "STREAMS", &self.stream, &self.last]);
        let answer = answer.ok().and_then(|answer| serde_json::from_str::<Value>(&answer).ok());
        let entries = answer.as_ref().and_then(|answer| answer[&self.stream].as_array());
        let Some(entries) = entries else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            return Vec::new();
        };
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        self.last = text(&entries.last().unwrap()[0]);
        let messages = entries.iter().map(|entry| {
            let fields = entry[1].as_array().unwrap();
            let mut fields: Vec<(String, String)> =
                fields.chunks_exact(2).map(|field| (text(&field[0]), text(&field[1]))).collect();
            let mut take = |name: &str| {
                let place = fields.iter().position(|(field, _)| field == name).unwrap();
                fields.remove(place).1
            };
            let (body, id, key) = (take("body"), take("windlass-id"), take("windlass-key"));
            Message { headers: fields, ..Message::new(id, key, body) }
        });
        messages.collect()
    }
}

#[async_trait]
impl Audience for Queues<'_> {
    async fn listen(&self, topic: &Topic) -> Box<dyn Listener + '_> {
        Box::new(Reader { server: self.server, stream: topic.name.clone(), last: "0".to_owned() })
    }

    fn delete_topic(&self, topic: &Topic) {
        self.server.ask(&["DEL", &topic.name]).unwrap();
    }
}

#[test]
fn topics_conform() {
    let Some(server) = Server::shared().unwrap() else { return };
    conformance::run_announcing(&Queues { server, kind: "stream", proxy: None });
}

#[test]
fn topics_conform_when_disturbed() {
    let Some(server) = Server::start_with(&["appendfsync=always"]).unwrap() else { return };
    let proxy = Some(Proxy::start(server.port()).unwrap());
    conformance::run_announcing_disturbed(&Queues { server: &server, kind: "stream", proxy });
}

fn topic(name: &str) -> Topic {
    Topic { name: name.to_owned(), kind: None, keep: 100 }
}

fn announcements(count: u32) -> Vec<Announcement> {
    let message = |number: u32| Message::new(number.to_string(), "", "said");
    (0..count).map(|n| Announcement { subject: "task.accepted".to_owned(), message: message(n) }).collect()
}

/// As many stay as are to be kept, and not many more.
#[tokio::test]
async fn a_topic_does_not_grow_for_ever() {
    let Some(server) = Server::shared().unwrap() else { return };
    let broker = Redis::open(&server.url()).unwrap();
    let outcomes = broker.announce(&topic("kept-short"), &announcements(2_000)).await;
    assert!(outcomes.iter().all(Result::is_ok));
    let length: u32 = server.ask(&["XLEN", "kept-short"]).unwrap().parse().unwrap();
    assert!((100..400).contains(&length), "{length}");
}

#[tokio::test]
async fn what_cannot_be_a_topic_is_told_why() {
    let Some(server) = Server::shared().unwrap() else { return };
    let broker = Redis::open(&server.url()).unwrap();
    let pubsub = Topic { kind: Some("pubsub".to_owned()), ..topic("forgetful") };
    let outcomes = broker.announce(&pubsub, &announcements(2)).await;
    assert_eq!(outcomes.len(), 2);
    for outcome in outcomes {
        let error = outcome.unwrap_err();
        assert!(matches!(&error, BrokerError::Invalid(why) if why.contains("drops messages")), "{error}");
    }
    server.ask(&["SET", "not-a-stream", "x"]).unwrap();
    let outcome = broker.announce(&topic("not-a-stream"), &announcements(1)).await.remove(0);
    assert!(
        matches!(&outcome, Err(BrokerError::Invalid(why)) if why.contains("something else")),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn the_subscriber_of_the_page_hears() {
    let Some(server) = Server::start().unwrap() else { return };
    if subscriber::is_there("redis") {
        let broker = Redis::open(&server.url()).unwrap();
        let there = "redis://windlass:…@queue.example:6379/0";
        subscriber::the_page_is_right(&broker, "redis.md", (there, &server.url())).await;
    }
}

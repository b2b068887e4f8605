//! Topics of Kafka, heard by groups.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use async_trait::async_trait;
use windlass_brokers::{
    Announcement, Broker, ConsumerSettings, Kafka, Message, Queue, Topic,
    conformance::{self, Audience, Listener, Subject as _},
};
use windlass_testkit::Kafka as Server;

use super::{Topics, settings};

#[async_trait]
impl Audience for Topics<'_> {
    /// Somebody who reads as a group of his own, from the beginning.
    async fn listen(&self, topic: &Topic) -> Box<dyn Listener + '_> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let group = format!("listener-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let settings = ConsumerSettings { group, ..settings(Duration::from_secs(10)) };
        Box::new(self.connect().consume(&Queue::new(&topic.name), &settings).await.unwrap())
    }

    fn delete_topic(&self, topic: &Topic) {
        self.server.delete(&topic.name).unwrap();
    }
}

#[test]
fn topics_are_heard_by_everybody() {
    let Some(server) = Server::shared().unwrap() else { return };
    conformance::run_announcing(&Topics { server });
}

#[test]
fn topics_are_heard_when_disturbed() {
    let Some(server) = Server::start().unwrap() else { return };
    conformance::run_announcing_disturbed(&Topics { server: &server });
}

/// Who announces needs no right to a group, and none but to write to a topic that is there.
#[tokio::test]
async fn a_topic_may_be_given_to_a_user() {
    let settings = [
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found=true",
    ];
    let Some(server) = Server::start_with(&settings).unwrap() else { return };
    let topic = Topic { name: "given".to_owned(), kind: None, keep: 0 };
    let message = Message::new("id", "key", "said");
    let said = [Announcement { subject: "task.accepted".to_owned(), message }];
    let maker = Kafka::new(&server.url()).unwrap();
    assert_eq!(maker.announce(&topic, &said).await, [Ok(())]);
    server.allow_to_write_alone(&topic.name).unwrap();
    server.forbid_group("windlass.given").unwrap();
    let broker = Kafka::new(&server.url()).unwrap();
    assert_eq!(broker.announce(&topic, &said).await, [Ok(())]);
    broker.look(&Queue::new(&topic.name)).await.unwrap_err();
}

//! Topics of SQS: queues with one listener.

use async_trait::async_trait;
use windlass_brokers::{
    Queue, Topic,
    conformance::{self, Audience, Listener, Subject as _},
};
use windlass_testkit::{ElasticMq, Proxy};

use super::{Queues, settings};

#[async_trait]
impl Audience for Queues<'_> {
    fn topic(&self, name: &str) -> Topic {
        Topic { name: self.queue(name).name, kind: None, keep: 0 }
    }

    async fn listen(&self, topic: &Topic) -> Box<dyn Listener + '_> {
        Box::new(self.connect().consume(&Queue::new(&topic.name), &settings(10)).await.unwrap())
    }

    fn delete_topic(&self, topic: &Topic) {
        conformance::Subject::delete(self, &Queue::new(&topic.name));
    }

    fn has_everybody(&self) -> bool {
        false
    }
}

#[test]
fn topics_conform() {
    let Some(server) = ElasticMq::shared().unwrap() else { return };
    for is_fifo in [false, true] {
        let proxy = Proxy::start(server.port()).unwrap();
        conformance::run_announcing(&Queues { server, proxy, is_fifo });
    }
}

#[test]
fn topics_conform_when_disturbed() {
    let Some(server) = ElasticMq::start().unwrap() else { return };
    let proxy = Proxy::start(server.port()).unwrap();
    conformance::run_announcing_disturbed(&Queues { server: &server, proxy, is_fifo: false });
}

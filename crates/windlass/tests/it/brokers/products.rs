//! The same flow through each product.

use windlass_testkit::{ElasticMq, Kafka, RabbitMq, Redis};

use super::{
    Way::{self, Exchange, OneWay},
    runs,
};

/// A test for each product, kind of queue and way back.
macro_rules! products {
    ($($name:ident: $product:ty, $kind:expr, $way:expr;)+) => {
        $(
            #[test]
            fn $name() {
                let way: Way = $way;
                let Some(server) = <$product>::shared().unwrap() else { return };
                runs(&server.url(), $kind, way);
            }
        )+
    };
}

products! {
    redis_streams_with_workers_that_ask: Redis, None, Exchange;
    redis_streams_with_workers_that_answer_there: Redis, None, OneWay;
    redis_lists_with_workers_that_ask: Redis, Some("list"), Exchange;
    redis_lists_with_workers_that_answer_there: Redis, Some("list"), OneWay;
    rabbitmq_with_workers_that_ask: RabbitMq, None, Exchange;
    rabbitmq_with_workers_that_answer_there: RabbitMq, None, OneWay;
    rabbitmq_classic_queues: RabbitMq, Some("classic"), Exchange;
    kafka_with_workers_that_ask: Kafka, None, Exchange;
    kafka_with_workers_that_answer_there: Kafka, None, OneWay;
    sqs_with_workers_that_ask: ElasticMq, None, Exchange;
    sqs_with_workers_that_answer_there: ElasticMq, None, OneWay;
}

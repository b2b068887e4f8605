//! Message brokers, as far as Windlass needs them: the port ([`Broker`], [`Consumer`]), and one folder per
//! product.
//!
//! Only the store is authoritative; a broker carries hints. A message may arrive twice, late, in any order,
//! or never, and a broker may lose all its data: users of this crate must be correct in spite of that. A
//! broker only has to keep confirmed messages while it works normally, and not to deliver acknowledged
//! messages again unless a failure occurs.
//!
//! | feature | product |
//! |---|---|
//! | `redis` | Redis 7: streams with consumer groups, lists |
//! | `rabbitmq` | RabbitMQ: quorum queues and classic queues |
//! | `kafka` | Kafka: topics with consumer groups |
//! | `sqs` | SQS: standard and FIFO queues |
//!
//! `mqtt` is MQTT 3.1.1, as a network of devices ([`DeviceNetwork`]): it has topics and no queues.

#[cfg(feature = "conformance")]
pub mod conformance;
mod connect;
mod dead;
mod devices;
mod error;
#[cfg(feature = "kafka")]
mod kafka;
mod machinery;
mod message;
#[cfg(feature = "mqtt")]
mod mqtt;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(any(feature = "kafka", feature = "mqtt", feature = "rabbitmq", feature = "redis", feature = "sqs"))]
mod percent;
mod port;
mod progress;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "sqs")]
mod sqs;
#[cfg(any(feature = "kafka", feature = "mqtt", feature = "rabbitmq", feature = "redis", feature = "sqs"))]
mod tls;

#[cfg(feature = "mysql")]
pub(crate) use self::mysql::MySqlResults;
#[cfg(feature = "redis")]
pub(crate) use self::redis::Machinery as RedisMachinery;
#[cfg(feature = "redis")]
pub use self::redis::Redis;
pub use connect::{connect, result_backend, signature_broker, survey};
pub use dead::{REASON_HEADER, bury};
pub use devices::{DeviceCommand, DeviceConnection, DeviceMessage, DeviceNetwork};
pub use error::BrokerError;
#[cfg(feature = "kafka")]
pub use kafka::Kafka;
pub use machinery::{ResultBackend, ResultDocument, ResultSettings, SignatureBroker, Survey, Waiting};
pub use message::{Announcement, Delivery, InFlight, Look, Message, Queue, Receipt, Topic};
#[cfg(feature = "mqtt")]
pub use mqtt::{Mqtt, MqttSettings, MqttVersion};
pub use port::{Binding, Broker, Consumer, ConsumerSettings};
pub use progress::{Positions, Progress};
#[cfg(feature = "rabbitmq")]
pub use rabbitmq::RabbitMq;
#[cfg(feature = "rabbitmq")]
pub(crate) use rabbitmq::{Results as RabbitMqResults, Signatures as RabbitMqSignatures};
#[cfg(feature = "sqs")]
pub(crate) use sqs::Signatures as SqsSignatures;
#[cfg(feature = "sqs")]
pub use sqs::Sqs;

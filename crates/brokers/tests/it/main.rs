//! Brokers on the servers they are for.

#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "mqtt")]
mod mqtt;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(any(feature = "kafka", feature = "rabbitmq", feature = "redis", feature = "sqs"))]
mod names;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "sqs")]
mod sqs;
#[cfg(any(feature = "rabbitmq", feature = "redis"))]
mod subscriber;

//! Brokers on the servers they are for.

#[cfg(any(feature = "rabbitmq", feature = "redis"))]
mod certificate;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "sqs")]
mod sqs;

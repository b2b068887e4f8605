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

/// The refusal of a client certificate. With TLS 1.3 the server decides after the handshake, and closes the connection: if the
/// client has sent something by then, the reset can overtake the alert. Then another connection gets it.
#[cfg(any(feature = "rabbitmq", feature = "redis"))]
async fn refusal_of(connect: impl AsyncFn() -> windlass_brokers::BrokerError) -> String {
    for _ in 0..20 {
        match connect().await {
            windlass_brokers::BrokerError::Refused(why) => return why,
            error => assert!(matches!(error, windlass_brokers::BrokerError::Unreachable(_)), "{error}"),
        }
    }
    panic!("no connection was refused with its reason");
}

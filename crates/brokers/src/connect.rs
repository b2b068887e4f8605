//! Makes a broker, or a result backend, from its URL.

use std::sync::Arc;

use crate::{Broker, BrokerError, ResultBackend, SignatureBroker};

/// The products: their names, the schemes of their URLs, and the features of this crate that include them.
const PRODUCTS: &[(&str, &[&str], &str)] = &[
    ("Redis", &["redis", "rediss"], "redis"),
    ("RabbitMQ", &["amqp", "amqps"], "rabbitmq"),
    ("Kafka", &["kafka", "kafkas"], "kafka"),
    ("SQS", &["sqs", "sqs+http", "sqs+https"], "sqs"),
];

/// Makes the broker of a URL: `redis://`, `rediss://`, `amqp://`, `amqps://`, `kafka://`, `kafkas://`,
/// `sqs://`, `sqs+http://` or `sqs+https://`. Does not connect yet.
///
/// # Errors
/// When the scheme is unknown, or its product is not in this build. The error does not contain the URL, which
/// may contain a password.
pub fn connect(url: &str) -> Result<Arc<dyn Broker>, BrokerError> {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    let product = PRODUCTS.iter().find(|(_, schemes, _)| schemes.contains(&scheme));
    let Some((name, _, feature)) = product else {
        let schemes: Vec<&str> =
            PRODUCTS.iter().flat_map(|(_, schemes, _)| schemes.iter().copied()).collect();
        return Err(BrokerError::Invalid(format!(
            "the broker's URL must start with one of {}://",
            schemes.join("://, ")
        )));
    };
    match *feature {
        #[cfg(feature = "redis")]
        "redis" => Ok(Arc::new(crate::Redis::open(url)?)),
        #[cfg(feature = "rabbitmq")]
        "rabbitmq" => Ok(Arc::new(crate::RabbitMq::new(url)?)),
        #[cfg(feature = "kafka")]
        "kafka" => Ok(Arc::new(crate::Kafka::new(url)?)),
        #[cfg(feature = "sqs")]
        "sqs" => Ok(Arc::new(crate::Sqs::new(url)?)),
        _ => Err(BrokerError::Invalid(format!(
            "{name} is not in this build: build it with `--features {feature}`, or with `--features full` for all brokers"
        ))),
    }
}

/// Makes a client of a result backend by its URL, without connecting.
///
/// # Errors
/// When the URL is invalid, or the product is not supported or not in this build.
pub fn result_backend(url: &str) -> Result<Arc<dyn ResultBackend>, BrokerError> {
    #[cfg(feature = "redis")]
    if is_redis(url) {
        return Ok(Arc::new(crate::RedisMachinery::open(url)?));
    }
    Err(unsupported(url, "result backend"))
}

/// Makes a client of a broker with signatures by its URL, without connecting.
///
/// # Errors
/// When the URL is invalid, or the product is not supported or not in this build.
pub fn signature_broker(url: &str) -> Result<Arc<dyn SignatureBroker>, BrokerError> {
    #[cfg(feature = "redis")]
    if is_redis(url) {
        return Ok(Arc::new(crate::RedisMachinery::open(url)?));
    }
    Err(unsupported(url, "broker"))
}

fn is_redis(url: &str) -> bool {
    ["redis://", "rediss://"].iter().any(|scheme| url.starts_with(scheme))
}

fn unsupported(url: &str, what: &str) -> BrokerError {
    BrokerError::Invalid(if is_redis(url) {
        "this build has no support for Redis: build it with the feature `redis`".to_owned()
    } else {
        format!("the {what} of machinery must be Redis: begin the URL with redis:// or rediss://")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_no_broker_is_told_what_does() {
        for url in ["", "redis", "http://127.0.0.1:6379", "valkey://u:secret@127.0.0.1"] {
            let error = connect(url).err().unwrap().to_string();
            assert!(error.contains("redis://, rediss://, amqp://") && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    #[cfg(not(feature = "sqs"))]
    fn what_is_not_built_in_is_told() {
        let error = connect("sqs://eu-central-1").err().unwrap().to_string();
        assert!(error.contains("--features sqs"), "{error}");
    }

    #[test]
    #[cfg(feature = "redis")]
    fn a_broker_is_known_by_its_scheme() {
        let broker = connect("redis://user:secret@127.0.0.1:6379/0").unwrap();
        assert!(!broker.name().contains("secret"), "{}", broker.name());
    }
}

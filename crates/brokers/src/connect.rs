//! Makes a broker, or a result backend, from its URL.

use std::sync::Arc;

use crate::{Broker, BrokerError, ResultBackend, ResultSettings, SignatureBroker, Survey};

/// Its name, the schemes of its URLs, and the feature of this crate that includes it.
type Product = (&'static str, &'static [&'static str], &'static str);

const REDIS: Product = ("Redis", &["redis", "rediss"], "redis");
const RABBITMQ: Product = ("RabbitMQ", &["amqp", "amqps"], "rabbitmq");

const SQS: Product = ("SQS", &["sqs", "sqs+http", "sqs+https"], "sqs");

/// Where clients of the library machinery look for results.
const RESULT_BACKENDS: [Product; 3] = [REDIS, RABBITMQ, ("MySQL", &["mysql", "mariadb"], "mysql")];

/// Brokers to which clients of machinery send signatures.
const SIGNATURE_BROKERS: [Product; 3] = [REDIS, RABBITMQ, SQS];

/// The products: their names, the schemes of their URLs, and the features of this crate that include them.
const PRODUCTS: &[Product] = &[REDIS, RABBITMQ, ("Kafka", &["kafka", "kafkas"], "kafka"), SQS];

/// Makes the broker of a URL: `redis://`, `rediss://`, `amqp://`, `amqps://`, `kafka://`, `kafkas://`,
/// `sqs://`, `sqs+http://` or `sqs+https://`. Does not connect yet.
///
/// # Errors
/// When the scheme is unknown, or its product is not in this build. The error does not contain the URL, which
/// may contain a password.
pub fn connect(url: &str) -> Result<Arc<dyn Broker>, BrokerError> {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    let product = PRODUCTS.iter().find(|(_, schemes, _)| schemes.contains(&scheme));
    let Some(product) = product else {
        let schemes: Vec<&str> =
            PRODUCTS.iter().flat_map(|(_, schemes, _)| schemes.iter().copied()).collect();
        return Err(BrokerError::Invalid(format!(
            "the broker's URL must start with one of {}://",
            schemes.join("://, ")
        )));
    };
    match product.2 {
        #[cfg(feature = "redis")]
        "redis" => Ok(Arc::new(crate::Redis::open(url)?)),
        #[cfg(feature = "rabbitmq")]
        "rabbitmq" => Ok(Arc::new(crate::RabbitMq::new(url)?)),
        #[cfg(feature = "kafka")]
        "kafka" => Ok(Arc::new(crate::Kafka::new(url)?)),
        #[cfg(feature = "sqs")]
        "sqs" => Ok(Arc::new(crate::Sqs::new(url)?)),
        _ => Err(not_in_this_build(product)),
    }
}

/// Makes a client of a result backend by its URL, without connecting. With RabbitMQ, what clients have configured belongs to
/// the queues that both of them declare.
///
/// # Errors
/// When the URL is invalid, or the product is not supported or not in this build.
pub fn result_backend(
    url: &str,
    settings: ResultSettings<'_>,
) -> Result<Arc<dyn ResultBackend>, BrokerError> {
    #[cfg(not(any(feature = "rabbitmq", feature = "mysql")))]
    let _ = settings;
    let product = product_of_machinery(url, &RESULT_BACKENDS, "the result backend of machinery")?;
    match product.2 {
        #[cfg(feature = "redis")]
        "redis" => Ok(Arc::new(crate::RedisMachinery::open(url)?)),
        #[cfg(feature = "rabbitmq")]
        "rabbitmq" => Ok(Arc::new(crate::RabbitMqResults::open(url, settings.keep)?)),
        #[cfg(feature = "mysql")]
        "mysql" => Ok(Arc::new(crate::MySqlResults::open(url, settings.keep, settings.separator)?)),
        _ => Err(not_in_this_build(product)),
    }
}

/// Makes a client of a broker with signatures by its URL, without connecting. `exchange` is where clients of RabbitMQ send.
///
/// # Errors
/// When the URL or the exchange is invalid, or the product is not supported or not in this build.
pub fn signature_broker(url: &str, exchange: &str) -> Result<Arc<dyn SignatureBroker>, BrokerError> {
    #[cfg(not(feature = "rabbitmq"))]
    let _ = exchange;
    let product = product_of_machinery(url, &SIGNATURE_BROKERS, "the broker of machinery")?;
    match product.2 {
        #[cfg(feature = "redis")]
        "redis" => Ok(Arc::new(crate::RedisMachinery::open(url)?)),
        #[cfg(feature = "rabbitmq")]
        "rabbitmq" => Ok(Arc::new(crate::RabbitMqSignatures::open(url, exchange)?)),
        #[cfg(feature = "sqs")]
        "sqs" => Ok(Arc::new(crate::SqsSignatures::open(url)?)),
        _ => Err(not_in_this_build(product)),
    }
}

/// Looks at everything that the library machinery keeps on a server, without changing it. Only Redis shows all of it:
/// elsewhere one would have to take messages to see them.
///
/// # Errors
/// When the URL is invalid, the product is another one or not in this build, or the server does not answer.
pub async fn survey(url: &str) -> Result<Survey, BrokerError> {
    let product = product_of_machinery(url, &[REDIS], "what is looked at")?;
    match product.2 {
        #[cfg(feature = "redis")]
        "redis" => crate::RedisMachinery::open(url)?.survey().await,
        _ => Err(not_in_this_build(product)),
    }
}

/// The one of these products whose URL this is.
fn product_of_machinery<'p>(
    url: &str,
    products: &'p [Product],
    what: &str,
) -> Result<&'p Product, BrokerError> {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    let product = products.iter().find(|(_, schemes, _)| schemes.contains(&scheme));
    product.ok_or_else(|| {
        let names: Vec<&str> = products.iter().map(|(name, ..)| *name).collect();
        let schemes: Vec<&str> =
            products.iter().flat_map(|(_, schemes, _)| schemes.iter().copied()).collect();
        BrokerError::Invalid(format!(
            "{what} must be {}: begin the URL with {}://",
            names.join(" or "),
            schemes.join("://, ")
        ))
    })
}

fn not_in_this_build((name, _, feature): &Product) -> BrokerError {
    BrokerError::Invalid(format!(
        "{name} is not in this build: build it with `--features {feature}`, or with `--features full` for all brokers"
    ))
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

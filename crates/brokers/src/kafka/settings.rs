//! The settings of librdkafka.

use std::time::Duration;

use rdkafka::ClientConfig;

use crate::{
    ConsumerSettings, Queue,
    kafka::{
        address::{self, Address},
        record::MESSAGE_BYTES_MAX,
    },
};

/// The shortest and the longest session timeout that a cluster accepts by default. The library's own thread
/// sends the heartbeats, whatever the consumer does.
const SESSION_RANGE: (Duration, Duration) = (Duration::from_secs(6), Duration::from_secs(60));

/// The time limit for sending a message, retries included.
const SEND_MAX: &str = "10000";

/// The settings of all clients; times are in milliseconds. Clients that only create and observe topics need
/// nothing else.
pub(super) fn common(address: &Address) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", &address.servers);
    config.set("client.id", "windlass");
    // To notice soon that a cluster is available again.
    config.set("reconnect.backoff.max.ms", "1000");
    // To notice soon that a topic was created again.
    config.set("topic.metadata.refresh.interval.ms", "10000");
    // Servers answer at once or never.
    config.set("socket.timeout.ms", "10000");
    config.set("allow.auto.create.topics", "false");
    config.set(
        "security.protocol",
        match (address.tls.is_some(), &address.login) {
            (false, None) => "plaintext",
            (false, Some(_)) => "sasl_plaintext",
            (true, None) => "ssl",
            (true, Some(_)) => "sasl_ssl",
        },
    );
    let files = address.tls.iter().flat_map(|files| {
        let identity = files.identity.as_ref();
        [
            ("ssl.ca.location", files.authorities.as_ref()),
            ("ssl.certificate.location", identity.map(|identity| &identity.certificate)),
            ("ssl.key.location", identity.map(|identity| &identity.key)),
        ]
    });
    for (name, file) in files {
        // Parsed from a URL, which is text.
        if let Some(file) = file.and_then(|file| file.to_str()) {
            config.set(name, file);
        }
    }
    if let Some(login) = &address.login {
        config.set("sasl.mechanism", login.mechanism);
        config.set("sasl.username", &login.user).set("sasl.password", &login.password);
    }
    config
}

/// For observing a topic with the offsets of a group, without being a member of it.
pub(super) fn of_group_observer(address: &Address, group: &str) -> ClientConfig {
    let mut config = common(address);
    config.set("group.id", group).set("enable.auto.commit", "false");
    config
}

/// For sending: confirmed when all replicas are written, in the order of sending, and exactly once in spite
/// of retries.
pub(super) fn of_producer(address: &Address) -> ClientConfig {
    let mut config = common(address);
    config.set("enable.idempotence", "true").set("acks", "all");
    config.set("message.timeout.ms", SEND_MAX).set("topic.metadata.propagation.max.ms", "3000");
    config.set("message.max.bytes", MESSAGE_BYTES_MAX.to_string());
    // All messages of a call are available at once, so waiting for more is useless.
    config.set("linger.ms", "1");
    // The same as other libraries, so that a key's partition does not depend on the sender.
    config.set("partitioner", "murmur2_random");
    config
}

/// For receiving as a member of a group.
pub(super) fn of_member(address: &Address, queue: &Queue, settings: &ConsumerSettings) -> ClientConfig {
    let session = settings.silent_after.clamp(SESSION_RANGE.0, SESSION_RANGE.1);
    let mut config = common(address);
    config.set("group.id", address::group(&settings.group, &queue.name)).set("client.id", &settings.name);
    config.set("session.timeout.ms", session.as_millis().to_string()).set("heartbeat.interval.ms", "1000");
    // Members that keep their partitions continue during a rebalance.
    config.set("partition.assignment.strategy", "cooperative-sticky");
    config.set("auto.offset.reset", "earliest");
    config.set("enable.auto.commit", "false").set("enable.auto.offset.store", "false");
    // Messages that no caller has asked for wait in the cluster, not here.
    config.set("queued.min.messages", "1000").set("queued.max.messages.kbytes", "16384");
    // After its queue was full, the library by default pauses fetching for a second, and would run out of
    // messages long before.
    config.set("fetch.queue.backoff.ms", "10");
    config
}

//! How librdkafka is set.

use std::time::Duration;

use rdkafka::ClientConfig;

use crate::{
    ConsumerSettings, Queue,
    kafka::{
        address::{self, Address},
        record::MESSAGE_BYTES_MAX,
    },
};

/// The shortest and the longest silence after which a cluster that nobody set otherwise takes a consumer for dead. It hears
/// of one from a thread of its own, whatever the consumer does.
const SESSION_RANGE: (Duration, Duration) = (Duration::from_secs(6), Duration::from_secs(60));

/// How long it may take to send a message before that has failed, tries included.
const SEND_MAX: &str = "10000";

/// What every client is set to, in milliseconds where it is a time; those that make topics and look at them to nothing else.
pub(super) fn common(address: &Address) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", &address.servers);
    config.set("client.id", "windlass");
    // A cluster that comes back is noticed soon.
    config.set("reconnect.backoff.max.ms", "1000");
    // So is a topic that was made anew.
    config.set("topic.metadata.refresh.interval.ms", "10000");
    // What is asked is answered at once, or by nobody any more.
    config.set("socket.timeout.ms", "10000");
    config.set("allow.auto.create.topics", "false");
    config.set(
        "security.protocol",
        match (address.is_encrypted, &address.login) {
            (false, None) => "plaintext",
            (false, Some(_)) => "sasl_plaintext",
            (true, None) => "ssl",
            (true, Some(_)) => "sasl_ssl",
        },
    );
    if let Some(file) = &address.authorities {
        config.set("ssl.ca.location", file);
    }
    if let Some(login) = &address.login {
        config.set("sasl.mechanism", login.mechanism);
        config.set("sasl.username", &login.user).set("sasl.password", &login.password);
    }
    config
}

/// For looking at a topic as its group sees it, without being a member of that.
pub(super) fn of_group_observer(address: &Address, group: &str) -> ClientConfig {
    let mut config = common(address);
    config.set("group.id", group).set("enable.auto.commit", "false");
    config
}

/// For sending: confirmed when all copies are made, in the order of sending, and once however often it is tried.
pub(super) fn of_producer(address: &Address) -> ClientConfig {
    let mut config = common(address);
    config.set("enable.idempotence", "true").set("acks", "all");
    config.set("message.timeout.ms", SEND_MAX).set("topic.metadata.propagation.max.ms", "3000");
    config.set("message.max.bytes", MESSAGE_BYTES_MAX.to_string());
    // All of a call are there at once, so there is nothing to wait for.
    config.set("linger.ms", "1");
    // As other libraries do, so that a key's partition does not depend on who sends.
    config.set("partitioner", "murmur2_random");
    config
}

/// For receiving, as a member of a group.
pub(super) fn of_member(address: &Address, queue: &Queue, settings: &ConsumerSettings) -> ClientConfig {
    let session = settings.silent_after.clamp(SESSION_RANGE.0, SESSION_RANGE.1);
    let mut config = common(address);
    config.set("group.id", address::group(&settings.group, &queue.name)).set("client.id", &settings.name);
    config.set("session.timeout.ms", session.as_millis().to_string()).set("heartbeat.interval.ms", "1000");
    // Who keeps its partitions goes on with them while the others are divided anew.
    config.set("partition.assignment.strategy", "cooperative-sticky");
    config.set("auto.offset.reset", "earliest");
    config.set("enable.auto.commit", "false").set("enable.auto.offset.store", "false");
    // What nobody has asked for yet waits in the cluster rather than here.
    config.set("queued.min.messages", "1000").set("queued.max.messages.kbytes", "16384");
    // Where so much waits here it asks for no more, by default for a second, and has nothing to hand out long before.
    config.set("fetch.queue.backoff.ms", "10");
    config
}

//! The program as its users meet it.

mod access;
mod backup;
#[cfg(all(feature = "kafka", feature = "rabbitmq", feature = "redis", feature = "sqs"))]
mod brokers;
mod children;
mod cli;
mod configuration;
mod coordinators;
mod damaged_row;
mod demo;
mod deployment;
mod device_jobs;
mod devices;
mod docs;
mod elections;
mod enqueue;
mod evaluation;
mod exclusive;
mod exclusive_worker;
mod failover;
mod flows;
mod hints;
mod http;
#[cfg(all(feature = "kafka", feature = "redis"))]
mod jobs;
mod keeping_back;
mod lead;
mod malformed;
mod migrate;
mod modules;
mod monitoring;
mod reachable;
mod rollouts;
mod secrets;
mod servers;
mod site;
mod task_list;
mod tls;
mod traces;
mod transfer;
mod triggers;
mod webhooks;
mod workflows;

/// Not a test by itself: a candidate that the tests of `elections` kill and pause.
#[test]
fn rival() {
    windlass_coordinators::conformance::run_rival();
}

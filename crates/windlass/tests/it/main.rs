//! The program as its users meet it.

mod access;
#[cfg(all(feature = "kafka", feature = "rabbitmq", feature = "redis", feature = "sqs"))]
mod brokers;
mod children;
mod cli;
mod demo;
mod deployment;
mod docs;
mod enqueue;
mod evaluation;
mod exclusive;
mod exclusive_worker;
mod failover;
mod fleets;
mod flows;
mod hints;
mod http;
#[cfg(all(feature = "kafka", feature = "redis"))]
mod jobs;
mod keeping_back;
mod leaders;
mod malformed;
mod modules;
mod operating;
mod reachable;
mod servers;
mod site;
mod task_list;
mod tls;
mod triggers;
mod webhooks;
mod workflows;

/// Not a test by itself: a candidate that the tests of `elections` kill and pause.
#[test]
fn rival() {
    windlass_coordinators::conformance::run_rival();
}

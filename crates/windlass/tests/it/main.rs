//! The program as its users meet it.

mod backup;
#[cfg(all(feature = "kafka", feature = "rabbitmq", feature = "redis", feature = "sqs"))]
mod brokers;
mod children;
mod cli;
mod coordinators;
mod damaged_row;
mod demo;
mod docs;
mod enqueue;
mod evaluation;
mod exclusive;
mod exclusive_worker;
mod failover;
mod flows;
mod hints;
mod http;
mod keeping_back;
mod lead;
mod malformed;
mod migrate;
mod modules;
mod servers;
mod site;
mod task_list;
mod transfer;
mod workflows;

//! Several RabbitMQ servers that form one broker.

use std::{thread, time::Instant};

use anyhow::{Context as _, Result, anyhow, ensure};

use super::rabbitmq::ANSWER_MAX;
use crate::{RabbitMq, process::LOOK_EVERY};

/// Three RabbitMQ servers that form one broker. Any one of them may be down.
#[derive(Debug)]
pub struct RabbitMqCluster {
    nodes: Vec<RabbitMq>,
}

impl RabbitMqCluster {
    /// Starts the servers and joins them. Returns nothing if RabbitMQ is not installed.
    ///
    /// # Errors
    /// As [`Server::start`](crate::Server::start).
    pub fn start() -> Result<Option<Self>> {
        if !RabbitMq::is_installed()? {
            return Ok(None);
        }
        let start = || {
            // In a partition, the smaller part waits instead of continuing by itself.
            let started = RabbitMq::start_with(&["cluster_partition_handling=pause_minority"])?;
            started.context("RabbitMQ was removed during the start")
        };
        let nodes: Result<Vec<RabbitMq>> = thread::scope(|scope| {
            let starting: Vec<_> = (0..3).map(|_| scope.spawn(start)).collect();
            let ended =
                starting.into_iter().map(|node| node.join().map_err(|_| anyhow!("a start panicked"))?);
            ended.collect()
        });
        let cluster = Self { nodes: nodes? };
        let first = cluster.nodes[0].node();
        for node in &cluster.nodes[1..] {
            node.evaluate(&format!(
                "rabbit:stop(), ok = rabbit_mnesia:join_cluster('{first}', disc), rabbit:start()"
            ))?;
        }
        cluster.wait_until_whole()?;
        Ok(Some(cluster))
    }

    /// The servers.
    pub fn nodes(&self) -> &[RabbitMq] {
        &self.nodes
    }

    /// Waits until all servers see one another.
    ///
    /// # Errors
    /// When they do not see one another in time.
    pub fn wait_until_whole(&self) -> Result<()> {
        let until = Instant::now() + ANSWER_MAX;
        let wanted = self.nodes.len().to_string();
        for node in &self.nodes {
            loop {
                let seen = node.evaluate("length(rabbit_nodes:all_running())");
                if seen.as_ref().is_ok_and(|seen| *seen == wanted) {
                    break;
                }
                ensure!(Instant::now() < until, "{} sees {seen:?} nodes", node.node());
                thread::sleep(LOOK_EVERY);
            }
        }
        Ok(())
    }
}

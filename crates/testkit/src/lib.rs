//! Real servers for tests: PostgreSQL, MariaDB, Redis, RabbitMQ, Kafka, ElasticMQ, Consul, etcd, ZooKeeper and HAProxy as
//! children of the test, without containers.
//!
//! ```no_run
//! # fn main() -> anyhow::Result<()> {
//! // Nothing when it is not installed: that is told, and fails where `CI` is set.
//! let Some(postgres) = windlass_testkit::Postgres::shared()? else { return Ok(()) };
//! let database = postgres.database()?;      // empty, and only this test's
//! println!("{}", database.url());           // postgres://postgres@127.0.0.1:23456/t_1
//! # Ok(())
//! # }
//! ```
//!
//! [`Server::shared`] is one server for all tests of a program, which costs each of them a database;
//! [`Server::start`] is one for this test alone, which may be [killed](Server::kill), [paused](Server::pause) and
//! [started again](Server::restart). A [`Proxy`] in front of a server cuts it off, holds everything back or makes it slow.
//!
//! Everything is on loopback and in directories of its own; whatever is on this machine already is left alone. What
//! makes it reliable:
//!
//! | file | concern |
//! |---|---|
//! | `keeper.rs` | servers get a signal when the test dies, however it dies |
//! | `home.rs` | so do their directories: a janitor outlives the test by a moment |
//! | `account.rs` | the servers refuse to run as root, so they run as their own users then |
//! | `process.rs` | a child with all its descendants: signals, waiting, reaping |
//! | `template.rs` | a data directory is made once, kept beside what cargo builds, and copied |
//! | `server.rs` | on a port nobody has; ready when *this* server answers there, not a stranger |
//!
//! What is particular to a product is in a file of its name; `sql.rs` has what those with SQL databases share.

mod account;
mod consul;
mod elasticmq;
mod ensemble;
mod etcd;
mod haproxy;
mod home;
mod http;
mod jars;
mod kafka;
mod keeper;
mod mariadb;
mod missing;
mod postgres;
mod process;
mod product;
mod proxy;
mod rabbitmq;
mod rabbitmq_cluster;
mod redis;
mod server;
mod sql;
mod template;
mod zookeeper;

pub use consul::ConsulProduct;
pub use elasticmq::ElasticMqProduct;
pub use ensemble::{Clustered, Ensemble};
pub use etcd::EtcdProduct;
pub use haproxy::HaProxyProduct;
pub use kafka::KafkaProduct;
pub use mariadb::MariaDbProduct;
pub use missing::{SKIPS_VARIABLE, note_skips};
pub use postgres::PostgresProduct;
pub use product::{Place, Product};
pub use proxy::Proxy;
pub use rabbitmq::RabbitMqProduct;
pub use rabbitmq_cluster::RabbitMqCluster;
pub use redis::RedisProduct;
pub use server::{Server, free_port};
pub use sql::{Database, SqlProduct};
pub use zookeeper::ZooKeeperProduct;

/// A PostgreSQL server.
pub type Postgres = Server<PostgresProduct>;

/// A MariaDB server.
pub type MariaDb = Server<MariaDbProduct>;

/// A Kafka server: one node.
pub type Kafka = Server<KafkaProduct>;

/// An ElasticMQ server.
pub type ElasticMq = Server<ElasticMqProduct>;

/// A Redis server.
pub type Redis = Server<RedisProduct>;

/// A RabbitMQ server.
pub type RabbitMq = Server<RabbitMqProduct>;

/// HAProxy in front of other servers.
pub type HaProxy = Server<HaProxyProduct>;

/// A Consul server.
pub type Consul = Server<ConsulProduct>;

/// An etcd server.
pub type Etcd = Server<EtcdProduct>;

/// A ZooKeeper server.
pub type ZooKeeper = Server<ZooKeeperProduct>;

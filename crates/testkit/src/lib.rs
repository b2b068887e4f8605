//! Real servers for tests: PostgreSQL, MariaDB, Redis, RabbitMQ, Kafka, ElasticMQ, Mosquitto, Consul, etcd, ZooKeeper,
//! HAProxy and Prometheus as children of the test, without containers.
//!
//! ```no_run
//! # fn main() -> anyhow::Result<()> {
//! // Nothing if it is not installed: the test reports this, and fails if `CI` is set.
//! let Some(postgres) = windlass_testkit::Postgres::shared()? else { return Ok(()) };
//! let database = postgres.database()?;      // empty, and only this test's
//! println!("{}", database.url());           // postgres://postgres@127.0.0.1:23456/t_1
//! # Ok(())
//! # }
//! ```
//!
//! [`Server::shared`] is one server for all tests of a program; each of them creates a database in it. [`Server::start`]
//! is one for this test alone. The test may [kill](Server::kill), [pause](Server::pause) and [restart](Server::restart)
//! it. A [`Proxy`] in front of a server cuts connections off, stops all data, or adds delay.
//!
//! All servers use loopback and directories of their own, and leave other servers on this machine alone. These files make
//! the kit reliable:
//!
//! | file | concern |
//! |---|---|
//! | `keeper.rs` | servers get a signal when the test ends, even if it is killed |
//! | `home.rs` | a process that outlives the test by a moment removes their directories |
//! | `account.rs` | servers that refuse to run as root run as their own users |
//! | `process.rs` | a child process with all its descendants: signals, waiting, reaping |
//! | `template.rs` | a data directory is created once, stored in cargo's build directory, and copied |
//! | `port.rs` | a port belongs to one process until that ends, also while its server is down |
//! | `server.rs` | a server is ready when this server answers on its port, and no other one |
//!
//! The code of each product is in a file of its name in `products/`. `sql.rs` there has the code that products with SQL
//! databases share.

mod account;
pub mod certificate;
mod home;
mod http;
mod jars;
mod keeper;
mod missing;
mod port;
mod process;
mod product;
mod products;
mod programs;
mod proxy;
mod server;
mod template;

pub use missing::{SKIPS_VARIABLE, note_skips, skip};
pub use port::free_port;
pub use product::{Place, Product};
pub use products::{
    Clustered, ConsulProduct, Database, ElasticMqProduct, Ensemble, EtcdProduct, HaProxyProduct,
    KafkaProduct, MariaDbProduct, MosquittoProduct, PostgresProduct, PrometheusProduct, RabbitMqCluster,
    RabbitMqProduct, RedisProduct, SqlProduct, ZooKeeperProduct,
};
pub use programs::{collector, deploy, machinery};
pub use proxy::Proxy;
pub use server::Server;

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

/// Prometheus.
pub type Prometheus = Server<PrometheusProduct>;

/// A Mosquitto server: MQTT.
pub type Mosquitto = Server<MosquittoProduct>;

/// A Consul server.
pub type Consul = Server<ConsulProduct>;

/// An etcd server.
pub type Etcd = Server<EtcdProduct>;

/// A ZooKeeper server.
pub type ZooKeeper = Server<ZooKeeperProduct>;

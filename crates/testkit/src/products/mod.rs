//! The products, each in a file of its name.

mod consul;
mod elasticmq;
mod ensemble;
mod etcd;
mod haproxy;
mod kafka;
mod mariadb;
mod mosquitto;
mod postgres;
mod prometheus;
mod rabbitmq;
mod rabbitmq_cluster;
mod redis;
mod sql;
mod zookeeper;

pub use consul::ConsulProduct;
pub use elasticmq::ElasticMqProduct;
pub use ensemble::{Clustered, Ensemble};
pub use etcd::EtcdProduct;
pub use haproxy::HaProxyProduct;
pub use kafka::KafkaProduct;
pub use mariadb::MariaDbProduct;
pub use mosquitto::MosquittoProduct;
pub use postgres::PostgresProduct;
pub use prometheus::PrometheusProduct;
pub use rabbitmq::RabbitMqProduct;
pub use rabbitmq_cluster::RabbitMqCluster;
pub use redis::RedisProduct;
pub use sql::{Database, SqlProduct};
pub use zookeeper::ZooKeeperProduct;

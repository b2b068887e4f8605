//! Coordinators on the servers they are for.

#[cfg(feature = "consul")]
mod consul;
#[cfg(feature = "zookeeper")]
mod curator;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(all(feature = "consul", feature = "etcd"))]
mod invalidated;
mod kv;
#[cfg(all(feature = "consul", feature = "etcd", feature = "zookeeper"))]
mod refusals;
mod servers;
#[cfg(all(feature = "consul", feature = "etcd"))]
mod tls;
#[cfg(feature = "zookeeper")]
mod zookeeper;

/// Not a test by itself: a candidate that tests kill and pause.
#[test]
fn rival() {
    windlass_coordinators::conformance::run_rival();
}

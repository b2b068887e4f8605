//! Coordinators on the servers they are for.

#[cfg(feature = "consul")]
mod consul;
#[cfg(feature = "etcd")]
mod etcd;
mod servers;
#[cfg(feature = "zookeeper")]
mod zookeeper;

/// Not a test by itself: a candidate that tests kill and pause.
#[test]
fn rival() {
    windlass_coordinators::conformance::run_rival();
}

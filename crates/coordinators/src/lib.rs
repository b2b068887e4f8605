//! Coordinators elect one leader for a name: the port ([`Coordinator`], [`Leadership`]), and one folder per
//! product.
//!
//! A coordinator only chooses who acts. It cannot prevent two candidates from believing that they lead: the
//! first may have been paused while the second was elected. Two things exclude the damage:
//!
//! - The [fence](Leadership::fence) is higher for each later leader of a name. The owner of every
//!   effect must refuse fences below the highest one seen.
//! - A leader stops on its own monotonic clock at [`Leadership::acts_until`], whatever the coordinator answers.
//!
//! | feature | product |
//! |---|---|
//! | `consul` | Consul 1.15 or later: a session with a TTL, and a key that it locks |
//! | `etcd` | etcd 3.4 or later: a lease, and the keys of the election recipe |
//! | `windlass` | a Windlass server: a lock in its store. Needs nothing else |
//! | `zookeeper` | ZooKeeper 3.5 or later: ephemeral sequential nodes as Apache Curator's leader latch has them |

#[cfg(any(feature = "consul", feature = "etcd", feature = "windlass", feature = "zookeeper"))]
mod address;
mod bound;
mod campaign;
#[cfg(any(feature = "consul", feature = "etcd", feature = "windlass", feature = "zookeeper"))]
mod candidate;
#[cfg(feature = "windlass")]
mod confirmed;
#[cfg(feature = "conformance")]
pub mod conformance;
mod connect;
#[cfg(feature = "consul")]
mod consul;
mod error;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(any(feature = "consul", feature = "etcd", feature = "windlass"))]
mod http;
mod port;
#[cfg(any(feature = "consul", feature = "etcd", feature = "zookeeper"))]
mod stored;
#[cfg(feature = "windlass")]
mod windlass;
#[cfg(feature = "zookeeper")]
mod zookeeper;

pub use bound::Bound;
pub use campaign::{Campaign, Leader};
#[cfg(feature = "windlass")]
pub use confirmed::Confirmed;
pub use connect::{Access, connect, connect_with};
#[cfg(feature = "consul")]
pub use consul::{Consul, Kv, KvChange, KvCommitted, KvEntry, KvList};
pub use error::CoordinatorError;
#[cfg(feature = "etcd")]
pub use etcd::Etcd;
pub use port::{Coordinator, Leadership, Withdrawal};
#[cfg(feature = "windlass")]
pub use windlass::Windlass;
#[cfg(feature = "zookeeper")]
pub use zookeeper::ZooKeeper;

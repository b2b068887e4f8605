//! The test kit on the servers it is for.

mod proxy;
mod servers;

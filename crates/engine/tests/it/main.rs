//! Tests of the engine through its public interface.

mod after_failures;
mod announcing;
mod bodies;
mod broker;
mod commits;
mod dates;
mod engine;
mod exchange;
mod exclusive;
mod faulty_store;
mod leading;
mod leases;
mod locks;
mod malformed;
mod many_polls;
mod offering;
mod pausing;
mod places;
mod portions;
mod reports;
mod restarts;
mod servers;
mod two_servers;
mod unique;
mod why;
mod world;

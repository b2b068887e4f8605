//! Task lists in a real Consul: what waits is taken, beside consumers of the first design.

mod classic;
mod faults;
mod settled;
mod shared;
mod stage;
mod stopped;

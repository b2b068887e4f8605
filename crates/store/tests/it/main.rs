//! Tests of the formats of stored values, and of the stores that are in memory.

mod malformed;
mod stored;
mod stored_2;
mod stored_3;
mod stored_4;
mod stores;

//! Stores: what the engine asks of one ([`Store`] and the traits beside it), how values are encoded, and the parts that
//! products are made of.
//!
//! - [`stored`]: the encoding of everything that is kept, with a version in front.
//! - [`resident`]: the store with a single owner. Active tasks are in memory; a sink writes them down.
//! - [`memory`]: rows in memory, as a sink for the resident store and as a store that several engines share.
//! - [`archive`]: a store as a file, for export and import.
//!
//! What a commit may do is decided in `rules`, for every store alike.
//!
//! A store checks versions and keys. It knows no rule of what follows from what: that is the core's.

pub mod archive;
mod examine;
#[doc(hidden)]
pub mod malformed;
pub mod memory;
mod port;
pub mod resident;
mod rules;
mod signal;
pub mod stored;

pub use examine::*;
pub use port::*;
pub use rules::*;
pub use signal::Signal;

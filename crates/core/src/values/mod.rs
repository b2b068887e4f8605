//! Plain values: names and ids, times, and JSON as parameters and results.

pub(crate) mod backoff;
pub(crate) mod hex;
pub(crate) mod id;
pub(crate) mod json;
pub(crate) mod mix;
pub(crate) mod params;
pub(crate) mod payload;
pub(crate) mod results;
pub(crate) mod secret;
pub(crate) mod time;

pub use backoff::*;
pub use hex::hex;
pub use id::*;
pub use json::*;
pub use params::*;
pub use results::*;
pub use secret::*;
pub use time::*;

//! What every store decides alike: what a commit may do, and whose turn it is.
//!
//! The functions here are pure. A store shows them what it has and writes what they decide, so stores cannot differ.

mod built_on;
mod commit;
mod turns;

pub use built_on::BuiltOn;
pub(crate) use commit::fits;
pub use commit::{ClaimView, Holder, RowView};
pub use turns::{KeyInLine, KeysInLine, Turn, place_among};

//! Leadership of a name, renewed in the background.
//!
//! `Leader` owns a leadership and renews it. [`Term`] is a view of it for others: its fence, and until when the
//! leader may act. `renewal` is the background task.

#[cfg(feature = "coordinators")]
mod elected;
#[cfg(feature = "coordinators")]
mod renewal;
#[cfg_attr(
    not(feature = "coordinators"),
    allow(dead_code, reason = "without the feature nothing makes a term, and workers have none")
)]
mod term;

#[cfg(feature = "coordinators")]
pub use elected::Leader;
pub use term::Term;

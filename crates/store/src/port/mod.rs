//! What the engine needs from outside, as small object-safe traits.

mod archive;
mod built_on;
mod change;
mod claim;
mod clock;
mod damaged_rows;
mod enqueued;
mod ids;
mod limit;
mod outbox;
mod param_filter;
mod quarantine;
mod query;
mod server;
mod store;
mod unique;

pub use archive::*;
pub use built_on::*;
pub use change::*;
pub use claim::*;
pub use clock::*;
pub use enqueued::*;
pub use ids::TaskIds;
pub use limit::*;
pub use outbox::*;
pub use param_filter::*;
pub use quarantine::*;
pub use query::*;
pub use server::*;
pub use store::*;
pub use unique::*;

//! Whom the worker reports to: a server, or the results queue of a broker.

use std::time::Duration;

use futures_util::future::BoxFuture;
use windlass_api::{Payload, Report};

use super::{
    calls::{Call, Returned, State},
    outbox::{Item, Kind},
};

/// Takes reports, and answers polls if it is a server.
pub(super) trait Counterpart: Send {
    /// What it is called, for people.
    fn name(&self) -> &str;

    /// What the worker is called there.
    fn session(&self) -> &str;

    /// Whether what the worker has is its own for the time of a lease only, which polls renew.
    fn grants_leases(&self) -> bool;

    /// A call was lost: who knows what it heard and what it knows.
    fn doubt(&mut self);

    /// A report in its words; nothing where it has none for that.
    fn write(&self, report: &Report, kind: Kind) -> serde_json::Result<Option<Payload>>;

    /// Asks for attempts and cancels; `wait` is for the server, `timeout` for us. Nothing where there is nobody to ask.
    fn poll(
        &mut self,
        state: &State<'_>,
        wait: Duration,
        timeout: Duration,
        call: Call,
    ) -> Option<BoxFuture<'static, Returned>>;

    /// Sends reports; the answer has one status for each.
    fn report(&mut self, state: &State<'_>, batch: Vec<Item>) -> BoxFuture<'static, Returned>;
}

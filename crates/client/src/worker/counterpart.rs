//! The receiver of a worker's reports: a server, or the results queue of a broker.

use std::time::Duration;

use futures_util::future::BoxFuture;
use windlass_api::{Payload, Report};

use super::{
    calls::{Returned, State},
    outbox::{Item, Kind},
};
use crate::Client;

/// What a poll asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asks {
    /// Attempts and cancels.
    ForAttempts,
    /// Nothing: the worker announces that it accepts no more attempts.
    ForNothing,
}

/// A call that polls, with its number: later calls have higher ones.
pub(super) type NumberedCall = (u64, BoxFuture<'static, Returned>);

/// Accepts reports. A server also answers polls.
pub(super) trait Counterpart: Send {
    /// Its name, for log messages.
    fn name(&self) -> &str;

    /// The worker's name there.
    fn session(&self) -> &str;

    /// Whether the worker owns its attempts only for the time of a lease, which polls renew.
    fn grants_leases(&self) -> bool;

    /// The server's client; none if the receiver is not a server.
    fn client(&self) -> Option<&Client> {
        None
    }

    /// A call was lost: it is unknown what the receiver has seen, and whether it has been replaced.
    fn doubt(&mut self);

    /// Converts a report to its format. None if the format cannot express it.
    fn write(&self, report: &Report, kind: Kind) -> serde_json::Result<Option<Payload>>;

    /// Polls. `wait` is the server's time limit, `timeout` that of the worker. None without a server.
    fn poll(
        &mut self,
        state: &State<'_>,
        wait: Duration,
        timeout: Duration,
        asks: Asks,
    ) -> Option<NumberedCall>;

    /// Sends reports. The answer has one status for each.
    fn report(&mut self, state: &State<'_>, batch: Vec<Item>) -> BoxFuture<'static, Returned>;
}

//! The worker's connection to the receiver of its reports: when to make each call, what its answer means for
//! the connection, and how long the claims are valid. The driver handles the contents of answers.

use std::time::{Duration, Instant};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tracing::info;
use windlass_api::{ExchangeAnswer, Payload, Report};

use super::{
    calls::{Call, Returned, State},
    counterpart::{Asks, Counterpart},
    drain::LAST_CALLS_TIMEOUT,
    lease::Lease,
    line::Line,
    outage::{Next, Outage},
    outbox::{Kind, Outbox},
    polls::Polls,
};
use crate::{Error, pacing::Pacing};

/// An empty poll that returns sooner than this did not wait at the server.
const EMPTY_POLL_MIN: Duration = Duration::from_millis(20);

/// The number of such polls in a row that are tolerated. After that the next poll is delayed, so that a
/// server that does not wait is not flooded.
const EMPTY_POLLS_MAX: u32 = 8;

/// The longest pause between two polls that find no server. A starting server waits 300 ms for workers to
/// report their claims before other workers may claim those attempts: a worker must be back by then.
const RECONNECT_MAX: Duration = Duration::from_millis(250);

/// The calls of one session.
pub(super) struct Link {
    counterpart: Box<dyn Counterpart>,
    pub(super) lease: Lease,
    calls: FuturesUnordered<BoxFuture<'static, Returned>>,
    poll_line: Line,
    report_line: Line,
    pub(super) polls: Polls,
    /// When the last reports were sent, and with how many free slots; none if a poll was sent after them.
    reported: Option<(Instant, u32)>,
    outage: Outage,
    empty_polls: u32,
}

impl Link {
    pub(super) fn new(counterpart: Box<dyn Counterpart>) -> Self {
        Self {
            counterpart,
            lease: Lease::default(),
            calls: FuturesUnordered::new(),
            poll_line: Line::paced(Pacing::up_to(RECONNECT_MAX)),
            report_line: Line::default(),
            polls: Polls::default(),
            reported: None,
            outage: Outage::none(),
            empty_polls: 0,
        }
    }

    pub(super) fn session(&self) -> &str {
        self.counterpart.session()
    }

    pub(super) fn server(&self) -> &str {
        self.counterpart.name()
    }

    /// Converts a report to the format of the receiver. None if the format cannot express it.
    pub(super) fn write(&self, report: &Report, kind: Kind) -> serde_json::Result<Option<Payload>> {
        self.counterpart.write(report, kind)
    }

    /// Sends the reports in the outbox, as far as calls may be made now.
    pub(super) fn report(&mut self, state: &State<'_>, outbox: &mut Outbox) {
        if !self.report_line.may_call(state.now) {
            return;
        }
        while let Some(batch) = outbox.take_batch() {
            self.calls.push(self.counterpart.report(state, batch));
            self.polls.reported(state.free);
            self.reported = Some((state.now, state.free));
        }
    }

    /// Announces that the worker accepts no more attempts. False without a server.
    pub(super) fn say_farewell(&mut self, state: &State<'_>) -> bool {
        let call = self.counterpart.poll(state, Duration::ZERO, LAST_CALLS_TIMEOUT, Asks::ForNothing);
        let is_told = call.is_some();
        self.calls.extend(call.map(|(_, call)| call));
        is_told
    }

    /// Opens a poll if one is needed. Earlier polls stay open at their servers and may bring attempts until their time is
    /// over: aborting them could lose attempts in transit.
    pub(super) fn poll(&mut self, state: &State<'_>) {
        if !self.polls.wants(state.free) || !self.poll_line.may_call(state.now) {
            return;
        }
        // After an outage the lease may soon be over: an answer at once renews it.
        let wait = if self.outage.is_on() { Duration::ZERO } else { self.lease.poll_wait() };
        let call = self.counterpart.poll(state, wait, self.lease.poll_timeout(wait), Asks::ForAttempts);
        let Some((number, call)) = call else { return };
        self.calls.push(call);
        self.polls.opened(number, state.free);
        self.reported = None;
    }

    /// When a delayed poll may be made; none if there is no delay.
    pub(super) fn poll_due(&self) -> Option<Instant> {
        self.poll_line.not_before.filter(|_| self.polls.is_due())
    }

    /// When delayed reports may be sent; none if there is no delay.
    pub(super) fn report_due(&self) -> Option<Instant> {
        self.report_line.not_before
    }

    /// The next finished call; none if no call is in flight.
    pub(super) async fn returned(&mut self) -> Option<Returned> {
        self.calls.next().await
    }

    /// Updates the state of the connection after a call.
    pub(super) fn note(&mut self, returned: &Returned) {
        let Returned { sent_at, answer, call } = returned;
        if let Ok(answer) = answer {
            self.outage.is_over();
            self.renew_lease(*sent_at, answer);
        }
        match (call, answer) {
            (Call::Reports(_), Ok(answer)) => {
                if let Some(received) = answer.poll {
                    let latest = self.reported.filter(|(last, _)| last == sent_at);
                    self.polls.answered(received, latest.map(|(_, free)| free));
                }
                self.report_line.succeeded();
                self.poll_line.server_is_there();
            }
            (Call::Reports(_), Err(error)) => self.report_line.failed(error),
            (Call::Farewell, _) => {}
            (Call::Poll(number), Ok(answer)) => {
                let is_newest = self.polls.ended(*number);
                self.poll_line.succeeded();
                self.report_line.server_is_there();
                // An older poll ends at once when its server receives the next one.
                if is_newest {
                    self.hold_back_empty_polls(*sent_at, answer);
                }
            }
            (Call::Poll(number), Err(error)) => {
                self.polls.ended(*number);
                self.poll_line.failed(error);
            }
        }
        if let Err(error) = answer {
            self.failed(*sent_at, error);
        }
    }

    /// Passes a call on.
    ///
    /// # Errors
    /// If it was the first poll of the session, and failed with an error that no waiting corrects.
    pub(super) fn unless_refused(&self, returned: Returned) -> Result<Returned, Error> {
        match returned {
            Returned { call: Call::Poll(_), answer: Err(error), .. }
                if !error.is_temporary() && !self.lease.is_known() =>
            {
                Err(error)
            }
            returned => Ok(returned),
        }
    }

    /// When the file with a refused token is to be read again; none if no token is refused.
    pub(super) fn token_due(&self) -> Option<Instant> {
        self.outage.token_due
    }

    /// Reads the file with a refused token again if that is due.
    pub(super) fn read_token_if_due(&mut self, now: Instant) {
        if self.outage.read_token_if_due(now, self.counterpart.client()) {
            self.has_another_token();
        }
    }

    fn has_another_token(&mut self) {
        self.poll_line.is_corrected();
        self.report_line.is_corrected();
    }

    fn failed(&mut self, sent_at: Instant, error: &Error) {
        self.counterpart.doubt();
        match self.outage.failed(sent_at, error, self.counterpart.client()) {
            Next::AsPaced => {}
            Next::AtOnce => self.has_another_token(),
            // All calls have the same token.
            Next::NotBefore(time) => {
                self.poll_line.wait_until(time);
                self.report_line.wait_until(time);
            }
        }
    }

    fn renew_lease(&mut self, sent_at: Instant, answer: &ExchangeAnswer) {
        if !self.counterpart.grants_leases() {
            return;
        }
        if !self.lease.is_known() {
            info!(server = self.counterpart.name(), lease_ms = answer.lease_ms, "connected");
        }
        self.lease.renew(sent_at, Duration::from_millis(answer.lease_ms));
    }

    fn hold_back_empty_polls(&mut self, sent_at: Instant, answer: &ExchangeAnswer) {
        let empty = answer.attempts.is_empty() && answer.cancels.is_empty();
        if !empty || sent_at.elapsed() >= EMPTY_POLL_MIN {
            self.empty_polls = 0;
            return;
        }
        self.empty_polls += 1;
        if self.empty_polls > EMPTY_POLLS_MAX {
            self.poll_line.not_before = Some(sent_at + EMPTY_POLL_MIN);
        }
    }
}

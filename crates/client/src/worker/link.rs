//! The worker's line to whom it reports: when which call is made, what its answer says of the server, and for how long
//! what the worker holds is its own. What an answer brings is the driver's affair.

use std::time::{Duration, Instant};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tracing::{debug, error, info, warn};
use windlass_api::{ExchangeAnswer, Payload, Report};

use super::{
    calls::{Call, Returned, State},
    counterpart::Counterpart,
    drain::LAST_CALLS_TIMEOUT,
    lease::Lease,
    line::Line,
    outbox::{Kind, Outbox},
};
use crate::{Error, pacing::Pacing};

/// A poll that comes back sooner than this and with nothing was not waited on.
const EMPTY_POLL_MIN: Duration = Duration::from_millis(20);

/// How many such polls in a row are taken for chance. After that the next one is held back, so that a server that
/// does not wait is not flooded.
const EMPTY_POLLS_MAX: u32 = 8;

/// The longest pause between two polls that find no server. A server that starts waits 300 ms for the workers to
/// say what they hold before it gives away what may be running: a worker must be back by then.
const RECONNECT_MAX: Duration = Duration::from_millis(250);

/// The calls of one session, made and answered.
pub(super) struct Link {
    counterpart: Box<dyn Counterpart>,
    pub(super) lease: Lease,
    calls: FuturesUnordered<BoxFuture<'static, Returned>>,
    polls: Line,
    reports: Line,
    polls_open: usize,
    /// The last call was lost, and a person was told.
    server_away: bool,
    empty_polls: u32,
}

impl Link {
    pub(super) fn new(counterpart: Box<dyn Counterpart>) -> Self {
        Self {
            counterpart,
            lease: Lease::default(),
            calls: FuturesUnordered::new(),
            polls: Line::paced(Pacing::up_to(RECONNECT_MAX)),
            reports: Line::default(),
            polls_open: 0,
            server_away: false,
            empty_polls: 0,
        }
    }

    pub(super) fn session(&self) -> &str {
        self.counterpart.session()
    }

    pub(super) fn server(&self) -> &str {
        self.counterpart.name()
    }

    /// A report in the words of whom it goes to; nothing where it has none for that.
    pub(super) fn write(&self, report: &Report, kind: Kind) -> serde_json::Result<Option<Payload>> {
        self.counterpart.write(report, kind)
    }

    pub(super) fn polls_open(&self) -> usize {
        self.polls_open
    }

    /// Makes the calls that carry what waits in the outbox, as far as they may be made now.
    pub(super) fn report(&mut self, state: &State<'_>, outbox: &mut Outbox) {
        if !self.reports.may_call(state.now) {
            return;
        }
        while let Some(batch) = outbox.take_batch() {
            self.calls.push(self.counterpart.report(state, batch));
        }
    }

    /// Says that nothing more is taken. False where nobody is to be told.
    pub(super) fn say_farewell(&mut self, state: &State<'_>) -> bool {
        let call = self.counterpart.poll(state, Duration::ZERO, LAST_CALLS_TIMEOUT, Call::Farewell);
        let is_told = call.is_some();
        self.calls.extend(call);
        is_told
    }

    /// Opens a poll if none is open and one may be made now.
    pub(super) fn poll(&mut self, state: &State<'_>) {
        if self.polls_open > 0 || !self.polls.may_call(state.now) {
            return;
        }
        let wait = self.lease.poll_wait();
        let call = self.counterpart.poll(state, wait, self.lease.poll_timeout(wait), Call::Poll);
        self.polls_open += usize::from(call.is_some());
        self.calls.extend(call);
    }

    /// When a poll that was held back may be made; none if nothing holds it back.
    pub(super) fn poll_due(&self) -> Option<Instant> {
        self.polls.not_before.filter(|_| self.polls_open == 0)
    }

    /// When reports that were held back may be sent; none if nothing holds them back.
    pub(super) fn report_due(&self) -> Option<Instant> {
        self.reports.not_before
    }

    /// The next call that comes back; none if no call is under way.
    pub(super) async fn returned(&mut self) -> Option<Returned> {
        self.calls.next().await
    }

    /// Takes note of what the end of a call says of the server.
    pub(super) fn note(&mut self, returned: &Returned) {
        let Returned { sent_at, answer, call } = returned;
        match answer {
            Ok(answer) => self.renew_lease(*sent_at, answer),
            Err(error) => self.session_in_doubt(error),
        }
        match (call, answer) {
            (Call::Reports(_), Ok(_)) => {
                self.reports.succeeded();
                self.polls.server_is_there();
            }
            (Call::Reports(_), Err(error)) => self.reports.failed(error),
            (Call::Farewell, _) => {}
            (Call::Poll, Ok(answer)) => {
                self.polls_open -= 1;
                self.polls.succeeded();
                self.reports.server_is_there();
                self.hold_back_empty_polls(*sent_at, answer);
            }
            (Call::Poll, Err(error)) => {
                self.polls_open -= 1;
                self.polls.failed(error);
            }
        }
    }

    /// Whether the server refuses the worker as a whole: its first poll, for a reason that will not go away.
    pub(super) fn is_refused(&self, returned: &Returned) -> bool {
        let refused = returned.answer.as_ref().is_err_and(|error| !error.is_temporary());
        refused && matches!(returned.call, Call::Poll) && !self.lease.is_known()
    }

    fn renew_lease(&mut self, sent_at: Instant, answer: &ExchangeAnswer) {
        self.server_away = false;
        if !self.counterpart.grants_leases() {
            return;
        }
        if !self.lease.is_known() {
            info!(server = self.counterpart.name(), lease_ms = answer.lease_ms, "connected");
        }
        self.lease.renew(sent_at, Duration::from_millis(answer.lease_ms));
    }

    fn session_in_doubt(&mut self, error: &Error) {
        let first = !std::mem::replace(&mut self.server_away, true);
        self.counterpart.doubt();
        if error.is_temporary() && first {
            // Once per outage: it may last, and a person must see why nothing happens.
            warn!(%error, "a call was lost; calls are made again until the server answers");
        } else if error.is_temporary() {
            debug!(%error, "a call was lost and will be made again");
        } else {
            error!(%error, "the server refuses a call, which will be made again");
        }
    }

    fn hold_back_empty_polls(&mut self, sent_at: Instant, answer: &ExchangeAnswer) {
        let empty = answer.attempts.is_empty() && answer.cancels.is_empty();
        if !empty || sent_at.elapsed() >= EMPTY_POLL_MIN {
            self.empty_polls = 0;
            return;
        }
        self.empty_polls += 1;
        if self.empty_polls > EMPTY_POLLS_MAX {
            self.polls.not_before = Some(sent_at + EMPTY_POLL_MIN);
        }
    }
}

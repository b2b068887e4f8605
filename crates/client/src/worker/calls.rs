//! The calls of one session: their numbers, contents and time limits.

use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use uuid::Uuid;
use windlass_api::{ExchangeAnswer, ExchangeRequest, PROTOCOL, Payload, Report};

use super::{
    Settings, Token,
    counterpart::{Asks, Counterpart, NumberedCall},
    ledger::Ledger,
    outbox::{Item, Kind},
    registry::Registry,
};
use crate::{Client, Error};

/// The time limit for an answer to reports, after which they are sent again: longer than any working disk
/// needs.
const REPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// The interval at which polls contain the list of claimed attempts. After a lost call the next poll contains
/// it at once. Otherwise the list only protects against a server that was replaced between two calls, and
/// under load sending it more often would cost more than the work itself.
const HOLDING_INTERVAL: Duration = Duration::from_millis(50);

/// A finished call.
pub(super) struct Returned {
    pub(super) sent_at: Instant,
    pub(super) answer: Result<ExchangeAnswer, Error>,
    pub(super) call: Call,
}

/// The purpose of a call.
pub(super) enum Call {
    /// Claims attempts and receives cancels. It has the number of its call.
    Poll(u64),
    /// Announces that the worker accepts no more attempts.
    Farewell,
    /// Sends reports.
    Reports(Vec<Item>),
}

/// The session as the server sees it.
pub(super) struct Session {
    client: Client,
    id: String,
    seq: u64,
    holding_said_at: Option<Instant>,
    /// Whether it has announced, or is announcing, that it accepts no more attempts.
    is_draining: bool,
}

impl Session {
    pub(super) fn new(client: Client) -> Self {
        let id = Uuid::new_v4().to_string();
        Self { client, id, seq: 0, holding_said_at: None, is_draining: false }
    }

    fn request(&mut self, state: &State<'_>) -> ExchangeRequest {
        self.seq += 1;
        ExchangeRequest {
            protocol: PROTOCOL,
            session: self.id.clone(),
            seq: self.seq,
            attached: true,
            lease_ms: state.settings.lease.map(|lease| u64::try_from(lease.as_millis()).unwrap_or(u64::MAX)),
            worker: None,
            holding: None,
            declining: Vec::new(),
            modules: Some(state.registry.offers(state.free)),
            free: Some(state.free),
            draining: None,
            wait_ms: 0,
            reports: Vec::new(),
        }
    }
}

impl Counterpart for Session {
    fn name(&self) -> &str {
        self.client.server()
    }

    fn session(&self) -> &str {
        &self.id
    }

    fn grants_leases(&self) -> bool {
        true
    }

    fn client(&self) -> Option<&Client> {
        Some(&self.client)
    }

    fn doubt(&mut self) {
        self.holding_said_at = None;
    }

    fn write(&self, report: &Report, _kind: Kind) -> serde_json::Result<Option<Payload>> {
        serde_json::value::to_raw_value(report).map(Some)
    }

    fn poll(
        &mut self,
        state: &State<'_>,
        wait: Duration,
        timeout: Duration,
        asks: Asks,
    ) -> Option<NumberedCall> {
        let mut request = self.request(state);
        let number = request.seq;
        let call = match asks {
            Asks::ForAttempts => Call::Poll(number),
            Asks::ForNothing => Call::Farewell,
        };
        self.is_draining |= asks == Asks::ForNothing;
        request.wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        if self.holding_said_at.is_none_or(|said_at| state.now - said_at >= HOLDING_INTERVAL) {
            self.holding_said_at = Some(state.now);
            request.holding = Some(state.ledger.holding());
            request.declining = state.ledger.declining();
            request.worker = Some(state.settings.info.clone());
        }
        // A restarted server learns it from the first poll that names the worker.
        if asks == Asks::ForNothing || request.worker.is_some() {
            request.draining = self.is_draining.then_some(true);
        }
        let client = self.client.clone();
        let sent_at = state.now;
        let called = async move {
            let answer = client.exchange_within(&request, timeout).await;
            Returned { sent_at, answer, call }
        };
        Some((number, Box::pin(called)))
    }

    /// Also sends the number of free slots, so that the open poll can receive more attempts.
    fn report(&mut self, state: &State<'_>, batch: Vec<Item>) -> BoxFuture<'static, Returned> {
        let mut request = self.request(state);
        let mut tokens: Vec<(Token, Kind)> = Vec::with_capacity(batch.len());
        request.reports = Vec::with_capacity(batch.len());
        for item in batch {
            tokens.push((item.token, item.kind));
            request.reports.push(item.report);
        }
        // A restarted server may receive this call before the poll.
        if self.holding_said_at.is_none() {
            request.worker = Some(state.settings.info.clone());
        }
        let client = self.client.clone();
        let sent_at = state.now;
        Box::pin(async move {
            let answer = client.exchange_within(&request, REPORT_TIMEOUT).await;
            let batch = rejoin(tokens, request.reports);
            let answer = answer.and_then(|answer| check(&client, &batch, answer));
            Returned { sent_at, answer, call: Call::Reports(batch) }
        })
    }
}

/// The state of the worker, for its calls.
pub(super) struct State<'a> {
    pub(super) now: Instant,
    pub(super) settings: &'a Settings,
    pub(super) registry: &'a Registry,
    pub(super) ledger: &'a Ledger,
    /// How many more attempts the worker wants: none in a drain.
    pub(super) free: u32,
}

fn rejoin(tokens: Vec<(Token, Kind)>, reports: Vec<Payload>) -> Vec<Item> {
    tokens.into_iter().zip(reports).map(|((token, kind), report)| Item { token, kind, report }).collect()
}

/// Answers correspond to reports by position. An answer that does not match is malformed.
fn check(client: &Client, batch: &[Item], answer: ExchangeAnswer) -> Result<ExchangeAnswer, Error> {
    let fits = answer.reports.len() == batch.len()
        && answer.reports.iter().zip(batch).all(|(answer, item)| answer.token == *item.token);
    if fits {
        return Ok(answer);
    }
    Err(Error::Malformed {
        server: client.server().to_owned(),
        call: "POST /v1/worker/exchange".to_owned(),
        detail: format!(
            "{} reports got {} answers that do not match them",
            batch.len(),
            answer.reports.len()
        ),
    })
}

//! Takes deliveries and reports them: a worker in the process of the server, for the modules of its webhooks.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::oneshot,
    task::{Id, JoinError, JoinSet},
    time::sleep,
};
use windlass_core::{Millis, Name, Outcome};
use windlass_engine::{Exchange, ExchangeAnswer, HandedOut, Said, WorkerReport};
use windlass_store::{ClaimRequest, SessionId, WorkerState};

use super::{
    delivery,
    sender::{Sender, failed},
};
use crate::http::App;

/// How long a poll waits.
const WAIT: Millis = Millis::from_secs(10);

/// The pause after a call that failed.
const PAUSE: Duration = Duration::from_secs(1);

/// The worker.
struct Worker {
    app: Arc<App>,
    senders: BTreeMap<Name, Arc<Sender>>,
    session: SessionId,
    seq: u64,
    running: JoinSet<Outcome>,
    /// The token and the module of each request in flight.
    in_flight: HashMap<Id, (String, Name)>,
    /// The tokens of all attempts that are in flight or not reported.
    holding: BTreeSet<String>,
    ended: Vec<WorkerReport>,
}

/// Delivers until the server stops, then waits for the requests in flight, reports them, and drops `end`.
pub(super) async fn run(app: Arc<App>, senders: BTreeMap<Name, Arc<Sender>>, end: oneshot::Sender<()>) {
    let mut worker = Worker {
        session: SessionId(uuid::Uuid::new_v4().as_u128()),
        senders,
        seq: 0,
        running: JoinSet::new(),
        in_flight: HashMap::new(),
        holding: BTreeSet::new(),
        ended: Vec::new(),
        app: app.clone(),
    };
    tokio::select! {
        never = worker.work() => match never {},
        () = app.shutdown.begun() => {}
    }
    worker.drain().await;
    drop(end);
    std::future::pending().await
}

impl Worker {
    async fn work(&mut self) -> std::convert::Infallible {
        loop {
            let call = self.call(WAIT, Vec::new());
            let app = self.app.clone();
            let poll = async {
                let answer = app.engine.exchange(call, app.clock.now()).await;
                if answer.is_err() {
                    sleep(PAUSE).await;
                }
                answer
            };
            tokio::select! {
                Some(ended) = self.running.join_next_with_id() => self.note(ended),
                answer = poll => match answer {
                    Ok(answer) => self.begin(answer),
                    Err(error) => tracing::warn!(%error, "no deliveries to webhooks can be taken; trying again"),
                },
            }
            self.report().await;
        }
    }

    /// Lets the requests in flight end.
    async fn drain(&mut self) {
        while let Some(ended) = self.running.join_next_with_id().await {
            self.note(ended);
        }
        while !self.ended.is_empty() {
            self.report().await;
        }
    }

    fn call(&mut self, wait: Millis, reports: Vec<WorkerReport>) -> Exchange {
        self.seq += 1;
        let free = |module: &Name, sender: &Sender| {
            let busy = self.in_flight.values().filter(|(_, of)| of == module).count();
            sender.in_flight.saturating_sub(u32::try_from(busy).unwrap_or(u32::MAX))
        };
        let claim_requests = self.senders.iter().map(|(module, sender)| ClaimRequest {
            module: module.clone(),
            commands: None,
            free: free(module, sender),
        });
        let worker = WorkerState {
            name: "webhooks".into(),
            host: "in the server".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            attached: false,
            modules: self.senders.keys().cloned().collect(),
        };
        Exchange {
            session: self.session,
            seq: self.seq,
            attached: false,
            lease: None,
            worker: Some(worker),
            holding: Some(self.holding.iter().cloned().collect()),
            declining: Vec::new(),
            claim_requests: reports.is_empty().then(|| claim_requests.collect()),
            free: None,
            draining: None,
            wait,
            reports,
        }
    }

    /// Begins the attempts of an answer. Attempts that are to stop are not stopped: a request ends soon by itself, and may
    /// have had its effect.
    fn begin(&mut self, answer: ExchangeAnswer) {
        for attempt in answer.attempts {
            let HandedOut { token, params, traceparent, .. } = &attempt;
            let found =
                attempt.module().and_then(|module| Some((module.clone(), self.senders.get(module)?.clone())));
            let Some((module, sender)) = found else { continue };
            let (token, app) = (token.clone(), self.app.clone());
            let (message, number) = (delivery::read(params, &module, &sender.secrets), attempt.id.attempt);
            let traceparent = traceparent.clone();
            if !self.holding.insert(token.clone()) {
                continue;
            }
            let request = self.running.spawn(async move {
                match message {
                    Ok((id, body)) => {
                        let at = app.clock.now().wall.0 / 1000;
                        sender.send(&id, body, at, number, traceparent.as_deref()).await
                    }
                    // Another server may have other secrets while one is replaced.
                    Err(error) => {
                        failed(&format!("the parameters are not those of a delivery: {error}"), true)
                    }
                }
            });
            self.in_flight.insert(request.id(), (token, module));
        }
    }

    /// Notes an ended request.
    fn note(&mut self, ended: Result<(Id, Outcome), JoinError>) {
        let (id, outcome) = match ended {
            Ok(ended) => ended,
            Err(error) => (error.id(), failed("the request was not made: a defect of the server", true)),
        };
        let Some((token, _)) = self.in_flight.remove(&id) else { return };
        self.ended.push(WorkerReport { token, said: Ok(Said::Ended(outcome)), logs: Vec::new() });
    }

    /// Reports all ended deliveries. They stay where the store fails.
    async fn report(&mut self) {
        while let Some(ended) = self.running.try_join_next_with_id() {
            self.note(ended);
        }
        if self.ended.is_empty() {
            return;
        }
        let reports = self.ended.clone();
        let call = self.call(Millis(0), reports);
        match self.app.engine.exchange(call, self.app.clock.now()).await {
            // Accepted, or of no use any more.
            Ok(_) => {
                for report in self.ended.drain(..) {
                    self.holding.remove(&report.token);
                }
            }
            Err(error) => {
                tracing::warn!(%error, "deliveries to webhooks cannot be reported; trying again");
                sleep(PAUSE).await;
            }
        }
    }
}

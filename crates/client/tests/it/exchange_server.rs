//! A server on loopback that hands out attempts and takes reports by the rules of the exchange protocol, keeps a
//! record of all it heard, and can lose answers, be killed and be started again on its port.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    Json, Router,
    body::Body,
    extract::{Path, State},
    http::{
        HeaderMap, StatusCode,
        header::{AUTHORIZATION, CONTENT_TYPE},
    },
    response::{IntoResponse, Response},
    routing::{get, post},
};
use tokio::{net::TcpListener, runtime::Runtime, sync::Notify};
use windlass_client::api::{
    Attempt, ExchangeAnswer, ExchangeRequest, Problem, Report, ReportAnswer, ReportOutcome, ReportStatus,
};

/// A server that can be killed and started again; what it knows stays, as if it were on disk.
pub(crate) struct ExchangeServer {
    pub(crate) address: SocketAddr,
    pub(crate) desk: Arc<Desk>,
    runtime: Option<Runtime>,
}

impl ExchangeServer {
    pub(crate) fn start() -> Self {
        let port = windlass_testkit::free_port().unwrap();
        Self::start_on(SocketAddr::from(([127, 0, 0, 1], port)), Arc::default())
    }

    fn start_on(address: SocketAddr, desk: Arc<Desk>) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = std::net::TcpListener::bind(address).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new()
            .route("/v1/worker/exchange", post(exchange))
            .route("/v1/worker/attempts/{token}", get(step_message))
            .with_state(desk.clone());
        runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            axum::serve(listener, app).await.unwrap();
        });
        Self { address, desk, runtime: Some(runtime) }
    }

    /// Kills the server: its port is closed and its connections are cut in the middle of whatever they do.
    pub(crate) fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        let mut book = self.desk.book();
        book.sessions_known = false;
        book.report_calls_open = 0;
    }

    /// Starts it again on its port, with what it knew.
    pub(crate) fn start_again(&mut self) {
        // The port is free once the threads of the killed runtime have dropped the listener.
        let until = Instant::now() + Duration::from_secs(20);
        while std::net::TcpListener::bind(self.address).is_err() {
            assert!(Instant::now() < until, "the killed server's port is still in use");
            std::thread::sleep(Duration::from_millis(2));
        }
        *self = Self::start_on(self.address, self.desk.clone());
    }
}

impl Drop for ExchangeServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What the server knows, and how it is to behave.
#[derive(Default)]
pub(crate) struct Desk {
    book: Mutex<Book>,
    changed: Notify,
}

#[derive(Default)]
pub(crate) struct Book {
    ready: VecDeque<Attempt>,
    /// On a queue of a broker, for any consumer.
    pub(crate) offered: HashMap<String, Attempt>,
    /// What is kept of messages that are too large, by token.
    pub(crate) kept: HashMap<String, serde_json::Value>,
    /// How often it was asked for such.
    pub(crate) kept_calls: usize,
    /// Handed out and not reported.
    given: HashMap<String, Attempt>,
    /// The final report of each attempt.
    pub(crate) done: HashMap<String, Report>,
    /// Reports of running attempts.
    pub(crate) notices: Vec<Report>,
    cancels: Vec<String>,
    free: u32,
    sessions_known: bool,
    /// Every call, in the order of arrival.
    pub(crate) calls: Vec<ExchangeRequest>,
    pub(crate) report_calls_open: usize,
    pub(crate) report_calls_open_most: usize,
    pub(crate) duplicates: usize,
    // How it is to behave.
    pub(crate) lease_ms: Option<u64>,
    /// Hand out more than was asked for.
    pub(crate) ignore_free: bool,
    /// Report calls go to another server than polls, as behind a load balancer: how many slots they say are free is not known
    /// where polls are open.
    pub(crate) reports_elsewhere: bool,
    /// Keep report calls open until this is false.
    pub(crate) hold_reports: bool,
    /// Cut the connection instead of answering that many calls with reports.
    pub(crate) lose_report_answers: u32,
    /// Cut the connection instead of answering that many polls that would bring attempts.
    pub(crate) lose_attempts: u32,
    /// Answer every call with this refusal.
    pub(crate) refuse: Option<Problem>,
    /// Access tokens that are not valid, and how many calls had one.
    pub(crate) revoked: HashSet<String>,
    pub(crate) calls_revoked: usize,
    /// They are valid, but do not allow the call.
    pub(crate) revoked_are_limited: bool,
    /// Answer requests for what is kept with this refusal.
    pub(crate) refuse_kept: Option<Problem>,
    /// Find final reports of these tokens malformed while they say `succeeded`.
    pub(crate) invalid: HashSet<String>,
}

impl Book {
    pub(crate) fn polls(&self) -> impl Iterator<Item = &ExchangeRequest> {
        self.calls.iter().filter(|call| call.reports.is_empty())
    }

    pub(crate) fn report_calls(&self) -> impl Iterator<Item = &ExchangeRequest> {
        self.calls.iter().filter(|call| !call.reports.is_empty())
    }
}

impl Desk {
    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        // A test that fails may hold it, and its servers are dropped after that.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Book)) {
        change(&mut self.book());
        self.changed.notify_waiters();
    }

    pub(crate) fn offer(&self, attempts: impl IntoIterator<Item = Attempt>) {
        self.change(|book| book.ready.extend(attempts));
    }

    pub(crate) fn cancel(&self, token: &str) {
        self.change(|book| book.cancels.push(token.to_owned()));
    }

    /// Waits until the book shows something.
    pub(crate) async fn until(&self, what: &str, shows: impl Fn(&Book) -> bool) {
        let seen = async {
            loop {
                let changed = self.changed.notified();
                if shows(&self.book()) {
                    return;
                }
                changed.await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), seen)
            .await
            .unwrap_or_else(|_| panic!("not seen in 20 s: {what}"));
    }
}

async fn exchange(
    State(desk): State<Arc<Desk>>,
    headers: HeaderMap,
    Json(request): Json<ExchangeRequest>,
) -> Response {
    let token = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    if token.is_some_and(|token| desk.book().revoked.contains(token)) {
        desk.change(|book| book.calls_revoked += 1);
        return refused(if desk.book().revoked_are_limited {
            Problem::new(403, "forbidden", "Forbidden", "the token is limited to another queue")
        } else {
            Problem::new(401, "unauthorized", "Unauthorized", "the token is not valid: it was revoked")
        });
    }
    let refusal = {
        let mut book = desk.book();
        let newest = book.calls.iter().all(|call| call.seq < request.seq);
        let is_heard = request.reports.is_empty() || !book.reports_elsewhere;
        if newest && is_heard {
            book.free = request.free.unwrap_or(0);
        }
        let known = book.sessions_known || request.worker.is_some();
        book.calls.push(request.clone());
        book.sessions_known |= known;
        book.refuse.clone().or_else(|| {
            (!known)
                .then(|| Problem::new(400, "worker-needed", "Worker needed", "the first call says who it is"))
        })
    };
    desk.changed.notify_waiters();
    if let Some(problem) = refusal {
        return refused(problem);
    }
    if request.reports.is_empty() { poll(&desk, &request).await } else { report(&desk, &request).await }
}

async fn poll(desk: &Desk, request: &ExchangeRequest) -> Response {
    if let Some(holding) = &request.holding {
        // What was given and did not arrive is given again.
        let mut book = desk.book();
        let lost: Vec<String> = book.given.keys().filter(|token| !holding.contains(token)).cloned().collect();
        for token in lost {
            let attempt = book.given.remove(&token).unwrap();
            book.ready.push_front(attempt);
        }
    }
    let work = async {
        loop {
            let changed = desk.changed.notified();
            if let Some(answer) = take_work(&mut desk.book(), request) {
                return answer;
            }
            changed.await;
        }
    };
    let answer = tokio::time::timeout(Duration::from_millis(request.wait_ms), work).await;
    let mut lose = false;
    if let Ok(answer) = &answer
        && !answer.attempts.is_empty()
    {
        desk.change(|book| {
            lose = book.lose_attempts > 0;
            book.lose_attempts = book.lose_attempts.saturating_sub(1);
        });
    }
    if lose { cut_connection() } else { Json(finished(desk, answer.unwrap_or_default())).into_response() }
}

fn take_work(book: &mut Book, request: &ExchangeRequest) -> Option<ExchangeAnswer> {
    // A newer poll takes the place of an older one.
    let displaced = book.polls().any(|poll| poll.seq > request.seq);
    let count = match (displaced, book.ignore_free) {
        (true, _) => 0,
        (false, true) => book.ready.len(),
        (false, false) => book.ready.len().min(book.free as usize),
    };
    let attempts: Vec<Attempt> = book.ready.drain(..count).collect();
    book.free = book.free.saturating_sub(u32::try_from(count).unwrap());
    book.given.extend(attempts.iter().map(|attempt| (attempt.token.clone(), attempt.clone())));
    let cancels = if displaced { Vec::new() } else { std::mem::take(&mut book.cancels) };
    let something = displaced || !attempts.is_empty() || !cancels.is_empty();
    something.then(|| ExchangeAnswer { attempts, cancels, ..ExchangeAnswer::default() })
}

async fn report(desk: &Desk, request: &ExchangeRequest) -> Response {
    let mut reports = Vec::new();
    let mut lose = false;
    desk.change(|book| {
        book.report_calls_open += 1;
        book.report_calls_open_most = book.report_calls_open_most.max(book.report_calls_open);
        for report in &request.reports {
            reports.push(take_report(book, serde_json::from_str(report.get()).unwrap()));
        }
        lose = book.lose_report_answers > 0;
        book.lose_report_answers = book.lose_report_answers.saturating_sub(1);
    });
    loop {
        let changed = desk.changed.notified();
        if !desk.book().hold_reports {
            break;
        }
        changed.await;
    }
    desk.change(|book| book.report_calls_open = book.report_calls_open.saturating_sub(1));
    if lose {
        return cut_connection();
    }
    let poll = desk.book().reports_elsewhere.then_some(0);
    Json(finished(desk, ExchangeAnswer { reports, poll, ..ExchangeAnswer::default() })).into_response()
}

fn take_report(book: &mut Book, report: Report) -> ReportAnswer {
    let token = report.token.clone();
    let answer = |status| ReportAnswer { token: token.clone(), status, detail: None };
    if book.done.contains_key(&token) {
        book.duplicates += 1;
        return answer(ReportStatus::Duplicate);
    }
    if let Some(attempt) = book.offered.remove(&token) {
        book.given.insert(token.clone(), attempt);
    }
    if !book.given.contains_key(&token) {
        return answer(ReportStatus::Unknown);
    }
    if report.outcome == ReportOutcome::Running {
        book.notices.push(report);
        return answer(ReportStatus::Accepted);
    }
    if report.outcome == ReportOutcome::Succeeded && book.invalid.contains(&token) {
        let detail = Some("it does not please the test".to_owned());
        return ReportAnswer { detail, ..answer(ReportStatus::Invalid) };
    }
    book.given.remove(&token);
    book.done.insert(token.clone(), report);
    answer(ReportStatus::Accepted)
}

async fn step_message(State(desk): State<Arc<Desk>>, Path(token): Path<String>) -> Response {
    let mut found = None;
    desk.change(|book| {
        book.kept_calls += 1;
        let unknown = || Problem::new(404, "attempt-unknown", "Unknown attempt", "there is no such attempt");
        found = Some(match (book.refuse_kept.clone(), book.kept.get(&token).cloned()) {
            (Some(refusal), _) => Err(Box::new(refusal)),
            (None, kept) => kept.ok_or_else(|| Box::new(unknown())),
        });
    });
    match found.unwrap() {
        Ok(step) => Json(step).into_response(),
        Err(problem) => refused(*problem),
    }
}

fn refused(problem: Problem) -> Response {
    let status = StatusCode::from_u16(problem.status).unwrap();
    (status, [(CONTENT_TYPE, "application/problem+json")], Json(problem)).into_response()
}

fn finished(desk: &Desk, answer: ExchangeAnswer) -> ExchangeAnswer {
    ExchangeAnswer { lease_ms: desk.book().lease_ms.unwrap_or(10_000), ..answer }
}

/// An answer that breaks off after its headers.
fn cut_connection() -> Response {
    let broken = futures_util::stream::once(async { Err::<Vec<u8>, _>(io::Error::other("cut")) });
    Body::from_stream(broken).into_response()
}

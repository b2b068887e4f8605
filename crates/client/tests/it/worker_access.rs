//! Workers whose token the server refuses while they run.

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use tempfile::TempDir;
use tokio::sync::Semaphore;
use windlass_client::{
    Client, Handler, Outcome, Worker,
    api::{Problem, ReportOutcome},
};

use crate::{
    exchange_server::ExchangeServer,
    support::{RunningWorker, attempt, handler},
};

/// A handler that waits until the test lets it end.
fn gated() -> (Arc<dyn Handler>, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let wait = gate.clone();
    let handler = handler(move |_job| {
        let wait = wait.clone();
        async move {
            wait.acquire().await.unwrap().forget();
            Outcome::Succeeded(None)
        }
    });
    (handler, gate)
}

/// A worker with its token in a file, which runs an attempt.
struct Busy {
    server: ExchangeServer,
    _folder: TempDir,
    file: PathBuf,
    worker: RunningWorker,
    /// Lets the attempt end.
    gate: Arc<Semaphore>,
}

impl Busy {
    async fn start() -> Self {
        let server = ExchangeServer::start();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        fs::write(&file, "first\n").unwrap();
        server.desk.offer([attempt("a")]);
        let client = Client::new(&server.address.to_string()).unwrap().with_token_file(&file).unwrap();
        let (handler, gate) = gated();
        let worker = Worker::builder(client).name("test").module("m", None, handler).build().unwrap();
        let worker = RunningWorker::start_built(worker);
        server
            .desk
            .until("the attempt runs", |book| {
                book.polls().any(|poll| poll.holding.as_ref().is_some_and(|holding| holding.len() == 1))
            })
            .await;
        Self { server, _folder: folder, file, worker, gate }
    }

    fn revoke(&self, token: &str) {
        self.server.desk.change(|book| book.revoked.extend([token.to_owned()]));
    }

    /// The report of the attempt has come.
    async fn reported(self) {
        self.server.desk.until("the report", |book| book.done.contains_key("a")).await;
        self.worker.drained().await.unwrap();
        assert_eq!(self.server.desk.book().done["a"].outcome, ReportOutcome::Succeeded);
    }
}

#[tokio::test]
async fn a_worker_takes_the_token_that_replaced_a_revoked_one_at_once() {
    let busy = Busy::start().await;
    fs::write(&busy.file, "second\n").unwrap();
    busy.revoke("first");
    busy.gate.add_permits(1);
    busy.server.desk.until("the report", |book| book.done.contains_key("a")).await;
    // The report, and the poll that was open beside it.
    assert!((1..=2).contains(&busy.server.desk.book().calls_revoked));
    busy.reported().await;
}

#[tokio::test]
async fn a_worker_with_a_revoked_token_calls_seldom_and_keeps_its_report_until_the_token_is_replaced() {
    let busy = Busy::start().await;
    busy.revoke("first");
    busy.gate.add_permits(1);
    busy.server.desk.until("a refusal", |book| book.calls_revoked > 0).await;
    // A worker that retries as for an unavailable server would call many times.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert!(busy.server.desk.book().calls_revoked <= 2, "a poll and a report");
    // Somebody who writes it slowly.
    fs::write(&busy.file, "").unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    fs::write(&busy.file, "second").unwrap();
    busy.reported().await;
}

#[tokio::test]
async fn a_worker_whose_token_is_limited_to_other_queues_takes_the_one_that_replaces_it() {
    let busy = Busy::start().await;
    busy.server.desk.change(|book| book.revoked_are_limited = true);
    busy.revoke("first");
    busy.gate.add_permits(1);
    busy.server.desk.until("a refusal", |book| book.calls_revoked > 0).await;
    fs::write(&busy.file, "second").unwrap();
    busy.reported().await;
}

#[tokio::test]
async fn a_wrong_token_in_the_file_is_tried_once_and_the_right_one_after_it() {
    let busy = Busy::start().await;
    busy.revoke("first");
    busy.revoke("mistyped");
    busy.gate.add_permits(1);
    busy.server.desk.until("a refusal", |book| book.calls_revoked > 0).await;
    fs::write(&busy.file, "mistyped").unwrap();
    busy.server.desk.until("the wrong one is refused", |book| book.calls_revoked >= 3).await;
    assert!(busy.server.desk.book().calls_revoked <= 4, "twice a poll and a report");
    fs::write(&busy.file, "second").unwrap();
    busy.reported().await;
}

/// The address of a worker may have many others with wrong tokens.
#[tokio::test]
async fn too_many_refusals_end_a_worker_at_its_start_and_later_are_waited_for() {
    let problem = || Problem::new(429, "too-many-failures", "Too many", "too many were refused");
    let server = ExchangeServer::start();
    server.desk.change(|book| book.refuse = Some(problem()));
    let worker = RunningWorker::start(&server, handler(|_job| async { Outcome::Declined }));
    let error = worker.ended().await.unwrap_err();
    assert_eq!((error.status(), server.desk.book().calls.len()), (Some(429), 1));

    let busy = Busy::start().await;
    busy.server.desk.change(|book| book.refuse = Some(problem()));
    let calls = busy.server.desk.book().calls.len();
    busy.gate.add_permits(1);
    busy.server.desk.until("a refusal", |book| book.calls.len() > calls).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(busy.server.desk.book().calls.len() <= calls + 2);
    busy.server.desk.change(|book| book.refuse = None);
    fs::write(&busy.file, "second").unwrap();
    busy.reported().await;
}

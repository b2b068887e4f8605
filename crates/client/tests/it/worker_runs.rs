//! Attempts, their outcomes, batches, cancels and timeouts.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::json;
use windlass_client::{
    Failure, Job, Outcome,
    api::{Attempt, Problem, ReportOutcome},
};

use crate::{
    exchange_server::ExchangeServer,
    support::{RunningWorker, attempt, handler, message},
};

#[tokio::test]
async fn reports_that_pile_up_share_a_call() {
    let server = ExchangeServer::start();
    server.desk.change(|book| book.hold_reports = true);
    server.desk.offer((0..100).map(|n| attempt(&format!("a{n}"))));
    let ran = Arc::new(AtomicUsize::new(0));
    let count = ran.clone();
    let worker = RunningWorker::start(
        &server,
        handler(move |_job| {
            count.fetch_add(1, Ordering::SeqCst);
            async { Outcome::Succeeded(None) }
        }),
    );
    server.desk.until("a report call", |book| book.report_calls().count() > 0).await;
    server.desk.offer((100..120).map(|n| attempt(&format!("a{n}"))));
    server.desk.until("two report calls", |book| book.report_calls().count() == 2).await;
    server.desk.offer((120..220).map(|n| attempt(&format!("a{n}"))));
    while ran.load(Ordering::SeqCst) < 220 {
        tokio::task::yield_now().await;
    }
    server.desk.change(|book| book.hold_reports = false);
    server.desk.until("all reports", |book| book.done.len() == 220).await;
    worker.drained().await.unwrap();

    let book = server.desk.book();
    assert!(book.report_calls().count() <= 6, "{} report calls", book.report_calls().count());
    assert_eq!(book.report_calls_open_most, 2);
    assert_eq!(ran.load(Ordering::SeqCst), 220);
    assert!(
        book.report_calls().all(|call| call.holding.is_none() && call.modules.is_some() && call.wait_ms == 0)
    );
    assert!(book.calls.iter().all(|call| call.attached && call.protocol == 1));
    let session = &book.calls[0].session;
    assert!(book.calls.iter().all(|call| call.session == *session));
    let mut numbers: Vec<u64> = book.calls.iter().map(|call| call.seq).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_worker_takes_no_more_than_it_has_slots_and_queues_what_comes_over() {
    let server = ExchangeServer::start();
    server.desk.offer((0..5).map(|n| attempt(&format!("a{n}"))));
    let running = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let (now, peak) = (running.clone(), most.clone());
    let slow = handler(move |_job| {
        let (now, peak) = (now.clone(), peak.clone());
        async move {
            peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(20)).await;
            now.fetch_sub(1, Ordering::SeqCst);
            Outcome::Succeeded(None)
        }
    });
    let worker = RunningWorker::start_with(&server, |b| b.module("m", None, slow).concurrency(2));
    server.desk.until("five reports", |book| book.done.len() == 5).await;
    assert_eq!(server.desk.book().polls().next().unwrap().free, Some(2));

    server.desk.change(|book| book.ignore_free = true);
    server.desk.offer((5..12).map(|n| attempt(&format!("a{n}"))));
    server.desk.until("twelve reports", |book| book.done.len() == 12).await;
    worker.drained().await.unwrap();
    assert_eq!(most.load(Ordering::SeqCst), 2);
}

#[derive(Deserialize)]
struct Square {
    side: u32,
}

#[derive(Serialize)]
struct Area {
    area: u32,
}

async fn square(square: Square, job: Job) -> Result<Area, Failure> {
    match square.side {
        0 => Err(Failure::retry_later("the ruler is unavailable")),
        1 => Err(Failure::permanent("too small").with_code(9)),
        2 => Err(std::io::Error::other("the disk is full"))?,
        3 => panic!("three is too much"),
        side => {
            job.log(format!("measuring {side}"));
            Ok(Area { area: side * side })
        }
    }
}

#[tokio::test]
async fn a_typed_command_reports_what_became_of_it() {
    let with_side = |token: &str, side: serde_json::Value| {
        let mut value = serde_json::to_value(attempt(token)).unwrap();
        value["params"] = json!({"side": side});
        serde_json::from_value::<Attempt>(value).unwrap()
    };
    let server = ExchangeServer::start();
    server.desk.offer([
        with_side("later", json!(0)),
        with_side("permanent", json!(1)),
        with_side("error", json!(2)),
        with_side("panic", json!(3)),
        with_side("good", json!(4)),
        with_side("misfit", json!("long")),
        Attempt { command: "unknown".to_owned(), ..attempt("unknown") },
    ]);
    let worker = RunningWorker::start_with(&server, |b| b.command("m.c", square).concurrency(8));
    server.desk.until("all reports", |book| book.done.len() == 7).await;
    worker.drained().await.unwrap();

    let book = server.desk.book();
    assert_eq!(
        book.polls().next().unwrap().modules.as_ref().unwrap()[0].commands,
        Some(vec!["c".to_owned()])
    );
    let good = &book.done["good"];
    assert_eq!(good.result.as_ref().unwrap().get(), r#"{"area":16}"#);
    assert_eq!(good.logs, ["measuring 4"]);
    assert_eq!(book.done["later"].outcome, ReportOutcome::RetryLater);
    for (token, text, code, retryable) in [
        ("permanent", "too small", 9, false),
        ("error", "the disk is full", 1, true),
        ("panic", "three is too much", 1, true),
        ("misfit", "do not fit", 65, false),
        ("unknown", "no command m.unknown", 1, true),
    ] {
        let error = book.done[token].error.clone().unwrap();
        assert!(error.message.contains(text), "{token}: {error:?}");
        assert_eq!((error.code, error.retryable), (Some(code), retryable), "{token}");
    }
}

#[tokio::test]
async fn a_cancelled_attempt_is_told_and_reported_as_it_ends() {
    let server = ExchangeServer::start();
    server.desk.change(|book| book.ignore_free = true);
    server.desk.offer([attempt("running"), attempt("waiting"), attempt("stubborn")]);
    let stop = handler(|job: Job| async move {
        job.cancelled().await;
        assert!(job.is_cancelled());
        if job.attempt.token == "stubborn" {
            return Outcome::Succeeded(None);
        }
        Outcome::Failed(Failure::new("stopped on request"))
    });
    let worker = RunningWorker::start_with(&server, |b| b.module("m", None, stop).concurrency(1));
    server.desk.until("a poll while it runs", |book| book.polls().count() >= 2).await;
    server.desk.cancel("waiting");
    server.desk.until("the one that waited", |book| book.done.contains_key("waiting")).await;
    server.desk.cancel("running");
    server.desk.until("the one that ran", |book| book.done.contains_key("running")).await;
    server.desk.cancel("stubborn");
    server.desk.until("a success in time", |book| book.done.contains_key("stubborn")).await;
    worker.drained().await.unwrap();

    let book = server.desk.book();
    assert_eq!(message(&book.done["running"]), "stopped on request");
    assert_eq!(message(&book.done["waiting"]), "cancelled before it was started");
    assert_eq!(book.done["stubborn"].outcome, ReportOutcome::Succeeded);
}

#[tokio::test]
async fn an_attempt_that_takes_too_long_is_stopped_and_has_timed_out() {
    let server = ExchangeServer::start();
    server.desk.offer([Attempt { timeout_ms: 60, ..attempt("slow") }, attempt("quick")]);
    let until_told = handler(|job: Job| async move {
        if job.attempt.token == "slow" {
            job.cancelled().await;
        }
        Outcome::Succeeded(None)
    });
    let worker = RunningWorker::start(&server, until_told);
    server.desk.until("both reports", |book| book.done.len() == 2).await;
    worker.drained().await.unwrap();

    let book = server.desk.book();
    assert_eq!(book.done["quick"].outcome, ReportOutcome::Succeeded);
    assert_eq!(message(&book.done["slow"]), "timed out after 60ms");
    assert_eq!(book.done["slow"].error.as_ref().unwrap().code, Some(124));
}

#[tokio::test]
async fn log_lines_and_progress_come_while_the_attempt_runs() {
    let server = ExchangeServer::start();
    server.desk.offer([attempt("a")]);
    let talkative = handler(|job: Job| async move {
        for n in 0..50 {
            job.log(format!("line {n}"));
            job.progress(Some(f64::from(n) / 50.0), None);
        }
        job.cancelled().await;
        job.log("the end");
        Outcome::Failed(Failure::new("cancelled"))
    });
    let worker = RunningWorker::start(&server, talkative);
    server.desk.until("a notice", |book| !book.notices.is_empty()).await;
    server.desk.cancel("a");
    server.desk.until("the report", |book| book.done.contains_key("a")).await;
    worker.drained().await.unwrap();

    let book = server.desk.book();
    assert_eq!(book.notices.len(), 1, "what is said in quick succession goes together");
    assert_eq!(book.notices[0].logs.len(), 50);
    assert_eq!(book.notices[0].progress.as_ref().unwrap().value, Some(0.98));
    assert_eq!(book.done["a"].logs, ["the end"]);
}

#[tokio::test]
async fn a_report_that_the_server_finds_malformed_becomes_a_failure() {
    let server = ExchangeServer::start();
    server.desk.change(|book| {
        book.invalid.insert("a".to_owned());
    });
    server.desk.offer([attempt("a")]);
    let worker = RunningWorker::start(&server, handler(|_job| async { Outcome::Succeeded(None) }));
    server.desk.until("the report", |book| book.done.contains_key("a")).await;
    worker.drained().await.unwrap();
    let book = server.desk.book();
    assert!(message(&book.done["a"]).contains("does not please"), "{:?}", book.done["a"]);
}

#[tokio::test]
async fn a_worker_that_is_refused_at_first_says_so() {
    let server = ExchangeServer::start();
    server.desk.change(|book| {
        book.refuse = Some(Problem::new(401, "token-unknown", "Unknown token", "this token opens nothing"));
    });
    let worker = RunningWorker::start(&server, handler(|_job| async { Outcome::Declined }));
    let error = worker.ended().await.unwrap_err();
    assert_eq!(error.status(), Some(401));
    assert_eq!(error.to_string(), "this token opens nothing");
}

/// The open poll offered no slot, and its server does not receive the report that a slot is free.
#[tokio::test]
async fn a_worker_whose_report_goes_to_another_server_than_its_poll_offers_its_free_slot_in_another_poll() {
    let server = ExchangeServer::start();
    // Polls wait for half a minute.
    server.desk.change(|book| (book.reports_elsewhere, book.lease_ms) = (true, Some(3_600_000)));
    server.desk.offer([attempt("a"), attempt("b"), attempt("c")]);
    let handler = handler(|_job| async { Outcome::Succeeded(None) });
    let worker =
        RunningWorker::start_with(&server, |builder| builder.module("m", None, handler).concurrency(1));
    server.desk.until("three reports", |book| book.done.len() == 3).await;
    worker.drained().await.unwrap();
    let book = server.desk.book();
    assert!(book.done.values().all(|report| report.outcome == ReportOutcome::Succeeded));
    assert_eq!(book.duplicates, 0);
}

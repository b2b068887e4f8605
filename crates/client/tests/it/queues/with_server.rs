//! With a server, which says whose an attempt is.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, atomic::Ordering},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use windlass_client::{
    Client, Handler, Job, Outcome, Worker,
    api::{ExchangeRequest, Problem, ReportOutcome},
};

use super::{Bench, counting, step, step_without, until_stopped};
use crate::{
    exchange_server::ExchangeServer,
    support::{RunningWorker, attempt, handler, message},
};

#[tokio::test]
async fn what_the_server_grants_is_run_and_the_rest_dropped() {
    let Some(bench) = Bench::start("granted") else { return };
    let server = ExchangeServer::start();
    let token = |n: usize| format!("a{n}");
    server.desk.change(|book| book.offered.extend((0..40).map(|n| (token(n), attempt(&token(n))))));
    bench.publish((0..50).map(|n| step(&token(n)))).await;
    let tokens = Arc::new(Mutex::new(BTreeSet::new()));
    let ran = tokens.clone();
    let worker = bench.start_with_server(
        &server,
        handler(move |job: Job| {
            assert!(ran.lock().unwrap().insert(job.attempt.token.clone()), "it ran twice");
            async { Outcome::Succeeded(None) }
        }),
    );
    server.desk.until("forty reports", |book| book.done.len() == 40).await;
    bench.emptied().await;
    worker.drained().await.unwrap();

    assert_eq!(*tokens.lock().unwrap(), (0..40).map(token).collect::<BTreeSet<_>>());
    let book = server.desk.book();
    assert_eq!(book.notices.len(), 40, "each is taken once");
    assert!(book.calls.iter().all(|call| call.free == Some(0)), "the server hands out none itself");
    assert!(
        book.report_calls().any(|call| call.reports.len() > 4),
        "what arrives together is taken together"
    );
}

#[tokio::test]
async fn an_attempt_is_held_while_it_runs_and_stopped_when_it_is_cancelled() {
    let Some(bench) = Bench::start("held") else { return };
    let server = ExchangeServer::start();
    server.desk.change(|book| {
        book.offered.insert("a".to_owned(), attempt("a"));
    });
    bench.publish([step("a")]).await;
    let worker = bench.start_with_server(&server, until_stopped());
    let holds = |call: &ExchangeRequest| call.holding.as_deref() == Some(&["a".to_owned()]);
    server
        .desk
        .until("a poll that names it", |book| book.notices.len() == 1 && book.polls().any(holds))
        .await;
    assert_eq!(bench.left(&bench.queue).await, 1, "it is not acknowledged before it was reported");
    server.desk.cancel("a");
    server.desk.until("the report", |book| book.done.contains_key("a")).await;
    bench.emptied().await;
    worker.drained().await.unwrap();
    assert_eq!(message(&server.desk.book().done["a"]), "stopped on request");
}

#[tokio::test]
async fn parameters_too_large_for_the_broker_are_read_from_the_server() {
    let Some(bench) = Bench::start("reference") else { return };
    let server = ExchangeServer::start();
    server.desk.change(|book| {
        book.offered.insert("large".to_owned(), attempt("large"));
        book.offered.insert("gone".to_owned(), attempt("gone"));
        book.kept.insert("large".to_owned(), step("large"));
    });
    bench.publish([reference("gone"), reference("large")]).await;
    let echo = handler(|job: Job| async move { Outcome::succeeded(&job.params::<Value>().unwrap()) });
    let worker = with_one_slot(&bench, &server, echo);
    server.desk.until("the report", |book| book.done.contains_key("large")).await;
    bench.emptied().await;
    worker.drained().await.unwrap();
    assert_eq!(server.desk.book().done["large"].result.as_ref().unwrap().get(), r#"{"Cpu":4}"#);
    assert!(!server.desk.book().done.contains_key("gone"));

    bench.publish([reference("alone")]).await;
    let (ran, handler) = counting();
    let worker = bench.start_one_way(handler);
    let results = bench.results(2).await;
    assert_eq!((&results[1]["Event"], &results[1]["Code"]), (&json!("failed"), &json!(65)));
    worker.drained().await.unwrap();
    assert_eq!(ran.load(Ordering::SeqCst), 0);
}

/// A step whose parameters are with the server.
fn reference(token: &str) -> Value {
    let mut step = step_without(token, "Parameters");
    step["Reference"] = json!(format!("/v1/worker/attempts/{token}"));
    step
}

/// A worker with one slot: what it cannot use must not keep that.
fn with_one_slot(bench: &Bench, server: &ExchangeServer, handler: Arc<dyn Handler>) -> RunningWorker {
    let client = Client::new(&server.address.to_string()).unwrap();
    let builder = Worker::builder(client).over(bench.broker.clone()).queue("m", bench.queue.clone());
    RunningWorker::start_built(builder.module("m", None, handler).concurrency(1).build().unwrap())
}

#[tokio::test]
async fn a_reference_that_the_server_finds_wrong_goes_to_the_dead_queue() {
    let Some(bench) = Bench::start("wrong-reference") else { return };
    let server = ExchangeServer::start();
    server.desk.change(|book| {
        book.offered.insert("a".to_owned(), attempt("a"));
        book.refuse_kept = Some(Problem::new(422, "malformed", "Malformed", "this is not a token of mine"));
    });
    bench.publish([reference("wrong"), step("a")]).await;
    let (ran, handler) = counting();
    let worker = with_one_slot(&bench, &server, handler);
    let dead = &bench.read(&bench.queue.dead(), 1).await[0];
    let reason = dead.header("windlass-reason").unwrap();
    assert!(reason.contains("refuses its parameters: this is not a token of mine"), "{reason}");
    server.desk.until("the report of the other one", |book| book.done.contains_key("a")).await;
    bench.emptied().await;
    worker.drained().await.unwrap();
    assert_eq!((ran.load(Ordering::SeqCst), server.desk.book().kept_calls), (1, 1));
}

#[tokio::test]
async fn a_worker_that_may_not_read_parameters_waits_until_it_may() {
    let Some(bench) = Bench::start("may-not-read") else { return };
    let server = ExchangeServer::start();
    server.desk.change(|book| {
        book.offered.insert("large".to_owned(), attempt("large"));
        book.kept.insert("large".to_owned(), step("large"));
        book.refuse_kept = Some(Problem::new(403, Problem::UNEXPLAINED, "Forbidden", "a proxy says no"));
    });
    bench.publish([reference("large")]).await;
    let (ran, handler) = counting();
    let worker = with_one_slot(&bench, &server, handler);
    server.desk.until("the first call", |book| book.kept_calls == 1).await;
    let since = Instant::now();
    server.desk.until("the second call", |book| book.kept_calls == 2).await;
    assert!(since.elapsed() > Duration::from_millis(900), "it is tried again slowly: {:?}", since.elapsed());
    assert_eq!(bench.left(&bench.queue).await, 1, "the message stays where it is");
    server.desk.change(|book| book.refuse_kept = None);
    server.desk.until("the report", |book| book.done.contains_key("large")).await;
    bench.emptied().await;
    worker.drained().await.unwrap();
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_server_that_is_away_is_waited_for() {
    let Some(bench) = Bench::start("server-away") else { return };
    let mut server = ExchangeServer::start();
    server.desk.change(|book| {
        book.offered.insert("a".to_owned(), attempt("a"));
    });
    server.kill();
    bench.publish([step("a")]).await;
    let (ran, handler) = counting();
    let worker = bench.start_with_server(&server, handler);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(ran.load(Ordering::SeqCst), 0, "nothing runs that nobody granted");
    server.start_again();
    server.desk.until("the report", |book| book.done.contains_key("a")).await;
    bench.emptied().await;
    worker.drained().await.unwrap();
    assert_eq!(server.desk.book().done["a"].outcome, ReportOutcome::Succeeded);
}

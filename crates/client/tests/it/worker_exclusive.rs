//! Workers that work only while they lead.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::time::{sleep, timeout};
use windlass_client::{
    Client, Error, Handler, Job, Leader, Outcome, Term, Worker,
    api::ReportOutcome,
    coordinators::{Campaign, connect},
};
use windlass_testkit::{Etcd, Proxy};

use crate::{
    exchange_server::ExchangeServer,
    support::{RunningWorker, attempt, handler, message},
};

const LEASE: Duration = Duration::from_secs(12);

/// Far more than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn start(
    server: &ExchangeServer,
    url: &str,
    name: &str,
    id: &str,
    handler: Arc<dyn Handler>,
) -> RunningWorker {
    let coordinator = connect(url).unwrap();
    let campaign = Campaign::new(name, id, LEASE);
    RunningWorker::start_with(server, |builder| {
        builder.module("m", None, handler).concurrency(2).exclusive(coordinator, campaign)
    })
}

/// What became of a handler: the leadership it ran under, and when it was dropped.
#[derive(Default)]
struct Seen {
    term: Option<Term>,
    dropped: Option<Instant>,
}

struct OnDrop(Arc<Mutex<Seen>>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.lock().unwrap().dropped = Some(Instant::now());
    }
}

/// A handler that never ends by itself, not even when it is cancelled.
fn stubborn(seen: &Arc<Mutex<Seen>>) -> Arc<dyn Handler> {
    let seen = seen.clone();
    handler(move |job: Job| {
        seen.lock().unwrap().term = job.term().cloned();
        let guard = OnDrop(seen.clone());
        async move {
            let _guard = guard;
            std::future::pending().await
        }
    })
}

#[tokio::test]
async fn what_runs_is_dropped_before_leadership_is_lost_and_what_waits_is_returned() {
    let Some(etcd) = Etcd::shared().unwrap() else { return };
    let network = Proxy::start(etcd.port()).unwrap();
    let server = ExchangeServer::start();
    server.desk.change(|book| book.ignore_free = true);
    let seen = Arc::new(Mutex::new(Seen::default()));
    let url = format!("etcd://127.0.0.1:{}", network.port());
    let mut worker = start(&server, &url, "stubborn", "first", stubborn(&seen));
    server.desk.until("it leads and polls", |book| book.polls().next().is_some()).await;
    // Two run, and the third was sent by mistake: it waits.
    server.desk.offer([attempt("a"), attempt("b"), attempt("c")]);
    server
        .desk
        .until("it has all", |book| {
            book.polls().any(|poll| poll.holding.as_ref().is_some_and(|holding| holding.len() == 3))
        })
        .await;
    let term = seen.lock().unwrap().term.clone().expect("it runs under a leadership");
    network.cut();
    server.desk.until("the reports", |book| book.done.len() == 3).await;
    let dropped = seen.lock().unwrap().dropped.expect("the handlers are dropped");
    assert!(dropped >= term.at_risk_at() && dropped < term.acts_until(), "in time");
    for (token, outcome, words) in [
        ("a", ReportOutcome::RetryLater, "lost its leadership"),
        ("b", ReportOutcome::RetryLater, "lost its leadership"),
        ("c", ReportOutcome::Declined, ""),
    ] {
        let book = server.desk.book();
        let report = &book.done[token];
        assert_eq!(report.outcome, outcome, "{token}");
        assert!(message(report).contains(words), "{report:?}");
    }
    // It stands by without a session, and works again when it is elected again.
    let polls = server.desk.book().polls().count();
    sleep(LEASE / 4).await;
    assert_eq!(server.desk.book().polls().count(), polls, "without leadership it asks for nothing");
    network.heal();
    server.desk.until("it polls again", |book| book.polls().count() > polls).await;
    server.desk.offer([attempt("d")]);
    let later = timeout(PATIENCE, async {
        loop {
            let later = seen.lock().unwrap().term.clone().filter(|later| later.fence() > term.fence());
            match later {
                Some(later) => return later,
                None => sleep(Duration::from_millis(5)).await,
            }
        }
    });
    later.await.expect("it leads again");
    worker.shut_down();
}

#[tokio::test]
async fn a_drained_worker_resigns_after_its_attempts_have_ended() {
    let Some(etcd) = Etcd::shared().unwrap() else { return };
    let url = format!("etcd://127.0.0.1:{}", etcd.port());
    let server = ExchangeServer::start();
    let (begun, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let term = Arc::new(Mutex::new(None::<Term>));
    let (first, last, seen) = (begun.clone(), ended.clone(), term.clone());
    let slow = handler(move |job| {
        let (first, last) = (first.clone(), last.clone());
        *seen.lock().unwrap() = job.term().cloned();
        async move {
            first.fetch_add(1, Ordering::SeqCst);
            sleep(Duration::from_millis(800)).await;
            last.fetch_add(1, Ordering::SeqCst);
            Outcome::Succeeded(None)
        }
    });
    let mut worker = start(&server, &url, "drained", "first", slow);
    server.desk.until("it leads and polls", |book| book.polls().next().is_some()).await;
    server.desk.offer([attempt("a"), attempt("b")]);
    while begun.load(Ordering::SeqCst) < 2 {
        sleep(Duration::from_millis(5)).await;
    }
    let coordinator = connect(&url).unwrap();
    let campaign = Campaign::new("drained", "second", LEASE);
    let drained = Instant::now();
    worker.shut_down();
    let second = timeout(PATIENCE, Leader::campaign(&*coordinator, &campaign)).await.unwrap().unwrap();
    assert_eq!(ended.load(Ordering::SeqCst), 2, "nobody leads before its attempts have ended");
    let term = term.lock().unwrap().clone().expect("it ran under a leadership");
    assert!(Instant::now() < term.acts_until(), "it resigned: nobody waited for the end of its lease");
    eprintln!("the next one is elected {:.2} s after the drain began", drained.elapsed().as_secs_f64());
    worker.ended().await.unwrap();
    second.resign().await.unwrap();
}

#[tokio::test]
async fn a_standby_ends_at_once_and_an_impossible_campaign_is_a_mistake() {
    let server = ExchangeServer::start();
    let nothing = || handler(|_| async { Outcome::Succeeded(None) });
    // Nobody answers there.
    let worker = start(&server, "etcd://127.0.0.1:9", "standby", "first", nothing());
    sleep(Duration::from_millis(200)).await;
    worker.drained().await.unwrap();
    assert_eq!(server.desk.book().calls.len(), 0, "it does not work without leadership");
    let builder = Worker::builder(Client::new(&server.address.to_string()).unwrap());
    let campaign = Campaign::new("a name", "first", LEASE);
    let builder = builder.module("m", None, nothing()).exclusive(connect("etcd://h").unwrap(), campaign);
    let error = builder.build().unwrap_err();
    assert!(matches!(&error, Error::Invalid(text) if text.contains("invalid name")), "{error}");
}

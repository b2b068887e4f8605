//! Exclusive queues, as their users meet them: real servers and workers, and a ledger that the commands write.

use std::{fs, time::Duration};

use windlass_testkit::Postgres;

use super::site::{Site, script, text, until, until_within};

/// Two flows of one queue; the module `m` writes when each attempt begins and ends, and its fence.
const FLOWS: &str = "
flow: order
exclusive: orders
steps:
  - { name: pay, run: m.ledger, rollback: m.ledger }
  - { name: send, run: m.ledger }
---
flow: bad
exclusive: { expression: \"'or' + 'ders'\" }
on_failure: hold
steps: [{ name: pay, run: m.fail }]
";

/// A worker that writes to `ledger`.
fn start_worker(site: &mut Site, ledger: &str) {
    fs::create_dir_all(site.path("modules/m")).unwrap();
    let line = |word: &str| format!("echo {word} $WINDLASS_TASK $WINDLASS_FENCE >> {ledger}");
    let body = format!("{}\nsleep 0.01\n{}", line("begin"), line("end"));
    script(site.path("modules/m/ledger").as_ref(), &body);
    site.start_worker();
}

/// The attempts of a ledger in their order, each with its task and its fence. No two ran at once.
fn attempts(ledger: &str) -> Vec<(String, u64)> {
    let lines = fs::read_to_string(ledger).unwrap();
    let lines: Vec<Vec<&str>> = lines.lines().map(|line| line.split(' ').collect()).collect();
    let pairs = lines.chunks(2).map(|pair| {
        assert!(pair[0][0] == "begin" && pair[1][0] == "end" && pair[0][1..] == pair[1][1..], "{pair:?}");
        (pair[0][1].to_owned(), pair[0][2].parse().unwrap())
    });
    pairs.collect()
}

#[test]
fn three_servers_with_three_workers_run_one_task_at_a_time_in_the_order_of_the_submits() {
    const TASKS: usize = 40;
    let Some(postgres) = Postgres::shared().unwrap() else { return };
    let database = postgres.database().unwrap();
    let mut sites: Vec<Site> =
        (0..3).map(|_| Site::open(tempfile::tempdir().unwrap(), &database.url(), &[])).collect();
    sites[0].apply(FLOWS);
    let ledger = sites[0].path("ledger");
    sites.iter_mut().for_each(|site| start_worker(site, &ledger));
    let tasks: Vec<String> = (0..TASKS).map(|n| sites[n % 3].start_task("order")).collect();
    until_within(Duration::from_secs(120), "all tasks end", || {
        let counts = sites[0].json(&["task", "list", "--status", "succeeded", "--count"]);
        (counts["total"].as_u64() == Some(TASKS as u64)).then_some(())
    });
    let attempts = attempts(&ledger);
    let order: Vec<&String> = attempts.iter().map(|(task, _)| task).step_by(2).collect();
    assert_eq!(order, tasks.iter().collect::<Vec<_>>());
    assert!(attempts.chunks(2).all(|pair| pair[0] == pair[1]), "both steps under one fence: {attempts:?}");
    let fences: Vec<u64> = attempts.iter().map(|(_, fence)| *fence).step_by(2).collect();
    assert!(fences.is_sorted_by(|one, next| one < next), "{fences:?}");
}

#[test]
fn an_operator_sees_the_queue_and_moves_it_past_a_stuck_task() {
    let mut site = Site::start();
    site.apply(FLOWS);
    let ledger = site.path("ledger");
    start_worker(&mut site, &ledger);
    let stuck = site.start_task("bad");
    until("it is stuck", || (site.json(&["task", "show", &stuck])["status"] == "stuck").then_some(()));
    let (second, third) = (site.start_task("order"), site.start_task("order"));
    // A task has its place in the queue once the lock has its request.
    until("the third one is behind the second one", || {
        let why = text(&site.run(&["task", "why", &third]).stdout);
        (why.contains("number 2 in the exclusive queue orders") && why.contains(&stuck)).then_some(())
    });
    let shown = text(&site.run(&["task", "show", &second]).stdout);
    assert!(shown.contains("orders: waiting"), "{shown}");
    let queue = text(&site.run(&["lock", "show", "orders"]).stdout);
    assert!(queue.contains("(whole task)") && queue.contains(&second), "{queue}");
    let skip = |queue: &str, reason: &str| site.run(&["queue", "skip", queue, "--reason", reason]);
    let refused = skip("others", "why not");
    assert!(refused.status.code() == Some(3) && text(&refused.stderr).contains("no task has"), "{refused:?}");
    assert_eq!(skip("orders", " ").status.code(), Some(1));
    assert_eq!(skip("orders", "waits for the bank").status.code(), Some(0));
    for task in [&second, &third] {
        until("it ends", || (site.json(&["task", "show", task])["status"] == "succeeded").then_some(()));
    }
    let events = site.json(&["task", "events", &stuck]).to_string();
    assert!(events.contains("queue.lost") && events.contains("waits for the bank"), "{events}");
    assert_eq!(attempts(&ledger).len(), 4);
    let unknown = skip("orders", "nobody has it");
    assert_eq!(unknown.status.code(), Some(3), "{unknown:?}");
}

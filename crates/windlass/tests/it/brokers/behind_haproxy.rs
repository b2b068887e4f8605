//! The set-up of `docs/operate/rabbitmq-behind-haproxy.md`: a producer that knows HAProxy alone, three RabbitMQ servers, three
//! servers that ZooKeeper elects among, and workers behind a balancer. One of each is killed while the producer goes on.

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use windlass_brokers::{Message, Queue};
use windlass_testkit::{Ensemble, HaProxy, Postgres, RabbitMq, RabbitMqCluster, ZooKeeperProduct};

use super::{
    PATIENCE, block_on,
    elected::{Candidates, KIND, Sockets},
};
use crate::{
    leaders::coordinators::{Process, run},
    site::{script, until_within},
};

const QUEUE: &str = "fleet";

/// What bounds the takeover after a server was killed.
const LEASE: Duration = Duration::from_secs(6);

/// A thread that goes on until the test ends it.
struct Beside<T> {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<T>,
}

impl<T: Send + 'static> Beside<T> {
    fn start(work: impl FnOnce(&AtomicBool) -> T + Send + 'static) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&is_over);
        Self { is_over, thread: thread::spawn(move || work(&seen)) }
    }

    fn end(self) -> T {
        self.is_over.store(true, Ordering::SeqCst);
        self.thread.join().unwrap()
    }
}

/// Publishes messages 1, 2, 3, …, each again and again until it is confirmed.
fn produce(url: &str, confirmed: &AtomicU64, is_over: &AtomicBool) {
    let queue = Queue { name: QUEUE.to_owned(), kind: Some(KIND.to_owned()) };
    block_on(async {
        let broker = windlass_brokers::connect(url).unwrap();
        while !is_over.load(Ordering::SeqCst) {
            let id = confirmed.load(Ordering::SeqCst) + 1;
            let message = Message::new(id.to_string(), "", format!("{{\"id\":{id}}}"));
            match broker.publish(&queue, &[message]).await.remove(0) {
                Ok(()) => confirmed.store(id, Ordering::SeqCst),
                Err(error) => assert!(error.is_passing(), "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
    });
}

/// Looks again and again which servers are connected to the broker. Returns how often more than one was, and how often it
/// looked.
fn watch(sockets: &Sockets, is_over: &AtomicBool) -> (usize, usize) {
    let (mut beside_one_another, mut looked) = (0, 0);
    while !is_over.load(Ordering::SeqCst) {
        looked += 1;
        beside_one_another += usize::from(sockets.connected().len() > 1);
        thread::sleep(Duration::from_millis(20));
    }
    (beside_one_another, looked)
}

/// The tasks in the order in which they ran. No two ran at once.
fn ran(ledger: &Path) -> Vec<String> {
    let text = fs::read_to_string(ledger).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let pairs = lines.chunks_exact(2).map(|pair| {
        let task = pair[0].strip_prefix("begin ").expect("a task begins");
        assert_eq!(pair[1].strip_prefix("end "), Some(task), "no other one runs meanwhile");
        task.to_owned()
    });
    pairs.collect()
}

/// Waits until this number of messages more are confirmed, and all that were confirmed until then are done.
fn goes_on(what: &str, confirmed: &AtomicU64, ledger: &Path) {
    const MORE: u64 = 20;
    let begun = Instant::now();
    let (before, wanted) = (ran(ledger).len(), confirmed.load(Ordering::SeqCst) + MORE);
    until_within(PATIENCE, "a task runs", || (ran(ledger).len() > before + 1).then_some(()));
    let next = begun.elapsed();
    until_within(PATIENCE, "messages are confirmed", || {
        (confirmed.load(Ordering::SeqCst) >= wanted).then_some(())
    });
    until_within(PATIENCE, "tasks are done", || (ran(ledger).len() as u64 >= wanted).then_some(()));
    eprintln!("{what}: the next task ran after {next:.2?}, all were done after {:.2?}", begun.elapsed());
}

/// The RabbitMQ server that leads the queue.
fn leader_of_queue(cluster: &RabbitMqCluster) -> &RabbitMq {
    let ask = format!(
        "{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<\"/\">>, queue, <<\"{QUEUE}\">>)), {{_, N}} = amqqueue:get_pid(Q), N"
    );
    let name = cluster.nodes()[0].evaluate(&ask).unwrap();
    let leads = |node: &&RabbitMq| name.trim_matches('\'') == node.node();
    cluster.nodes().iter().find(leads).unwrap_or_else(|| panic!("{name} is one of the servers"))
}

#[test]
fn tasks_run_one_at_a_time_in_order_while_one_of_each_is_killed() {
    let (Some(cluster), Some(zookeeper)) = thread::scope(|scope| {
        let zookeeper = scope.spawn(|| Ensemble::<ZooKeeperProduct>::start().unwrap());
        (RabbitMqCluster::start().unwrap(), zookeeper.join().unwrap())
    }) else {
        return;
    };
    let Some(postgres) = Postgres::shared().unwrap() else { return };
    let ports: Vec<u16> = cluster.nodes().iter().map(RabbitMq::port).collect();
    let Some(haproxy) = HaProxy::in_front_of(&ports).unwrap() else { return };
    let database = postgres.database().unwrap();
    let url = cluster.nodes()[0].url_at(haproxy.port());
    let ensemble: Vec<String> = zookeeper.ports().iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let leader = format!(
        "{{ coordinator = \"zookeeper://{}\", name = \"fleet/intake\", lease = \"{}s\" }}",
        ensemble.join(","),
        LEASE.as_secs()
    );
    let mut candidates = Candidates::start(3, &database.url(), (&url, haproxy.port()), QUEUE, &leader);
    candidates.apply("{ flow: ship, exclusive: fleet, steps: [ { name: one, run: m.ship } ] }");
    let Some(balancer) = HaProxy::balancing(&candidates.ports(), "leastconn").unwrap() else { return };
    let balanced = format!("http://127.0.0.1:{}", balancer.port());
    let ledger = candidates.dir().join("ledger");
    let modules = candidates.dir().join("modules");
    fs::create_dir_all(modules.join("m")).unwrap();
    let line = |word: &str| format!("echo {word} $WINDLASS_TASK >> {}", ledger.display());
    script(&modules.join("m/ship"), &format!("{}\nsleep 0.01\n{}", line("begin"), line("end")));
    let worker = |number: usize| {
        let log = candidates.dir().join(format!("worker-{number}.log"));
        Process::start(&["worker", "--server", &balanced, "--modules", &modules.display().to_string()], &log)
    };
    let _workers: Vec<Process> = (0..3).map(worker).collect();
    let first = candidates.next_reader(&[]);
    let sockets = candidates.sockets();
    let watcher = Beside::start(move |is_over| watch(&sockets, is_over));
    let confirmed = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&confirmed);
    let producer = Beside::start(move |is_over| produce(&url, &counted, is_over));
    let goes_on = |what: &str| goes_on(what, &confirmed, &ledger);
    goes_on("at first");

    let node = leader_of_queue(&cluster);
    node.kill().unwrap();
    goes_on("RabbitMQ server killed");
    node.restart().unwrap();
    cluster.wait_until_whole().unwrap();

    let elector = zookeeper.nodes().iter().find(|node| node.is_leader().unwrap()).unwrap();
    elector.kill().unwrap();
    goes_on("ZooKeeper leader killed");
    elector.restart().unwrap();

    let reader = candidates.next_reader(&[]);
    candidates.servers[reader].0.kill().unwrap();
    let killed = Instant::now();
    let second = candidates.next_reader(&[reader]);
    eprintln!("elected server killed: the next one is connected after {:.2?}", killed.elapsed());
    goes_on("elected server killed, and another one connected");

    candidates.servers[second].signal("TERM");
    let ended = Instant::now();
    let third = candidates.next_reader(&[reader, second]);
    eprintln!("elected server ended: the next one is connected after {:.2?}", ended.elapsed());
    goes_on("elected server ended, and another one connected");

    producer.end();
    let count = confirmed.load(Ordering::SeqCst);
    until_within(PATIENCE, "all tasks are done", || (ran(&ledger).len() as u64 >= count).then_some(()));
    let (beside_one_another, looked) = watcher.end();
    assert!(
        looked > 100 && beside_one_another == 0,
        "{beside_one_another} of {looked}: more than one was connected"
    );
    let accepted = candidates.accepted(third).unwrap();
    assert!(
        accepted.iter().copied().eq(1..=accepted.len() as u64),
        "each message has one task, in order: {accepted:?}"
    );
    // The last message may have arrived without its confirmation.
    assert!((count..=count + 1).contains(&(accepted.len() as u64)), "{count} were confirmed");
    let ran = ran(&ledger);
    let order = candidates.tasks(third).unwrap();
    assert_eq!(
        ran,
        order.iter().map(|(task, _)| task.clone()).collect::<Vec<_>>(),
        "each ran once, in order"
    );
    let output = run(&["task", "list", "--status", "succeeded", "--count", "--server", &balanced]);
    assert!(output.status.success(), "{output:?}");
    eprintln!(
        "{count} messages confirmed, {} tasks; first reader {first}, then {reader}, {second}, {third}",
        ran.len()
    );
}

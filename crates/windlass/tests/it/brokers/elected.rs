//! An intake that only the elected server reads.

use std::{
    collections::HashSet,
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use serde_json::Value;
use windlass_brokers::{Message, Queue};
use windlass_testkit::{Postgres, RabbitMq, ZooKeeper, free_port};

use super::{PATIENCE, block_on};
use crate::{
    leaders::coordinators::{LEASE, Process, on_each, run},
    site::{Site, until_within},
};

/// The kind of the queue that is read.
pub(super) const KIND: &str = "single-active";

/// Servers on one store that campaign to read one queue.
pub(super) struct Candidates {
    dir: tempfile::TempDir,
    store: String,
    config: PathBuf,
    /// The port at which they reach the broker.
    broker_port: u16,
    pub(super) servers: Vec<Process>,
    urls: Vec<String>,
}

impl Candidates {
    /// Starts servers that read `queue` with the flow `ship`. `leader` is the table of the configuration.
    pub(super) fn start(count: usize, store: &str, broker: (&str, u16), queue: &str, leader: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("windlass.toml");
        let (broker, broker_port) = broker;
        let text = format!(
            "[[intake]]\nbroker = \"{broker}\"\nqueue = \"{queue}\"\nkind = \"{KIND}\"\nflow = \"ship\"\nkey = \"/id\"\n\
             leader = {leader}\n"
        );
        fs::write(&config, text).unwrap();
        let store = store.to_owned();
        let mut candidates = Self { dir, store, config, broker_port, servers: Vec::new(), urls: Vec::new() };
        for _ in 0..count {
            candidates.add();
        }
        candidates
    }

    /// Starts one more server.
    pub(super) fn add(&mut self) {
        let listen = format!("127.0.0.1:{}", free_port().unwrap());
        let log = self.dir.path().join(format!("server-{}.log", self.servers.len()));
        let config = self.config.display().to_string();
        self.servers.push(Process::start(
            &["server", "--listen", &listen, "--store", &self.store, "--config", &config],
            &log,
        ));
        self.urls.push(format!("http://{listen}"));
        let number = self.urls.len() - 1;
        until_within(PATIENCE, "the server answers", || {
            self.call(number, &["server", "list"]).is_some().then_some(())
        });
    }

    pub(super) fn dir(&self) -> &std::path::Path {
        self.dir.path()
    }

    /// What a server answers to a command, if it does.
    pub(super) fn call(&self, number: usize, arguments: &[&str]) -> Option<Value> {
        let output = run(&[arguments, &["--server", &self.urls[number], "-o", "json"]].concat());
        serde_json::from_slice(&output.stdout).ok()
    }

    pub(super) fn apply(&self, flow: &str) {
        let file = self.dir.path().join("flow.yaml");
        fs::write(&file, flow).unwrap();
        let output = run(&["flow", "apply", file.to_str().unwrap(), "--server", &self.urls[0]]);
        assert!(output.status.success(), "{output:?}");
    }

    /// The ports at which they listen.
    pub(super) fn ports(&self) -> Vec<u16> {
        self.urls.iter().map(|url| url.rsplit(':').next().unwrap().parse().unwrap()).collect()
    }

    /// Their processes, and the port at which they reach the broker.
    pub(super) fn sockets(&self) -> Sockets {
        let pids = self.servers.iter().map(|server| server.0.id()).collect();
        Sockets { pids, port: self.broker_port }
    }

    /// The numbers of the servers that have a connection to the broker now.
    pub(super) fn connected(&self) -> Vec<usize> {
        self.sockets().connected()
    }

    /// Waits until a server is connected that is none of these. Others are never connected beside it.
    pub(super) fn next_reader(&self, but: &[usize]) -> usize {
        until_within(PATIENCE, "another server is connected", || {
            let connected = self.connected();
            assert!(
                connected.len() <= 1 || connected.iter().any(|number| but.contains(number)),
                "{connected:?}"
            );
            connected.into_iter().find(|number| !but.contains(number))
        })
    }

    /// The ids of the tasks' messages, in the order in which the tasks were accepted.
    pub(super) fn accepted(&self, number: usize) -> Option<Vec<u64>> {
        Some(self.tasks(number)?.into_iter().map(|(_, id)| id).collect())
    }

    /// The tasks in the order in which they were accepted, each with the id of its message.
    pub(super) fn tasks(&self, number: usize) -> Option<Vec<(String, u64)>> {
        let listed = self.call(number, &["task", "list", "--all"])?;
        let tasks = listed["items"].as_array()?.iter();
        let mut tasks: Vec<(String, u64)> = tasks
            .map(|task| (task["id"].as_str().unwrap().to_owned(), task["params"]["id"].as_u64().unwrap()))
            .collect();
        // Ids of tasks grow with time.
        tasks.sort();
        Some(tasks)
    }
}

impl Drop for Candidates {
    /// After a failure their logs say more.
    fn drop(&mut self) {
        for number in (0..self.servers.len()).filter(|_| std::thread::panicking()) {
            let log = self.dir.path().join(format!("server-{number}.log"));
            eprintln!("{}:\n{}", log.display(), fs::read_to_string(&log).unwrap_or_default());
        }
    }
}

/// The processes of servers, and the port at which they reach the broker.
pub(super) struct Sockets {
    pids: Vec<u32>,
    port: u16,
}

impl Sockets {
    /// Returns which servers are connected to the broker, by number. Reads the servers' sockets first, then the connection table.
    /// In between, one server may disconnect and another server may connect.
    pub(super) fn connected(&self) -> Vec<usize> {
        let sockets: Vec<HashSet<String>> = self.pids.iter().map(|pid| sockets_of(*pid)).collect();
        let established = established(self.port);
        (0..sockets.len()).filter(|number| !sockets[*number].is_disjoint(&established)).collect()
    }
}

/// The sockets of a process, by inode.
fn sockets_of(pid: u32) -> HashSet<String> {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let targets = files.filter_map(|file| fs::read_link(file.path()).ok());
    let inode =
        |target: PathBuf| Some(target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned());
    targets.filter_map(inode).collect()
}

/// The sockets of this machine that are connected to this port, by inode.
fn established(port: u16) -> HashSet<String> {
    const ESTABLISHED: &str = "01";
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let to_port = format!(":{port:04X}");
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row[2].ends_with(&to_port) && row[3] == ESTABLISHED)
        .map(|row| row[9].to_owned())
        .collect()
}

/// Sends messages with these ids, one after the other. Repeats messages that the queue refuses because it has no leader.
fn send(url: &str, queue: &str, ids: impl Iterator<Item = u64>) {
    let queue = Queue { name: queue.to_owned(), kind: Some(KIND.to_owned()) };
    let messages: Vec<Message> =
        ids.map(|id| Message::new(id.to_string(), "", format!("{{\"id\":{id}}}"))).collect();
    block_on(async {
        let broker = windlass_brokers::connect(url).unwrap();
        for message in messages {
            let sent = std::slice::from_ref(&message);
            let begun = Instant::now();
            while let Err(error) = broker.publish(&queue, sent).await.remove(0) {
                assert!(error.is_passing() && begun.elapsed() < PATIENCE, "{error}");
                tokio::time::sleep(Duration::from_millis(150)).await;
            }
        }
    });
}

/// Kills, ends and stops servers while they read. At most one server is connected. Each message starts one task, in message
/// order. `remains` is the lease minus the renewal interval: a server that waits until the lease expires waits at least this
/// long.
fn the_elected_server_reads(store: &str, broker: &RabbitMq, name: &str, leader: &str, remains: Duration) {
    let url = broker.url();
    let mut candidates = Candidates::start(3, store, (&url, broker.port()), name, leader);
    candidates.apply("{ flow: ship, steps: [ { name: one, run: nobody.serves } ] }");
    let all = |candidates: &Candidates, number: usize, count: u64| {
        until_within(PATIENCE, "all messages start tasks", || {
            let accepted = candidates.accepted(number)?;
            (accepted.len() as u64 >= count).then(|| assert_eq!(accepted, (1..=count).collect::<Vec<_>>()))
        });
    };
    let first = candidates.next_reader(&[]);
    send(&url, name, 1..=100);
    all(&candidates, first, 100);

    candidates.servers[first].0.kill().unwrap();
    let killed = Instant::now();
    send(&url, name, 101..=150);
    let second = candidates.next_reader(&[first]);
    eprintln!("{name}: after SIGKILL the next server is connected after {:.2?}", killed.elapsed());
    all(&candidates, second, 150);

    // A server that gets SIGTERM ends with messages that it has read and not accepted. It returns its lease, so the next server
    // takes over before the lease expires. A busy machine may delay one handover, but not three.
    let (mut gone, mut reader, mut sent, mut took) = (vec![first], second, 150_u64, Duration::MAX);
    for _ in 0..3 {
        send(&url, name, sent + 1..=sent + 250);
        sent += 250;
        candidates.servers[reader].signal("TERM");
        let ended = Instant::now();
        gone.push(reader);
        let next = candidates.next_reader(&gone);
        took = ended.elapsed();
        eprintln!("{name}: after SIGTERM the next server is connected after {took:.2?}");
        all(&candidates, next, sent);
        candidates.servers[reader].code();
        reader = next;
        candidates.add();
        if took < remains {
            break;
        }
    }
    assert!(took < remains, "the next one takes over before the lease is over: {took:?}");

    // One that stands still cannot be disconnected by anybody but the broker. Its messages in flight stay with it.
    send(&url, name, sent + 1..=sent + 50);
    candidates.servers[reader].signal("STOP");
    send(&url, name, sent + 51..=sent + 200);
    gone.push(reader);
    let last = candidates.next_reader(&gone);
    candidates.servers[reader].signal("CONT");
    all(&candidates, last, sent + 200);
    until_within(PATIENCE, "the one that stood still disconnects", || {
        (candidates.connected() == [last]).then_some(())
    });
    let alarms = candidates.call(last, &["alarm", "list"]).unwrap();
    assert_eq!(alarms["items"], serde_json::json!([]));
}

#[test]
fn the_order_stays_when_the_store_and_the_coordinator_fail() {
    const QUEUE: &str = "led-through-outages";
    let (Some(postgres), Some(zookeeper)) = (Postgres::start().unwrap(), ZooKeeper::start().unwrap()) else {
        return;
    };
    let Some(broker) = RabbitMq::shared().unwrap() else { return };
    let (database, url) = (postgres.database().unwrap(), broker.url());
    let leader = format!(
        "{{ coordinator = \"zookeeper://127.0.0.1:{}\", name = \"fleet\", lease = \"{LEASE}\" }}",
        zookeeper.port()
    );
    let candidates = Candidates::start(2, &database.url(), (&url, broker.port()), QUEUE, &leader);
    candidates.apply("{ flow: ship, steps: [ { name: one, run: nobody.serves } ] }");
    candidates.next_reader(&[]);
    let all = |count: u64| {
        until_within(PATIENCE, "all messages start tasks", || {
            let accepted = candidates.accepted(0)?;
            (accepted.len() as u64 >= count).then(|| assert_eq!(accepted, (1..=count).collect::<Vec<_>>()))
        });
    };
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| send(&url, QUEUE, 1..=800));
        until_within(PATIENCE, "the first tasks are there", || {
            candidates.accepted(0).filter(|accepted| accepted.len() > 20)
        });
        postgres.kill().unwrap();
        sending.join().unwrap();
    });
    postgres.restart().unwrap();
    all(800);

    zookeeper.kill().unwrap();
    let alarms = || candidates.call(0, &["alarm", "list"]).map(|listed| listed["items"].clone());
    let alarm = until_within(PATIENCE, "an alarm says that nobody is elected", || {
        alarms()?.as_array()?.iter().find(|alarm| alarm["id"].as_str().unwrap().contains(QUEUE)).cloned()
    });
    let message = alarm["message"].as_str().unwrap();
    assert!(
        message.contains("cannot elect a server that reads the queue led-through-outages: zookeeper://"),
        "{message}"
    );
    until_within(PATIENCE, "nobody is connected", || candidates.connected().is_empty().then_some(()));
    send(&url, QUEUE, 801..=810);
    zookeeper.restart().unwrap();
    candidates.next_reader(&[]);
    all(810);
    until_within(PATIENCE, "the alarm is resolved", || {
        alarms()?.as_array()?.iter().all(|alarm| !alarm["id"].as_str().unwrap().contains(QUEUE)).then_some(())
    });
}

#[test]
fn the_server_that_the_store_elects_reads() {
    let (Some(postgres), Some(broker)) = (Postgres::shared().unwrap(), RabbitMq::shared().unwrap()) else {
        return;
    };
    let database = postgres.database().unwrap();
    // A server without such a queue must not take the lease.
    let _other = Site::open(tempfile::tempdir().unwrap(), &database.url(), &[]);
    let leader = "{ coordinator = \"store\" }";
    // The lease is 3 s, and is renewed every second.
    the_elected_server_reads(&database.url(), broker, "led-by-store", leader, Duration::from_secs(2));
}

#[test]
fn the_server_that_a_coordinator_elects_reads() {
    let (Some(postgres), Some(broker)) = (Postgres::shared().unwrap(), RabbitMq::shared().unwrap()) else {
        return;
    };
    on_each(|kind| {
        let database = postgres.database().unwrap();
        let name = format!("led-by-{}", kind.scheme);
        let leader =
            format!("{{ coordinator = \"{}\", name = \"{name}\", lease = \"{LEASE}\" }}", kind.url());
        // The lease is 4 s, and is renewed six times in that time.
        the_elected_server_reads(&database.url(), broker, &name, &leader, Duration::from_secs(3));
    });
}

//! Steps over real brokers: the same flow through each, both ways back, and what happens with a broker that is unavailable or loses
//! all it has.

mod accidents;
mod behind_haproxy;
mod elected;
mod events;
mod intake;
mod machinery;
mod products;
mod refused;

use std::{
    collections::BTreeMap,
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::Value;
use windlass_brokers::{BrokerError, ConsumerSettings, Message, Queue};

use crate::site::{GATE, PROGRAM, Site, store, until_within};

/// How long a task may take: all servers of these tests start at once, on two cores.
const PATIENCE: Duration = Duration::from_secs(120);

/// Two modules on the broker, one at the server; the last step fails when it is asked to.
const FLOWS: &str = r"
flow: create
steps:
  - { name: check, run: far.check, rollback: far.report, retry: 1 }
  - { name: init, run: near.init, rollback: near.clean }
  - { name: deduct, run: far.deduct, rollback: far.restore }
---
flow: slow
steps:
  - { name: wait, run: far.wait }
---
flow: near
steps:
  - { name: init, run: near.init }
";

/// Every command notes that it ran, beside its module.
const COMMANDS: [(&str, &str); 8] = [
    ("far/check", r#"echo '{"checked": true}'"#),
    ("far/report", ""),
    ("near/init", r#"echo '{"ip": "10.0.0.7"}'"#),
    ("near/clean", ""),
    ("far/deduct", r#"case "$document" in *'"fail":true'*) echo 'no space left' >&2; exit 65;; esac"#),
    ("far/restore", ""),
    ("far/wait", "sleep 0.3"),
    ("far/gate", GATE),
];

/// How answers come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The worker asks the server before it runs anything, and reports to it what became of it.
    Exchange,
    /// The worker knows the broker alone.
    OneWay,
}

/// A server whose module `far` has its queue on a broker.
struct Far {
    site: Site,
    broker: String,
    kind: Option<String>,
    queue: String,
}

impl Far {
    fn start(broker: &str, kind: Option<&str>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().file_name().unwrap().to_string_lossy().replace('.', "");
        let queue = format!("far{name}");
        let mut config = format!(
            "[queues.far]\nbroker = \"{broker}\"\nqueue = \"{queue}\"\nresults = \"{queue}-results\"\n"
        );
        if let Some(kind) = kind {
            config += &format!("kind = \"{kind}\"\n");
        }
        let file = dir.path().join("windlass.toml");
        std::fs::write(&file, config).unwrap();
        for (path, body) in COMMANDS {
            let (module, command) = path.split_once('/').unwrap();
            let folder = dir.path().join("modules").join(module);
            std::fs::create_dir_all(&folder).unwrap();
            let note = format!("echo \"$WINDLASS_TASK {command}\" >> ../../ran");
            crate::site::script(&folder.join(command), &format!("read -r document\n{note}\n{body}"));
        }
        let store = store(dir.path());
        let site = Site::open(dir, &store, &[("WINDLASS_CONFIG", &file.display().to_string())]);
        site.apply(FLOWS);
        Self { site, broker: broker.to_owned(), kind: kind.map(str::to_owned), queue }
    }

    /// Starts a worker of `near` at the server, and one of `far` over the broker.
    fn start_workers(&mut self, way: Way) {
        let near = self.worker("near", &["--server", &self.site.url.clone()]);
        self.site.children.push(near);
        self.start_far_worker(way);
    }

    fn start_far_worker(&mut self, way: Way) {
        let far = self.far_worker(way);
        self.site.children.push(far);
    }

    fn far_worker(&self, way: Way) -> Child {
        let (queue, results) = (format!("far={}", self.queue), format!("{}-results", self.queue));
        let mut arguments = vec!["--broker", &self.broker, "--queue", &queue];
        match way {
            Way::Exchange => arguments.extend(["--server", self.site.url.as_str()]),
            Way::OneWay => arguments.extend(["--results", &results]),
        }
        if let Some(kind) = &self.kind {
            arguments.extend(["--queue-kind", kind]);
        }
        self.worker("far", &arguments)
    }

    fn worker(&self, module: &str, arguments: &[&str]) -> Child {
        let mut command = Command::new(PROGRAM);
        command.args(["worker", "--modules", &self.site.path("modules"), "--module", module]);
        command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    fn start_task(&self, flow: &str, params: &str) -> String {
        let task = self.site.json(&["task", "start", flow, "-p", params]);
        task["id"].as_str().unwrap_or_else(|| panic!("{task}")).to_owned()
    }

    /// Waits until all these tasks have ended, and gives them.
    fn wait(&self, ids: &[String]) -> Vec<Value> {
        let ended = |id: &String| {
            until_within(PATIENCE, "a task ends", || {
                let task = self.site.json(&["task", "show", id]);
                let status = task["status"].as_str().unwrap_or_default().to_owned();
                ["succeeded", "rolled_back", "failed", "cancelled"].contains(&&*status).then_some(task)
            })
        };
        ids.iter().map(ended).collect()
    }

    /// How often each command ran, by task and command.
    fn ran(&self) -> BTreeMap<String, usize> {
        let mut ran = BTreeMap::new();
        let text = std::fs::read_to_string(self.site.dir.path().join("ran")).unwrap_or_default();
        text.lines().for_each(|line| *ran.entry(line.to_owned()).or_default() += 1);
        ran
    }
}

impl Far {
    /// Sends messages as a stranger does.
    fn publish(broker: &str, queue: &str, bodies: &[&str]) {
        let messages: Vec<Message> = bodies
            .iter()
            .enumerate()
            .map(|(index, body)| Message::new(index.to_string(), "key", body.to_string()))
            .collect();
        for message in messages {
            // A queue that was made just now may not be led by anybody yet.
            until_within(PATIENCE, "a message is sent", || {
                match Self::try_publish(broker, queue, std::slice::from_ref(&message)).remove(0) {
                    Err(error) if error.is_passing() => None,
                    sent => {
                        sent.unwrap();
                        Some(())
                    }
                }
            });
        }
    }

    fn try_publish(broker: &str, queue: &str, messages: &[Message]) -> Vec<Result<(), BrokerError>> {
        block_on(async {
            let broker = windlass_brokers::connect(broker).unwrap();
            broker.publish(&Queue::new(queue), messages).await
        })
    }

    /// The body of the first message of a queue.
    fn receive(broker: &str, queue: &str) -> String {
        Self::receive_from(broker, &Queue::new(queue))
    }

    fn receive_from(broker: &str, queue: &Queue) -> String {
        let settings = ConsumerSettings {
            binding: None,
            group: "test".to_owned(),
            name: "test".to_owned(),
            in_hands_max: 1,
            silent_after: Duration::from_secs(30),
        };
        block_on(async {
            let broker = windlass_brokers::connect(broker).unwrap();
            let receive = async || {
                let mut consumer = broker.consume(queue, &settings).await?;
                consumer.receive(1, Duration::from_secs(10)).await
            };
            let mut received = Vec::new();
            for _ in 0..10 {
                received = match receive().await {
                    Ok(received) => received,
                    Err(error) => {
                        assert!(error.is_passing(), "the queue was made just now: {error}");
                        tokio::time::sleep(Duration::from_millis(200)).await;
                        continue;
                    }
                };
                if !received.is_empty() {
                    break;
                }
            }
            let delivery = received.pop().expect("there is a message");
            String::from_utf8(delivery.message.body.to_vec()).unwrap()
        })
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Runtime::new().unwrap().block_on(future)
}

/// The flow forward and back, with workers that answer this way.
fn runs(broker: &str, kind: Option<&str>, way: Way) {
    let mut far = Far::start(broker, kind);
    let good: Vec<String> = (0..5).map(|index| far.start_task("create", &format!("index={index}"))).collect();
    let bad = far.start_task("create", "fail=true");
    // Steps wait on the broker for the next consumer.
    far.start_workers(way);
    for task in far.wait(&good) {
        assert_eq!(task["status"], "succeeded", "{task}");
        assert_eq!((&task["result"]["checked"], &task["result"]["ip"]), (&true.into(), &"10.0.0.7".into()));
    }
    let task = &far.wait(std::slice::from_ref(&bad))[0];
    assert_eq!(task["status"], "rolled_back", "{task}");
    assert!(task["message"].as_str().unwrap().contains("no space left"), "{task}");
    let ran = far.ran();
    for command in ["check", "init", "deduct", "restore", "clean", "report"] {
        assert_eq!(ran.get(&format!("{bad} {command}")), Some(&1), "{command}: {ran:?}");
    }
    assert!(ran.values().all(|times| *times == 1), "{ran:?}");
}

//! A list in Consul, and a server that takes from it.

use std::{fs, process::Command};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use tempfile::TempDir;
use windlass_testkit::{Consul, Proxy};

use crate::site::{Site, script, store, until};

/// Flows whose tasks write into the ledger, fail, or wait for the gate.
const FLOWS: &str = "
flow: note
steps: [{ name: one, run: m.note }]
---
flow: fail
steps: [{ name: one, run: m.fail, rollback: m.echo }]
---
flow: gate
steps: [{ name: one, run: m.gate }]
---
flow: slow
steps: [{ name: one, run: m.slow }]
";

/// A command that says in the ledger when it begins and ends.
const NOTES: &str = r#"read -r document
n=${document#*\"n\":}
n=${n%%[!0-9]*}
echo "windlass begins $n" >> LEDGER
echo "windlass ends $n" >> LEDGER"#;

/// The same for one that goes on until the gate is open, or until it is stopped.
const SLOW: &str = r#"read -r document
n=${document#*\"n\":}
n=${n%%[!0-9]*}
trap 'echo "windlass stops $n" >> LEDGER; exit 143' TERM
echo "windlass begins $n" >> LEDGER
until test -e open; do sleep 0.02; done
echo "windlass ends $n" >> LEDGER"#;

/// A list of a test, in a Consul that all tests share.
#[derive(Clone, Copy)]
pub(super) struct List {
    pub(super) consul: &'static Consul,
    pub(super) name: &'static str,
}

/// An entry as Consul shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) text: String,
    pub(super) flags: u64,
    pub(super) index: u64,
}

impl Entry {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }
}

impl List {
    /// None where Consul is not installed.
    pub(super) fn new(name: &'static str) -> Option<Self> {
        Some(Self { consul: Consul::shared().unwrap()?, name })
    }

    pub(super) fn leader_key(self) -> String {
        format!("{}-leader", self.name)
    }

    /// Writes an entry of this type, whose task is to note its number.
    pub(super) fn put(self, n: u32, kind: &str) {
        self.put_text(&format!("task_{n:04}"), &value(n, kind).to_string());
    }

    /// Writes this many entries of the type `note`.
    pub(super) fn put_all(self, count: u32) {
        /// The most that a transaction may have.
        const AT_ONCE: usize = 64;

        let set = |n: u32| {
            let (key, value) = (format!("{}/task_{n:04}", self.name), value(n, "note").to_string());
            json!({ "KV": { "Verb": "set", "Key": key, "Value": BASE64_STANDARD.encode(value) } })
        };
        let all: Vec<Value> = (0..count).map(set).collect();
        for some in all.chunks(AT_ONCE) {
            self.consul.ask("PUT", "/v1/txn", &json!(some).to_string()).unwrap();
        }
    }

    pub(super) fn put_text(self, name: &str, text: &str) {
        let path = format!("/v1/kv/{}/{name}?flags=42", self.name);
        assert_eq!(self.consul.ask("PUT", &path, text).unwrap().trim(), "true");
    }

    /// All entries, or those of another prefix, in the order of their keys.
    pub(super) fn entries(self) -> Vec<Entry> {
        self.entries_of(self.name)
    }

    pub(super) fn entries_of(self, prefix: &str) -> Vec<Entry> {
        let Ok(answer) = self.consul.ask("GET", &format!("/v1/kv/{prefix}/?recurse"), "") else {
            return Vec::new();
        };
        let items: Vec<Value> = serde_json::from_str(&answer).unwrap();
        let entry = |item: &Value| Entry {
            key: item["Key"].as_str().unwrap().rsplit('/').next().unwrap().to_owned(),
            text: String::from_utf8(BASE64_STANDARD.decode(item["Value"].as_str().unwrap_or("")).unwrap())
                .unwrap(),
            flags: item["Flags"].as_u64().unwrap(),
            index: item["ModifyIndex"].as_u64().unwrap(),
        };
        items.iter().map(entry).collect()
    }

    pub(super) fn entry(self, name: &str) -> Option<Entry> {
        self.entries().into_iter().find(|entry| entry.key == name)
    }

    /// Waits until all entries are gone.
    pub(super) fn is_empty(self) {
        until("the list is empty", || self.entries().is_empty().then_some(()));
    }
}

/// The value of an entry.
pub(super) fn value(n: u32, kind: &str) -> Value {
    json!({ "taskId": n.to_string(), "taskTime": (1_700_000_000 + n).to_string(), "taskTaken": "false",
            "taskType": kind, "taskPara": { "n": n } })
}

/// A server that takes from a list, and a worker that stays when the server is replaced.
pub(super) struct Stage {
    pub(super) site: Site,
    network: Proxy,
    store: String,
    config: String,
}

impl Stage {
    /// `rest` are more lines of the section `[[task_list]]`.
    pub(super) fn new(list: List, rest: &str) -> Self {
        // Nobody listens on the first address.
        Self::at(list, &format!("127.0.0.1:1,127.0.0.1:{}", list.consul.port()), rest)
    }

    /// The same with these addresses of Consul.
    pub(super) fn at(list: List, addresses: &str, rest: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        Self::on(dir, store, list, addresses, rest)
    }

    /// The same on a database that other servers may share.
    pub(super) fn on_database(list: List, url: String, rest: &str) -> Self {
        let address = format!("127.0.0.1:{}", list.consul.port());
        Self::on(tempfile::tempdir().unwrap(), url, list, &address, rest)
    }

    fn on(dir: TempDir, store: String, list: List, addresses: &str, rest: &str) -> Self {
        let config = dir.path().join("windlass.toml");
        let flows = "flows = { note = \"note\", fail = \"fail\", gate = \"gate\", slow = \"slow\" }";
        let text = format!(
            "[[task_list]]\nconsul = \"consul://{addresses}\"\nprefix = \"{}/\"\n{flows}\n{rest}\n",
            list.name
        );
        fs::write(&config, text).unwrap();
        let config = config.display().to_string();
        let mut site = Site::open(dir, &store, &[]);
        site.apply(FLOWS);
        let network = Proxy::start(port(&site)).unwrap();
        let server = std::mem::replace(&mut site.url, format!("http://127.0.0.1:{}", network.port()));
        site.start_worker();
        for (command, body) in [("note", NOTES), ("slow", SLOW)] {
            let body = body.replace("LEDGER", &site.path("ledger"));
            script(&site.dir.path().join("modules/m").join(command), &body);
        }
        site.url = server;
        let mut stage = Self { site, network, store, config };
        // Flows come before tasks.
        stage.restart();
        stage
    }

    /// Kills the server and starts another one in its place.
    pub(super) fn restart(&mut self) {
        self.kill();
        self.start();
    }

    /// Kills the server.
    pub(super) fn kill(&mut self) {
        let mut server = self.site.children.remove(0);
        server.kill().unwrap();
        server.wait().unwrap();
    }

    /// Ends the server in good order.
    pub(super) fn end(&mut self) {
        let mut server = self.site.children.remove(0);
        let status = Command::new("kill").args(["-TERM", &server.id().to_string()]).status();
        assert!(status.unwrap().success() && server.wait().unwrap().success());
    }

    /// Starts a server after the last one has ended.
    pub(super) fn start(&mut self) {
        self.site.restart_with(&self.store, &[("WINDLASS_CONFIG", &self.config)]);
        self.lead_worker_to(&self.site);
    }

    /// The worker asks this server from now on.
    pub(super) fn lead_worker_to(&self, site: &Site) {
        self.network.lead_to(port(site));
    }

    /// Another server with the same configuration.
    pub(super) fn second_server(&self) -> Site {
        Site::open(tempfile::tempdir().unwrap(), &self.store, &[("WINDLASS_CONFIG", &self.config)])
    }

    pub(super) fn ledger_path(&self) -> String {
        self.site.path("ledger")
    }

    /// Who did what, line by line: `windlass begins 7`.
    pub(super) fn ledger(&self) -> Vec<String> {
        let text = fs::read_to_string(self.ledger_path()).unwrap_or_default();
        let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
        whole.lines().map(str::to_owned).collect()
    }

    /// The numbers of the tasks that this consumer has done, in their order.
    pub(super) fn done_by(&self, who: &str) -> Vec<u32> {
        let prefix = format!("{who} ends ");
        self.ledger().iter().filter_map(|line| line.strip_prefix(&prefix)?.parse().ok()).collect()
    }

    pub(super) fn tasks(&self) -> Vec<Value> {
        self.site.json(&["task", "list", "--limit", "1000"])["items"].as_array().unwrap().clone()
    }

    pub(super) fn alarms(&self) -> Vec<Value> {
        self.site.json(&["alarm", "list"])["items"].as_array().unwrap().clone()
    }
}

fn port(site: &Site) -> u16 {
    site.url.rsplit(':').next().unwrap().parse().unwrap()
}

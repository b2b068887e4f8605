//! Windlass servers as coordinators: the common suite of all coordinators, on the embedded store and on a shared one.

use std::{
    io::{BufRead as _, BufReader},
    net::TcpStream,
    process::{Child, Command, Stdio},
    sync::Mutex,
    thread,
    time::Duration,
};

use tempfile::TempDir;
use windlass_coordinators::conformance::{self, Disturbances, Subject};
use windlass_testkit::{Postgres, Proxy};

use crate::{
    leaders::coordinators::on_each_elsewhere,
    site::{PROGRAM, Site, store, text, until},
};

const LEASE: Duration = Duration::from_secs(4);

/// Servers on one store, with a network before them.
struct Servers {
    _dir: TempDir,
    store: String,
    ports: Vec<u16>,
    proxies: Vec<Proxy>,
    running: Mutex<Vec<Option<Child>>>,
}

impl Servers {
    fn on(dir: TempDir, store: String, count: usize) -> Self {
        let ports: Vec<u16> = (0..count).map(|_| windlass_testkit::free_port().unwrap()).collect();
        let running = ports.iter().map(|port| Some(start(&store, *port))).collect();
        let proxies = ports.iter().map(|port| Proxy::start(*port).unwrap()).collect();
        Self { _dir: dir, store, ports, proxies, running: Mutex::new(running) }
    }

    /// One server on a file.
    fn embedded() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        Self::on(dir, store, 1)
    }

    fn kill(&self, count: usize) {
        for child in self.running.lock().unwrap()[..count].iter_mut().filter_map(Option::take) {
            end(child);
        }
    }
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A server on this port.
fn start(store: &str, port: u16) -> Child {
    let mut server = Command::new(PROGRAM)
        .args(["server", "--listen", &format!("127.0.0.1:{port}"), "--store", store])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("listening on "), "{line}");
    server
}

fn url(ports: impl Iterator<Item = u16>) -> String {
    let hosts: Vec<String> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
    format!("http://{}", hosts.join(","))
}

impl Subject for Servers {
    fn url(&self) -> String {
        url(self.ports.iter().copied())
    }

    fn lease(&self) -> Duration {
        LEASE
    }

    /// An operator takes the lock of the name.
    fn delete(&self, name: &str) {
        let server = url(self.ports[..1].iter().copied());
        let run = |arguments: &[&str]| {
            let output = Command::new(PROGRAM).args(arguments).env("WINDLASS_SERVER", &server).output();
            let output = output.unwrap();
            assert!(output.status.success(), "{output:?}");
            text(&output.stdout)
        };
        let locks: serde_json::Value = serde_json::from_str(&run(&["lock", "list", "-o", "json"])).unwrap();
        let is_its = |lock: &&serde_json::Value| lock["holder"]["leader"]["name"] == name;
        let lock = locks["items"].as_array().unwrap().iter().find(is_its).expect("somebody leads");
        run(&["lock", "release", lock["name"].as_str().unwrap(), "--reason", "a test"]);
    }
}

impl Disturbances for Servers {
    fn proxied_url(&self) -> String {
        url(self.proxies.iter().map(Proxy::port))
    }

    fn cut(&self) {
        self.proxies.iter().for_each(Proxy::cut);
    }

    fn delay(&self, delay: Duration) {
        self.proxies.iter().for_each(|proxy| proxy.delay(delay));
    }

    fn heal(&self) {
        self.proxies.iter().for_each(Proxy::heal);
    }

    fn kill_first(&self) -> bool {
        let has_others = self.ports.len() > 1;
        if has_others {
            self.kill(1);
        }
        has_others
    }

    /// Any server can elect: there is no quorum but the store.
    fn kill_most(&self) {
        self.kill_all();
    }

    fn kill_all(&self) {
        self.kill(self.ports.len());
    }

    fn restart(&self) {
        for (server, port) in self.running.lock().unwrap().iter_mut().zip(&self.ports) {
            if server.is_none() {
                until("the port is free", || TcpStream::connect(("127.0.0.1", *port)).is_err().then_some(()));
                *server = Some(start(&self.store, *port));
            }
        }
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.kill_all();
    }
}

fn conforms(servers: impl Fn() -> Servers + Sync) {
    thread::scope(|scope| {
        scope.spawn(|| conformance::run(&servers()));
        scope.spawn(|| conformance::run_disturbed(&servers()));
    });
}

#[test]
fn a_server_conforms() {
    conforms(Servers::embedded);
}

#[test]
fn servers_on_one_store_conform() {
    let Some(postgres) = Postgres::shared().unwrap() else { return };
    let databases = [postgres.database().unwrap(), postgres.database().unwrap()];
    let mut urls = databases.iter().map(windlass_testkit::Database::url).collect::<Vec<_>>();
    let urls = Mutex::new(&mut urls);
    conforms(|| {
        let url = urls.lock().unwrap().pop().expect("a database for each suite");
        Servers::on(tempfile::tempdir().unwrap(), url, 2)
    });
}

/// Consul or etcd elects, and a server confirms.
struct Confirmed {
    chooser: String,
    servers: Servers,
}

impl Subject for Confirmed {
    fn url(&self) -> String {
        format!("{} {}", self.chooser, self.servers.url())
    }

    fn lease(&self) -> Duration {
        LEASE
    }

    fn delete(&self, name: &str) {
        self.servers.delete(name);
    }
}

#[test]
fn coordinators_that_a_server_confirms_conform() {
    on_each_elsewhere(|kind| {
        conformance::run(&Confirmed { chooser: kind.url(), servers: Servers::embedded() })
    });
}

/// Who leads is shown as the holder of a lock, without the number of its campaign.
#[test]
fn a_leader_is_listed_with_its_name() {
    let site = Site::start();
    let lead = |name: &str| {
        let mut command = Command::new(PROGRAM);
        command.args(["lead", name, "--id", "host-1", "--lease", "4s", "--", "sleep", "600"]);
        command.env("WINDLASS_SERVER", &site.url).stderr(Stdio::null()).spawn().unwrap()
    };
    let leader = lead("billing/nightly");
    let lock = until("it leads", || {
        let locks = site.json(&["lock", "list"]);
        locks["items"].as_array().unwrap().first().cloned()
    });
    let shown = site.json(&["leader", "billing/nightly"]);
    assert_eq!((&shown["id"], &shown["fence"]), (&"host-1".into(), &lock["holder"]["fence"]));
    assert_eq!(lock["holder"]["leader"], serde_json::json!({ "name": "billing/nightly", "id": "host-1" }));
    assert_eq!(lock["holder"]["task"], "", "{lock}");
    let listed = text(&site.run(&["lock", "list"]).stdout);
    assert!(listed.contains("(leader of billing/nightly)") && listed.contains("host-1"), "{listed}");
    end(leader);
    // The server may be given as for every other command.
    for server in [&site.url, site.url.strip_prefix("http://").unwrap(), &format!("{}/", site.url)] {
        let asked =
            Command::new(PROGRAM).args(["leader", "nobody/here"]).env("WINDLASS_SERVER", server).output();
        let asked = asked.unwrap();
        assert_eq!(asked.status.code(), Some(3), "{server}: {asked:?}");
    }
    for (body, words) in [
        (r#"{"campaign":"1","id":"a","lease_ms":4000}"#, "`campaign` must be a UUID"),
        (r#"{"campaign":"6f2c0a52-6f7b-4d58-9f0a-0a8a3f1b2c3d","id":"","lease_ms":4000}"#, "`id` must have"),
        (r#"{"campaign":"6f2c0a52-6f7b-4d58-9f0a-0a8a3f1b2c3d","id":"a","lease_ms":1999}"#, "use 2000 to"),
        (
            r#"{"campaign":"6f2c0a52-6f7b-4d58-9f0a-0a8a3f1b2c3d","id":"a","lease_ms":2000,"wait_ms":30001}"#,
            "at most 30000",
        ),
        (
            r#"{"campaign":"6f2c0a52-6f7b-4d58-9f0a-0a8a3f1b2c3d","id":"a","lease_ms":2000,"x":1}"#,
            "unknown field",
        ),
    ] {
        let answer = site.post("/v1/leaders/a", body);
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains(words), "{body}: {answer}");
    }
    // Nothing shows the number of a campaign.
    let number = "6f2c0a52-6f7b-4d58-9f0a-0a8a3f1b2c3d";
    let body = format!(r#"{{"campaign":"{number}","id":"host-2","lease_ms":4000}}"#);
    let elected = site.post("/v1/leaders/other", &body);
    assert!(elected.contains(r#""leads":true"#), "{elected}");
    let other = format!(r#"{{"campaign":"{number}","id":"host-3","lease_ms":4000}}"#);
    assert!(site.post("/v1/leaders/other", &other).contains(r#""leads":false"#), "it is host-2's");
    site.apply("flow: waits\nsteps: [{ name: one, run: m.echo, locks: [leader..other] }]");
    let task = site.start_task("waits");
    let why = until("the task waits", || {
        let why = text(&site.run(&["task", "why", &task]).stdout);
        why.contains("leader..other").then_some(why)
    });
    assert!(why.contains("a process has that leads under it"), "{why}");
    let release = site.run(&["lock", "release", "leader..other", "--reason", "a test"]);
    assert!(text(&release.stdout).contains("host-2, (leader of other)"), "{release:?}");
    let shown =
        [elected, why, text(&release.stdout), text(&site.run(&["lock", "list", "-o", "json"]).stdout)];
    assert!(shown.iter().all(|text| !text.contains(number)), "{shown:?}");
    let good = r#"{"campaign":"6f2c0a52-6f7b-4d58-9f0a-0a8a3f1b2c3d","id":"a","lease_ms":2000}"#;
    for name in ["a%2F%2Fb", "a%20b", "..", &"x".repeat(121)] {
        let answer = site.post(&format!("/v1/leaders/{name}"), good);
        assert!(answer.contains("invalid name of a leader"), "{name}: {answer}");
    }
}

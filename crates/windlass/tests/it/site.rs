//! A folder with a server on it, for tests that run the program's commands.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal};
use tempfile::TempDir;

pub(super) const PROGRAM: &str = env!("CARGO_BIN_EXE_windlass");

/// Far more than anything here takes, also on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(25);

/// The script of a command that runs until its gate is open.
pub(super) const GATE: &str = "until test -e open; do sleep 0.02; done";

pub(super) const FLOWS: &str = r"
flow: good
steps:
  - { name: one, run: m.echo }
  - { name: two, run: m.echo }
---
flow: bad
steps:
  - { name: one, run: m.echo, rollback: m.echo }
  - { name: two, run: m.fail, rollback: m.echo }
---
flow: stuck
steps:
  - { name: one, run: m.fail, rollback: m.fail }
---
flow: held
on_failure: hold
steps:
  - { name: one, run: m.fail }
---
flow: lonely
steps:
  - { name: one, run: nobody.serves }
";

/// A folder with a server on it, and a worker where a test wants one. They are killed when this is dropped.
pub(super) struct Site {
    pub(super) dir: TempDir,
    pub(super) url: String,
    /// The server first.
    pub(super) children: Vec<Child>,
}

impl Site {
    pub(super) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        let site = Self::open(dir, &store, &[]);
        std::fs::write(site.dir.path().join("flows.yaml"), FLOWS).unwrap();
        assert_eq!(site.run(&["flow", "apply", &site.path("flows.yaml")]).status.code(), Some(0));
        site
    }

    /// A server in this folder on this store, which may have flows already; with these variables.
    pub(super) fn open(dir: TempDir, store: &str, variables: &[(&str, &str)]) -> Self {
        let (server, url) = Self::start_server(store, variables);
        Self { dir, url, children: vec![server] }
    }

    /// Starts a server on this store after the last one has ended.
    pub(super) fn restart(&mut self, store: &str) {
        self.restart_with(store, &[]);
    }

    /// The same with these variables.
    pub(super) fn restart_with(&mut self, store: &str, variables: &[(&str, &str)]) {
        let (server, url) = Self::start_server(store, variables);
        self.url = url;
        self.children.insert(0, server);
    }

    /// A server, and where it listens. No other test gets its port: a test may kill the server and start another one there.
    fn start_server(store: &str, variables: &[(&str, &str)]) -> (Child, String) {
        let listen = format!("127.0.0.1:{}", windlass_testkit::free_port().unwrap());
        let mut server = Command::new(PROGRAM)
            .args(["server", "--listen", &listen, "--store", store])
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url =
            line.trim().strip_prefix("listening on ").expect("the server says where it listens").to_owned();
        (server, url)
    }

    /// What the server answers to `GET path`, with its head.
    pub(super) fn get(&self, path: &str) -> String {
        let address = self.url.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// What the server answers to `POST path` with this JSON body, with its head.
    pub(super) fn post(&self, path: &str, body: &str) -> String {
        let address = self.url.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        let head = "Content-Type: application/json\r\nConnection: close";
        let length = body.len();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nHost: {address}\r\n{head}\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    pub(super) fn with_worker() -> Self {
        let mut site = Self::start();
        site.start_worker();
        site
    }

    /// Starts a worker with the module `m` at the server.
    pub(super) fn start_worker(&mut self) {
        let module = self.dir.path().join("modules/m");
        std::fs::create_dir_all(&module).unwrap();
        script(&module.join("echo"), "echo \"{\\\"ran\\\": \\\"$WINDLASS_STEP\\\"}\"");
        script(&module.join("fail"), "echo 'no space left' >&2; exit 7");
        script(
            &module.join("told"),
            "read -r document; printf '{\"stdin\": %s, \"locks\": \"%s\"}' \"$document\" \"$WINDLASS_LOCKS\"",
        );
        script(&module.join("gate"), GATE);
        let worker = Command::new(PROGRAM)
            .args(["worker", "--server", &self.url, "--modules", &self.path("modules")])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.children.push(worker);
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    /// Lets the command `m.gate` end, now and from now on.
    pub(super) fn open_gate(&self) {
        self.open_gate_of("m");
    }

    /// The same in another module that has [`GATE`].
    pub(super) fn open_gate_of(&self, module: &str) {
        std::fs::write(self.dir.path().join("modules").join(module).join("open"), "").unwrap();
    }

    /// Applies flows written in YAML.
    pub(super) fn apply(&self, yaml: &str) {
        let file = self.path("applied.yaml");
        std::fs::write(&file, yaml).unwrap();
        let output = self.run(&["flow", "apply", &file]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }

    pub(super) fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).env("WINDLASS_SERVER", &self.url).env("USER", "ops");
        command.output().unwrap()
    }

    pub(super) fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let output = self.run(&[arguments, &["-o", "json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }

    /// Starts a task of `flow` without waiting for it; gives its id.
    pub(super) fn start_task(&self, flow: &str) -> String {
        let output = self.run(&["task", "start", flow]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        text(&output.stdout).trim().to_owned()
    }
}

impl Site {
    /// Starts a task of `flow`, which is to succeed; gives its id.
    pub(super) fn start_task_and_wait(&self, flow: &str) -> String {
        let task = self.json(&["task", "start", flow, "--wait"]);
        assert_eq!(task["status"], "succeeded", "{task}");
        task["id"].as_str().unwrap().to_owned()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

/// Asks until there is an answer. The pauses grow, because each question may start a program.
pub(super) fn until<T>(what: &str, ask: impl FnMut() -> Option<T>) -> T {
    until_within(PATIENCE, what, ask)
}

/// The same, for what takes longer: servers that divide their queues among consumers again, on a busy machine.
pub(super) fn until_within<T>(patience: Duration, what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    const PAUSE_MAX: Duration = Duration::from_millis(160);
    let began = Instant::now();
    let mut pause = Duration::from_millis(10);
    loop {
        if let Some(found) = ask() {
            return found;
        }
        assert!(began.elapsed() < patience, "{what}: not after {patience:?}");
        std::thread::sleep(pause);
        pause = (2 * pause).min(PAUSE_MAX);
    }
}

pub(super) fn store(dir: &Path) -> String {
    format!("sqlite:{}", dir.join("windlass.db").display())
}

pub(super) fn script(path: &Path, body: &str) {
    std::fs::write(path, format!("#!/bin/sh\n{body}\n")).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Whether a process catches these signals.
pub(super) fn has_handlers(pid: Pid, signals: &[Signal]) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or_default();
    // Bit 0 is signal 1.
    signals.iter().all(|signal| (caught >> (signal.as_raw() - 1)) & 1 == 1)
}

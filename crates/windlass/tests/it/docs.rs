//! The pages that people paste commands from: their `sh` blocks are run one after the other in one shell, against
//! a real server, and what they print is compared with the block that follows.
//!
//! A block that is one line beginning with `windlass server` or `windlass dev` is started beside the shell and
//! lives until the end of the page. In an expected block `…` stands for anything, and white space does not count:
//! answers of the server are one line, and pages show them on several.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process};
use tempfile::TempDir;
use windlass_testkit::{MariaDb, Postgres, RabbitMq, Redis};

const PROGRAM: &str = env!("CARGO_BIN_EXE_windlass");

/// Far more than any block takes.
const BLOCK_TIME_MAX: Duration = Duration::from_secs(60);

#[test]
fn with_curl_alone() {
    run("docs/reference/curl.md");
}

#[test]
fn two_minutes_of_the_readme() {
    run("README.md");
}

#[test]
fn a_fan_out_over_files() {
    run("examples/fan-out/README.md");
}

#[test]
fn a_chord() {
    run("examples/chord/README.md");
}

#[test]
fn a_person_approves() {
    run("examples/approval/README.md");
}

#[test]
fn a_saga_over_a_diamond() {
    run("examples/diamond-saga/README.md");
}

#[test]
fn a_fleet_update_by_child_tasks() {
    run("examples/fleet-update/README.md");
}

#[test]
fn a_real_postgres_instance() {
    if Postgres::is_installed().unwrap() {
        run("examples/postgres-instance/README.md");
    }
}

#[test]
fn tasks_by_sql_with_postgresql() {
    let Some(server) = Postgres::shared().unwrap() else { return };
    let database = server.database().unwrap();
    let url = database.url();
    run_parts("docs/reference/sql.md", &["PostgreSQL", "What is refused"], &on_postgres(&url));
}

#[test]
fn tasks_by_sql_with_mariadb() {
    let Some(server) = MariaDb::shared().unwrap() else { return };
    let database = server.database().unwrap();
    let (url, port, name) = (database.url(), server.port(), database.name());
    let connection = format!("--protocol=tcp --host=127.0.0.1 --port={port} --user=root --database={name}");
    let variables = [("WINDLASS_SERVER_STORE", &*url), ("CONNECTION", &*connection)];
    run_parts("docs/reference/sql.md", &["MariaDB and MySQL"], &variables);
}

#[test]
fn orders_and_their_tasks_in_one_transaction() {
    let Some(server) = Postgres::shared().unwrap() else { return };
    let database = server.database().unwrap();
    let url = database.url();
    run_parts("examples/transactional-enqueue/README.md", &[], &on_postgres(&url));
}

#[test]
fn modules_that_know_their_broker_alone() {
    let Some(server) = Redis::start().unwrap() else { return };
    let Some(path) = path_to_others(&["/usr/bin/python3 -c 'import redis'", "go version"]) else { return };
    run_parts("examples/classic-modules/README.md", &[], &[("BROKER", &server.url()), ("PATH", &path)]);
}

#[test]
fn modules_that_know_rabbitmq_alone() {
    let Some(server) = RabbitMq::shared().unwrap() else { return };
    let Some(path) = path_to_others(&["/usr/bin/python3 -c 'import pika'"]) else { return };
    run_parts("examples/classic-modules/rabbitmq.md", &[], &[("BROKER", &server.url()), ("PATH", &path)]);
}

/// A path on which Debian's Python comes first, for that has the packages; none where not all of these commands succeed.
/// Where `CI` is set they must.
fn path_to_others(commands: &[&str]) -> Option<String> {
    let works = |command: &&&str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).stdout(Stdio::null()).stderr(Stdio::null());
        shell.status().expect("a shell").success()
    };
    if let Some(missing) = commands.iter().find(|command| !works(command)) {
        assert!(std::env::var_os("CI").is_none_or(|value| value.is_empty()), "it does not work: {missing}");
        return None;
    }
    let programs = Path::new(PROGRAM).parent().expect("a folder").display();
    Some(format!("{programs}:/usr/bin:{}", std::env::var("PATH").unwrap_or_default()))
}

fn on_postgres(url: &str) -> [(&'static str, &str); 2] {
    [("WINDLASS_SERVER_STORE", url), ("DATABASE", url)]
}

/// Runs the blocks of a page; those of an example run in a copy of its folder.
fn run(page: &str) {
    run_parts(page, &[], &[]);
}

/// Runs the blocks under these headings, or all of them, with these variables.
fn run_parts(page: &str, headings: &[&str], variables: &[(&str, &str)]) {
    let page_path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    let text = fs::read_to_string(&page_path).expect(page);
    let mut blocks = blocks(&text);
    blocks.retain(|block| headings.is_empty() || headings.contains(&&*block.heading));
    assert!(!blocks.is_empty(), "{page} has no commands");
    let mut shell = Shell::start(variables);
    if page.starts_with("examples/") {
        copy(page_path.parent().expect("a folder"), shell.folder.path());
    }
    let mut servers = Vec::new();
    for block in &blocks {
        let place = format!("{page}:{}", block.line);
        if let Some(server) = block.server() {
            servers.push(shell.start_server(&server));
            continue;
        }
        let printed = shell.run(&block.script, &place);
        if let Some(expected) = &block.expected
            && let Err(missing) = matches(expected, &printed)
        {
            panic!("{place}: expected {missing:?} in what it printed:\n{printed}");
        }
    }
}

/// Copies what is in a folder, with its permissions.
fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let copied = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            fs::create_dir(&copied).expect("create a folder");
            copy(&entry.path(), &copied);
        } else {
            fs::copy(entry.path(), &copied).expect("copy a file");
        }
    }
}

/// Commands of a page.
struct Block {
    line: usize,
    /// What it stands under.
    heading: String,
    script: String,
    /// What they print.
    expected: Option<String>,
}

impl Block {
    /// The arguments of the server that this block starts, if it starts one.
    fn server(&self) -> Option<Vec<&str>> {
        let words: Vec<&str> = self.script.split_whitespace().collect();
        let starts =
            matches!(words[..], ["windlass", "server" | "dev", ..]) && self.script.lines().count() == 1;
        starts.then(|| words[1..].to_vec())
    }
}

/// The `sh` blocks of a page, each with the `json` or `text` block that follows it.
fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut lines = text.lines().enumerate();
    let mut heading = String::new();
    while let Some((index, line)) = lines.next() {
        if let Some(begun) = line.strip_prefix("## ") {
            heading = begun.to_owned();
        }
        let Some(language) = line.strip_prefix("```") else { continue };
        let body = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```");
        let body = body.fold(String::new(), |text, line| text + line + "\n");
        match (language, blocks.last_mut()) {
            ("sh", _) => {
                blocks.push(Block { line: index + 1, heading: heading.clone(), script: body, expected: None })
            }
            ("json" | "text", Some(block)) if block.expected.is_none() => block.expected = Some(body),
            _ => {}
        }
    }
    blocks
}

/// Whether `printed` is as `expected` says; else the part of it that was not found.
fn matches(expected: &str, printed: &str) -> Result<(), String> {
    let squeeze = |text: &str| text.split_whitespace().collect::<String>();
    let (expected, printed) = (squeeze(expected), squeeze(printed));
    let mut rest = printed.as_str();
    let mut parts = expected.split('…').peekable();
    if let Some(first) = parts.next() {
        rest = rest.strip_prefix(first).ok_or(first)?;
        if parts.peek().is_none() && !rest.is_empty() {
            return Err(format!("nothing after {first}"));
        }
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return if rest.ends_with(part) { Ok(()) } else { Err(part.to_owned()) };
        }
        rest = &rest[rest.find(part).ok_or(part)? + part.len()..];
    }
    Ok(())
}

/// One shell in a folder of its own, with the program on its path and an address for a server of its own.
struct Shell {
    folder: TempDir,
    address: SocketAddr,
    path: std::ffi::OsString,
    variables: Vec<(String, String)>,
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
    blocks: usize,
}

impl Shell {
    fn start(variables: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("temporary folder");
        // Nobody else takes the port in the moment between here and the server's start, as good as surely.
        let address =
            TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
        let programs = PathBuf::from(PROGRAM).parent().expect("a folder").to_owned();
        let inherited = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths([programs].into_iter().chain(std::env::split_paths(&inherited)))
            .expect("a path");
        let mut child = Command::new("sh")
            .arg("-eu")
            .current_dir(folder.path())
            .env("PATH", &path)
            .env("WINDLASS_SERVER", format!("http://{address}"))
            .envs(variables.iter().copied())
            // So that what it starts beside itself ends with it.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let stdin = child.stdin.take().expect("stdin");
        let stdout = BufReader::new(child.stdout.take().expect("stdout"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let variables = variables.iter().map(own).collect();
        let mut shell = Self { folder, address, path, variables, child, stdin, lines, blocks: 0 };
        shell.say("exec 2>&1");
        shell
    }

    fn say(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").expect("the shell lives");
    }

    /// Runs a block to its end. Gives what it printed.
    fn run(&mut self, script: &str, place: &str) -> String {
        const END: &str = "--- end of the block";
        self.blocks += 1;
        let file = format!("block-{}.sh", self.blocks);
        fs::write(self.folder.path().join(&file), script).expect("write the block");
        self.say(&format!(". ./{file} </dev/null; echo '{END}'"));
        let until = Instant::now() + BLOCK_TIME_MAX;
        let mut printed = String::new();
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) if line == END => return printed,
                Ok(line) => writeln!(printed, "{line}").expect("memory"),
                Err(RecvTimeoutError::Timeout) => panic!("{place}: it does not end:\n{printed}"),
                Err(RecvTimeoutError::Disconnected) => panic!("{place}: a command failed:\n{printed}"),
            }
        }
    }

    /// Starts a server at the address that the shell's commands call, and waits until it can be used.
    fn start_server(&self, arguments: &[&str]) -> Server {
        let child = Command::new(PROGRAM)
            .args(arguments)
            .current_dir(self.folder.path())
            .env("PATH", &self.path)
            .env("WINDLASS_SERVER_LISTEN", self.address.to_string())
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdout(Stdio::null())
            .spawn()
            .expect("the program");
        let mut server = Server(child);
        let until = Instant::now() + BLOCK_TIME_MAX;
        while !self.is_usable(arguments.contains(&"--flows")) {
            let ended = server.0.try_wait().expect("the server");
            assert!(ended.is_none() && Instant::now() < until, "the server does not start: {ended:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    /// Whether the server is ready, with flows where it is to apply some.
    fn is_usable(&self, with_flows: bool) -> bool {
        let ready = get(self.address, "/readyz").is_some_and(|answer| answer.starts_with("HTTP/1.1 200"));
        ready
            && (!with_flows
                || get(self.address, "/v1/flows").is_some_and(|answer| answer.contains("\"version\"")))
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // It may have ended by itself.
        if let Some(group) = Pid::from_raw(self.child.id().cast_signed()) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
        stop_instances(&self.folder.path().join("data/instances"));
    }
}

/// Stops what `examples/postgres-instance` has made: it outlives the worker on purpose, but no page that has failed.
fn stop_instances(folder: &Path) {
    for instance in fs::read_dir(folder).into_iter().flatten().flatten() {
        let running = fs::read_to_string(instance.path().join("data/postmaster.pid")).unwrap_or_default();
        let pid = running.lines().next().and_then(|pid| Pid::from_raw(pid.parse().ok()?));
        let Some(pid) = pid else { continue };
        // It may have ended by itself.
        let _ = kill_process(pid, Signal::QUIT);
        let until = Instant::now() + BLOCK_TIME_MAX;
        while test_kill_process(pid).is_ok() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The answer to a GET request, head and all.
fn get(address: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(BLOCK_TIME_MAX)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

#[test]
fn expected_texts_are_compared_as_pages_show_them() {
    assert_eq!(matches("{ \"a\": 1 }", "{\"a\":1}\n"), Ok(()));
    assert_eq!(matches("{ \"a\": … }", "{\"a\":{\"b\":2}}"), Ok(()));
    assert_eq!(matches("a … b … c", "a1b2b3c"), Ok(()));
    assert!(matches("{ \"a\": 1 }", "{\"a\":1,\"b\":2}").is_err(), "more than expected");
    assert!(matches("a … b … c", "a1c").is_err(), "something is missing");
    assert!(matches("a … c", "a1cd").is_err(), "more at the end");
}

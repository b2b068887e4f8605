//! The shell that runs a page's commands, and the servers beside it.

use std::{
    ffi::OsString,
    fmt::Write as _,
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process};
use tempfile::TempDir;
use windlass_testkit::free_port;

use super::PROGRAM;

/// Far more than any block takes, also one that compiles all that a module in Go needs.
const BLOCK_TIME_MAX: Duration = Duration::from_secs(180);

/// One shell in a folder of its own, with the program on its path and an address for a server of its own.
pub(super) struct Shell {
    pub(super) folder: TempDir,
    address: SocketAddr,
    path: OsString,
    variables: Vec<(String, String)>,
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
    blocks: usize,
}

impl Shell {
    pub(super) fn start(variables: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("temporary folder");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port().expect("a port")));
        let programs = PathBuf::from(PROGRAM).parent().expect("a folder").to_owned();
        let inherited = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths([programs].into_iter().chain(std::env::split_paths(&inherited)))
            .expect("a path");
        let mut child = Command::new("sh")
            .arg("-eu")
            .current_dir(folder.path())
            .env("PATH", &path)
            .env("WINDLASS_SERVER", format!("http://{address}"))
            // For pages that start a server of their own beside the shell.
            .env("WINDLASS_SERVER_LISTEN", address.to_string())
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
    pub(super) fn run(&mut self, script: &str, place: &str) -> String {
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
    pub(super) fn start_server(&self, arguments: &[&str]) -> Server {
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

pub(super) struct Server(Child);

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

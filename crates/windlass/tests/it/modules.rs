//! Commands of a module folder as real processes: what they get, how they end, and what they leave behind.

mod confined;

use std::fs;
use std::future::{Future, pending};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use tempfile::TempDir;
use windlass::modules::{Catalogue, EXEC_COMMAND, GUARD_COMMAND, Runner, TERM_GRACE};
use windlass_api::Attempt;
use windlass_client::{Failure, Outcome};

use crate::site::{PROGRAM, has_handlers};

/// Names the folder for the process that `drive` is run in; unset in an ordinary run of the tests.
const DRIVE: &str = "WINDLASS_TEST_DRIVE";

/// Far more than anything here takes, far less than the sleeps that must not be waited for.
const SOON: Duration = Duration::from_secs(20);

/// Signals that do not end a guard.
const STOPS: [Signal; 3] = [Signal::TERM, Signal::INT, Signal::HUP];

/// A module folder with one module, `m`.
struct Folder(TempDir);

impl Folder {
    fn new(command: &str, script: &str) -> Self {
        let folder = Self(tempfile::tempdir().expect("temporary folder"));
        fs::create_dir(folder.path("m")).expect("module folder");
        let path = folder.path("m").join(command);
        fs::write(&path, script).expect("write the command");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("make it executable");
        folder
    }

    fn sh(script: &str) -> Self {
        Self::new("run", &format!("#!/bin/sh\n{script}\n"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn runner(&self) -> Runner {
        Runner::new(Catalogue::read(self.0.path()).expect("readable"), PROGRAM.into())
            .expect("starts its guard")
    }

    /// Waits for a line that a command writes to a file of its module.
    fn wait_for(&self, file: &str) -> String {
        let path = self.path("m").join(file);
        wait_until(&format!("{} is written", path.display()), || {
            fs::read_to_string(&path)
                .ok()
                .filter(|text| text.ends_with('\n'))
                .map(|text| text.trim().to_owned())
        })
    }

    fn pid(&self, file: &str) -> Pid {
        Pid::from_raw(self.wait_for(file).parse().expect("a process id")).expect("not 0")
    }
}

/// How an attempt ended and what it logged.
struct Run {
    outcome: Outcome,
    lines: Vec<String>,
    took: Duration,
}

impl Run {
    fn of(folder: &Folder) -> Self {
        Self::with(folder, &attempt("run", "{}"), pending())
    }

    fn with(folder: &Folder, attempt: &Attempt, stop: impl Future<Output = ()>) -> Self {
        let mut lines = Vec::new();
        let start = Instant::now();
        let runner = folder.runner();
        let outcome = block_on(runner.run_attempt(attempt, stop, &mut |line| lines.push(line)));
        Self { outcome, lines, took: start.elapsed() }
    }

    #[track_caller]
    fn result(&self) -> serde_json::Value {
        match &self.outcome {
            Outcome::Succeeded(Some(result)) => serde_json::from_str(result.get()).expect("JSON"),
            other => panic!("no result: {other:?}"),
        }
    }

    #[track_caller]
    fn failure(&self) -> &Failure {
        match &self.outcome {
            Outcome::Failed(failure) => failure,
            other => panic!("no failure: {other:?}"),
        }
    }
}

fn attempt(command: &str, params: &str) -> Attempt {
    let text = format!(
        r#"{{"token": "the-token", "task": "t1", "flow": "f", "step": "s1", "cursor": 0, "direction": "forward",
            "attempt": 2, "module": "m", "command": "{command}", "params": {params}, "timeout_ms": 60000,
            "idempotency_key": "t1/s1/forward"}}"#
    );
    serde_json::from_str(&text).expect("an attempt")
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime").block_on(future)
}

fn wait_until<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = check() {
            return value;
        }
        assert!(start.elapsed() < SOON, "{what}: not after {SOON:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A process that has ended but was not waited for by its parent counts as gone: it runs no more.
fn is_running(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

#[track_caller]
fn assert_ends(pid: Pid, what: &str) {
    wait_until(&format!("{what} has ended"), || (!is_running(pid)).then_some(()));
}

#[test]
fn a_command_is_told_its_attempt_and_returns_its_result() {
    let folder = Folder::sh(
        r#"read -r document
        echo "one line" >&2
        printf '{"document": %s, "task": "%s", "step": "%s", "attempt": "%s", "token": "%s", "key": "%s", "pwd": "%s"}' \
            "$document" "$WINDLASS_TASK" "$WINDLASS_STEP" "$WINDLASS_ATTEMPT" "$WINDLASS_ATTEMPT_TOKEN" \
            "$WINDLASS_IDEMPOTENCY_KEY" "$(pwd)""#,
    );
    let run = Run::with(&folder, &attempt("run", r#"{"size": 12345678901234567890}"#), pending());
    let expected = serde_json::json!({
        "document": {
            "params": {"size": 12345678901234567890_u64}, "task": "t1", "step": "s1", "attempt": 2,
            "direction": "forward", "idempotency_key": "t1/s1/forward",
        },
        "task": "t1", "step": "s1", "attempt": "2", "token": "the-token", "key": "t1/s1/forward",
        "pwd": folder.path("m").canonicalize().expect("exists"),
    });
    assert_eq!(run.result(), expected);
    assert_eq!(run.lines, ["one line"]);
}

#[test]
fn a_rollback_is_told_the_error_and_the_result_of_the_step() {
    let folder = Folder::sh("cat");
    let mut attempt = attempt("run", "{}");
    attempt.direction = windlass_api::Direction::Rollback;
    attempt.error = Some("the disk is full".into());
    attempt.result = serde_json::from_str(r#"{"path": "/data"}"#).ok();
    let document = Run::with(&folder, &attempt, pending()).result();
    assert_eq!(document["direction"], "rollback");
    assert_eq!(document["error"], "the disk is full");
    assert_eq!(document["result"]["path"], "/data");
}

#[test]
fn a_command_may_ignore_what_it_is_told() {
    let params = format!(r#"{{"long": "{}"}}"#, "x".repeat(1024 * 1024));
    let run = Run::with(&Folder::sh("exit 0"), &attempt("run", &params), pending());
    assert!(matches!(run.outcome, Outcome::Succeeded(None)), "{:?}", run.outcome);
}

#[test]
fn exit_75_is_for_another_time() {
    match Run::of(&Folder::sh("echo 'the peer is busy' >&2; exit 75")).outcome {
        Outcome::RetryLater { delay: None, message } => {
            assert_eq!(message.as_deref(), Some("the peer is busy"))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn exit_65_is_final_and_other_codes_may_be_tried_again() {
    let run = Run::of(&Folder::sh("echo first >&2; echo 'no such size' >&2; exit 65"));
    assert_eq!(run.failure(), &Failure { message: "no such size".into(), code: 65, retryable: false });
    assert_eq!(run.lines, ["first", "no such size"]);
    let run = Run::of(&Folder::sh("printf 'last words without a line end' >&2; exit 7"));
    assert_eq!(
        run.failure(),
        &Failure { message: "last words without a line end".into(), code: 7, retryable: true }
    );
    let run = Run::of(&Folder::sh("echo '{}'; exit 1"));
    assert_eq!(
        run.failure(),
        &Failure { message: "the command exited with code 1".into(), code: 1, retryable: true }
    );
}

#[test]
fn death_by_a_signal_has_its_code() {
    let run = Run::of(&Folder::sh("echo 'about to fall' >&2; kill -SEGV $$"));
    let failure = run.failure();
    assert_eq!((failure.code, failure.retryable), (128 + 11, true));
    assert_eq!(
        failure.message,
        "the command was killed by signal 11 (SIGSEGV); its last line: about to fall"
    );
}

#[test]
fn output_that_is_no_object_may_be_tried_again() {
    for (printed, shown) in
        [("[1]", "[1]"), ("{\"a\":", "{\\\"a\\\":"), ("all done!", "all done!"), ("{}{}", "{}{}")]
    {
        let run = Run::of(&Folder::sh(&format!("printf '%s' '{printed}'")));
        let failure = run.failure();
        assert_eq!((failure.code, failure.retryable), (1, true), "{printed}");
        assert!(failure.message.contains(shown), "{}", failure.message);
    }
    let run = Run::of(&Folder::sh(r"printf '\377\376'"));
    assert!(run.failure().message.contains("is not UTF-8"), "{:?}", run.outcome);
}

#[test]
fn endless_output_is_stopped() {
    let run = Run::of(&Folder::sh("yes"));
    let failure = run.failure();
    assert!(failure.message.contains("more than 8 MiB"), "{}", failure.message);
    assert!(!failure.retryable);
    assert!(run.took < SOON, "{:?}", run.took);
}

#[test]
fn a_result_above_the_limit_is_final() {
    let run = Run::of(&Folder::sh(r#"printf '{"a":"%0300000d"}' 1"#));
    let failure = run.failure();
    assert!(
        failure.message.contains("300008 bytes on stdout: the limit of a result is 256 KiB"),
        "{}",
        failure.message
    );
    assert!(!failure.retryable);
}

#[test]
fn what_a_command_leaves_behind_is_killed_and_not_waited_for() {
    let folder = Folder::sh("sleep 600 & echo $! >pid; echo '{\"done\": true}'");
    let run = Run::of(&folder);
    assert_eq!(run.result()["done"], true);
    assert!(run.took < SOON, "{:?}", run.took);
    assert_ends(folder.pid("pid"), "the sleep");
}

#[test]
fn a_pipe_held_open_from_outside_the_group_is_not_waited_for() {
    let folder =
        Folder::sh("setsid sh -c 'echo $$ >pid; exec sleep 600' & until test -s pid; do :; done; echo '{}'");
    let run = Run::of(&folder);
    // It left on purpose, so it is this test's to end.
    rustix::process::kill_process(folder.pid("pid"), Signal::KILL).expect("still runs");
    assert_eq!(run.result(), serde_json::json!({}));
    assert!(run.took < SOON, "{:?}", run.took);
}

#[test]
fn a_stop_lets_a_command_end_in_order() {
    let folder = Folder::sh("trap 'echo cleaned up >&2; exit 3' TERM; sleep 600 & echo $! >pid; wait");
    let run = Run::with(&folder, &attempt("run", "{}"), async { drop(tokio_wait(&folder, "pid").await) });
    assert_eq!(run.failure(), &Failure { message: "cleaned up".into(), code: 3, retryable: true });
    assert!(run.took < TERM_GRACE, "{:?}", run.took);
    assert_ends(folder.pid("pid"), "its child");
}

#[test]
fn a_command_that_will_not_stop_is_killed_with_its_children() {
    let folder =
        Folder::sh("trap '' TERM; sh -c 'trap \"\" TERM; echo $$ >pid; while :; do sleep 1; done' & wait");
    let run = Run::with(&folder, &attempt("run", "{}"), async { drop(tokio_wait(&folder, "pid").await) });
    let failure = run.failure();
    assert_eq!(failure.code, 128 + 9);
    assert!(failure.message.contains("was stopped by signal 9"), "{}", failure.message);
    assert!(run.took >= TERM_GRACE && run.took < TERM_GRACE + SOON, "{:?}", run.took);
    assert_ends(folder.pid("pid"), "its child");
}

#[test]
fn an_attempt_that_is_dropped_is_killed() {
    let folder = Folder::sh("sleep 600 & echo $! >child; echo $$ >pid; wait");
    let runner = folder.runner();
    let attempt = attempt("run", "{}");
    block_on(async {
        let mut log = |_| {};
        tokio::select! {
            outcome = runner.run_attempt(&attempt, pending(), &mut log) => panic!("{outcome:?}"),
            _ = tokio_wait(&folder, "pid") => {}
        }
    });
    assert_ends(folder.pid("pid"), "the command");
    assert_ends(folder.pid("child"), "its child");
}

async fn tokio_wait(folder: &Folder, file: &str) -> Vec<u8> {
    loop {
        match fs::read(folder.path("m").join(file)) {
            Ok(bytes) if bytes.ends_with(b"\n") => return bytes,
            _ => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

#[test]
fn a_name_that_walks_out_of_the_folder_is_refused() {
    let folder = Folder::sh("exit 0");
    fs::copy("/bin/sh", folder.path("outside")).expect("an executable outside of the module");
    for name in ["../outside", "../m/run", "/bin/sh", "./run", ".."] {
        let run = Run::with(&folder, &attempt(name, "{}"), pending());
        let failure = run.failure();
        assert_eq!((failure.code, failure.retryable), (127, false), "{name}");
        assert!(failure.message.contains(&format!("no command `m.{name}`")), "{}", failure.message);
    }
}

#[test]
fn a_command_that_cannot_be_started_says_why() {
    let run = Run::of(&Folder::new("run", "#!/no/such/interpreter\n"));
    let failure = run.failure();
    assert_eq!((failure.code, failure.retryable), (126, true));
    assert!(failure.message.contains("m/run: No such file or directory"), "{}", failure.message);
    assert!(failure.message.contains("interpreter"), "{}", failure.message);
}

/// Not a test of its own: run as a process by the tests below, it is a worker that they can kill.
#[test]
fn drive() {
    let Some(folder) = std::env::var_os(DRIVE) else { return };
    let runner =
        Runner::new(Catalogue::read(Path::new(&folder)).expect("readable"), PROGRAM.into()).expect("starts");
    let attempt = attempt("run", "{}");
    block_on(runner.run_attempt(&attempt, pending(), &mut |_| {}));
}

/// A worker that is a process of its own and runs `m.run` of this folder.
fn drive_in(folder: &Folder) -> Child {
    let mut worker = Command::new(std::env::current_exe().expect("this program"));
    worker.args(["--exact", "modules::drive", "--nocapture"]).env(DRIVE, folder.0.path());
    worker.env("WINDLASS_TOKEN", "our-secret").env("WINDLASS_SERVER", "http://127.0.0.1:7700");
    worker.stdout(Stdio::null()).spawn().expect("starts")
}

/// A command with a child and a grandchild, under a worker that is a process of its own.
fn driven() -> (Folder, Child, [Pid; 3]) {
    let folder = Folder::sh(
        "env >variables
        sh -c 'sleep 600 & echo $! >grandchild; wait' & echo $! >child
        echo $$ >command; trap '' TERM; wait",
    );
    let worker = drive_in(&folder);
    let pids = ["command", "child", "grandchild"].map(|file| folder.pid(file));
    (folder, worker, pids)
}

fn kill(worker: &mut Child) {
    worker.kill().expect("still runs");
    worker.wait().expect("ended");
}

/// The guards that a worker has started and that run.
fn guards(worker: &Child) -> Vec<Pid> {
    let parent = format!("PPid:\t{}\n", worker.id());
    let processes = fs::read_dir("/proc").expect("readable").flatten();
    let mut guards = Vec::new();
    for process in processes {
        let read = |file: &str| fs::read_to_string(process.path().join(file)).unwrap_or_default();
        if read("cmdline").contains(GUARD_COMMAND) && read("status").contains(&parent) {
            let pid = process.file_name().to_str().and_then(|name| name.parse().ok());
            guards.extend(pid.and_then(Pid::from_raw).filter(|pid| is_running(*pid)));
        }
    }
    guards
}

#[test]
fn a_killed_worker_takes_its_commands_along() {
    let (folder, mut worker, pids) = driven();
    let guard = guards(&worker);
    assert!(pids.into_iter().all(is_running), "they run while the worker does");
    kill(&mut worker);
    for (pid, what) in pids.into_iter().zip(["the command", "its child", "its grandchild"]) {
        assert_ends(pid, what);
    }
    for guard in guard {
        assert_ends(guard, "the guard");
    }
    let variables = fs::read_to_string(folder.path("m").join("variables")).expect("written");
    assert!(!variables.contains("our-secret"), "{variables}");
    assert!(variables.contains("WINDLASS_SERVER=http://127.0.0.1:7700"), "{variables}");
}

#[test]
fn a_guard_that_dies_has_a_successor() {
    let (_folder, mut worker, pids) = driven();
    let first = guards(&worker);
    assert_eq!(first.len(), 1, "one guard per worker");
    rustix::process::kill_process(first[0], Signal::KILL).expect("runs");
    let second =
        wait_until("another guard is there", || guards(&worker).into_iter().find(|pid| *pid != first[0]));
    // By then it has long known the groups: they are written to it as soon as it is started.
    wait_until("it has its handlers", || has_handlers(second, &STOPS).then_some(()));
    assert!(pids.into_iter().all(is_running), "a guard's death is not a worker's death");
    kill(&mut worker);
    for pid in pids {
        assert_ends(pid, "what the worker has started");
    }
}

#[test]
fn the_guard_outlives_the_signals_that_end_a_worker() {
    let mut sleep = Command::new("sleep").arg("600").process_group(0).spawn().expect("starts");
    let mut ended = Command::new("sleep").arg("600").process_group(0).spawn().expect("starts");
    let mut guard = Command::new(PROGRAM).arg(GUARD_COMMAND).stdin(Stdio::piped()).spawn().expect("starts");
    let mut stdin = guard.stdin.take().expect("piped");
    writeln!(stdin, "+{}\n+{}\n-{}", sleep.id(), ended.id(), ended.id()).expect("listens");
    let pid = Pid::from_child(&guard);
    wait_until("the guard has its handlers", || has_handlers(pid, &STOPS).then_some(()));
    for signal in STOPS {
        rustix::process::kill_process(pid, signal).expect("runs");
    }
    assert!(guard.try_wait().expect("known").is_none(), "no signal ends it");
    drop(stdin);
    assert!(guard.wait().expect("ends").success());
    assert_ends(Pid::from_child(&sleep), "what was listed");
    assert!(is_running(Pid::from_child(&ended)), "what had been taken off the list is left alone");
    sleep.wait().expect("ended");
    kill(&mut ended);
}

#[test]
fn the_stub_starts_nothing_for_a_worker_that_is_gone() {
    let folder = Folder::sh("echo ran >ran");
    let command = folder.path("m").join("run");
    // Process 1 is never the parent of a test.
    let mut stub = Command::new(PROGRAM);
    stub.arg(EXEC_COMMAND).arg("1").arg("").arg(&command).current_dir(folder.path("m"));
    let mut stub = stub.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("starts");
    let mut line = String::new();
    BufReader::new(stub.stderr.take().expect("piped")).read_line(&mut line).expect("says why");
    assert!(line.contains("is gone"), "{line}");
    assert_eq!(stub.wait().expect("ends").code(), Some(126));
    assert!(!folder.path("m").join("ran").exists());
}

//! `windlass demo` as a process: it comes to its end, keeps its folder and leaves no process behind.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

fn demo(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    // It must not go to a server that the user has elsewhere.
    command.arg("demo").env("TMPDIR", folder).env("WINDLASS_SERVER", "http://127.0.0.1:9");
    command
}

/// Processes that work in a folder.
fn processes_in(folder: &Path) -> Vec<String> {
    let folder = folder.canonicalize().expect("exists");
    let processes = fs::read_dir("/proc").expect("readable").flatten().map(|entry| entry.path());
    processes
        .filter(|process| fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.starts_with(&folder)))
        .map(|process| fs::read_to_string(process.join("cmdline")).unwrap_or_default())
        .collect()
}

#[test]
fn the_demo_tells_its_story() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let output = demo(folder.path()).output().expect("starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for part in
        ["has succeeded", "rolled back by mysql.clean_instance", "killed worker-1 with SIGKILL", "2 attempts"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let kept =
        fs::read_dir(folder.path()).expect("readable").next().expect("its folder").expect("readable").path();
    assert!(kept.join("instances/archive/my.cnf").is_file());
    assert!(kept.join("windlass.db").is_file());
    until_nothing_runs(folder.path());
}

#[test]
fn an_interrupted_demo_ends_its_processes() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let output = end_halfway(folder.path(), Signal::INT);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("SIGINT"), "{error}");
    until_nothing_runs(folder.path());
}

#[test]
fn a_killed_demo_leaves_no_process_behind() {
    let folder = tempfile::tempdir().expect("temporary folder");
    end_halfway(folder.path(), Signal::KILL);
    until_nothing_runs(folder.path());
}

/// Runs the demo until its second task, when server, worker and commands are there, and sends it a signal.
fn end_halfway(folder: &Path, signal: Signal) -> Output {
    let mut demo = demo(folder).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let mut stdout = demo.stdout.take().expect("piped");
    let (mut text, mut chunk) = (String::new(), [0; 1024]);
    while !text.contains("2. A task") {
        let length = stdout.read(&mut chunk).expect("readable");
        assert!(length > 0, "it ended early: {text}");
        text.push_str(&String::from_utf8_lossy(&chunk[..length]));
    }
    assert!(!processes_in(folder).is_empty());
    rustix::process::kill_process(Pid::from_child(&demo), signal).expect("runs");
    demo.wait_with_output().expect("ends")
}

/// A guard ends just after the process that it is for.
fn until_nothing_runs(folder: &Path) {
    let start = Instant::now();
    while !processes_in(folder).is_empty() {
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", processes_in(folder));
        std::thread::sleep(Duration::from_millis(5));
    }
}

//! `windlass demo` as a process: it comes to its end, keeps its folder and leaves no process behind.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
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
        ["has succeeded", "undone by mysql.clean_instance", "killed worker-1 with SIGKILL", "2 attempts"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let kept =
        fs::read_dir(folder.path()).expect("readable").next().expect("its folder").expect("readable").path();
    assert!(kept.join("instances/archive/my.cnf").is_file());
    assert!(kept.join("windlass.db").is_file());
    assert_eq!(processes_in(folder.path()), Vec::<String>::new());
}

#[test]
fn an_interrupted_demo_ends_its_processes() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut demo = demo(folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let mut stdout = demo.stdout.take().expect("piped");
    let (mut text, mut chunk) = (String::new(), [0; 1024]);
    // The second task runs: server, worker and commands are there.
    while !text.contains("2. A task") {
        let length = stdout.read(&mut chunk).expect("readable");
        assert!(length > 0, "it ended early: {text}");
        text.push_str(&String::from_utf8_lossy(&chunk[..length]));
    }
    assert!(!processes_in(folder.path()).is_empty());
    rustix::process::kill_process(Pid::from_child(&demo), Signal::INT).expect("runs");
    let output = demo.wait_with_output().expect("ends");
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("SIGINT"), "{error}");
    // The guard of the worker's commands ends just after the worker.
    let start = Instant::now();
    while !processes_in(folder.path()).is_empty() {
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", processes_in(folder.path()));
        std::thread::sleep(Duration::from_millis(5));
    }
}

//! What a command cannot do: outlive its attempt by leaving its process group, and read its worker's secrets.

use super::*;
use crate::site::{Site, script, text, until};

/// A command that starts a process in a session of its own, notes the numbers of both, and then does `rest`.
fn leaving(rest: &str) -> Folder {
    Folder::sh(&format!(
        "cat /proc/self/cgroup >cgroup
        setsid sh -c 'echo $$ >left.new; mv left.new left; exec sleep 600' >&- 2>&- <&- &
        while ! test -e left; do sleep 0.01; done
        echo $$ >command
        {rest}"
    ))
}

/// Whether the command was in a control group of its own. Where it cannot be, the test says so and ends.
fn is_confined(folder: &Folder) -> bool {
    let own = fs::read_to_string(folder.path("m").join("cgroup")).expect("written");
    let confined = own.lines().any(|line| line.starts_with("0::") && line.contains("/windlass-worker-"));
    if !confined {
        assert!(std::env::var_os("CI").is_none(), "no control groups here: {own}");
        eprintln!("skipped: this process may not make control groups (version 2); run the tests as root");
    }
    confined
}

#[test]
fn what_left_its_group_dies_with_a_killed_worker() {
    let folder = leaving("sleep 600");
    let mut worker = drive_in(&folder);
    let (command, left) = (folder.pid("command"), folder.pid("left"));
    assert!(is_running(command) && is_running(left));
    kill(&mut worker);
    assert_ends(command, "the command");
    if is_confined(&folder) {
        assert_ends(left, "what it started with setsid");
    }
}

#[test]
fn what_left_its_group_dies_with_a_stopped_attempt() {
    let folder = leaving("sleep 600");
    let stop = async {
        drop(
            tokio::task::spawn_blocking({
                let file = folder.path("m").join("command");
                move || wait_until("it runs", || file.exists().then_some(()))
            })
            .await,
        )
    };
    let run = Run::with(&folder, &attempt("run", "{}"), stop);
    assert!(!matches!(run.outcome, Outcome::Succeeded(_)), "{:?}", run.outcome);
    if is_confined(&folder) {
        assert_ends(folder.pid("left"), "what it started with setsid");
    }
}

/// A command may start a service on purpose, such as a database: it lives on after the command, and after the worker.
#[test]
fn a_service_that_an_ended_command_left_lives_on() {
    let folder = leaving("exit 0");
    let run = Run::of(&folder);
    assert!(matches!(run.outcome, Outcome::Succeeded(_)), "{:?}", run.outcome);
    let left = folder.pid("left");
    if is_confined(&folder) {
        let own = || fs::read_to_string(format!("/proc/{left}/cgroup")).unwrap_or_default();
        wait_until("it was moved out of the worker's control group", || {
            (!own().contains("/windlass-worker-")).then_some(())
        });
    }
    assert!(is_running(left), "the service lives on");
    rustix::process::kill_process(left, Signal::KILL).expect("runs");
}

#[test]
fn a_command_cannot_read_the_secrets_of_its_worker() {
    let mut site = Site::start();
    let module = site.dir.path().join("modules/m");
    fs::create_dir_all(&module).expect("module folder");
    // Its own environment, its worker's, and those of all others: the guard is among them. The shell has already split
    // off: its parent is the worker.
    script(
        &module.join("look"),
        "{ cat /proc/$PPID/environ; tr '\\0' '\\n' </proc/self/environ; cat /proc/[0-9]*/environ; } >seen 2>refused
        echo '{}'",
    );
    site.apply("flow: look\nsteps: [{ name: one, run: m.look }]");
    fs::write(site.dir.path().join("token"), "a-secret-in-a-file\n").expect("written");
    // Root may read everything: take away the capabilities with which it does.
    let mut worker = if rustix::process::geteuid().is_root() {
        let mut worker = Command::new("setpriv");
        worker.args(["--bounding-set=-all", "--inh-caps=-all", PROGRAM]);
        worker
    } else {
        Command::new(PROGRAM)
    };
    worker.args(["worker", "--server", &site.url, "--modules", &site.path("modules")]);
    worker.args(["--token-file", &site.path("token")]);
    worker.env("WINDLASS_SERVER_STORE", "postgres://u:a-secret-in-a-variable@127.0.0.1/db");
    site.children.push(worker.stderr(Stdio::null()).spawn().expect("starts"));
    site.start_task_and_wait("look");
    let seen = fs::read(module.join("seen")).expect("written");
    let refused = fs::read_to_string(module.join("refused")).expect("written");
    assert!(refused.contains("Permission denied"), "{refused}");
    let seen = text(&seen);
    assert!(seen.contains("WINDLASS_TASK="), "its own environment was read: {seen}");
    assert!(!seen.contains("a-secret"), "{seen}");
    until("the worker has shown itself", || site.run(&["worker", "list"]).status.success().then_some(()));
}

#[test]
fn a_token_file_that_is_missing_or_empty_is_refused() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let run = |file: &Path| {
        let output =
            Command::new(PROGRAM).args(["task", "list", "--token-file"]).arg(file).output().expect("runs");
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        text(&output.stderr)
    };
    let missing = run(&folder.path().join("missing"));
    assert!(missing.contains("cannot read the token from") && missing.contains("No such file"), "{missing}");
    let empty = folder.path().join("empty");
    fs::write(&empty, "\n").expect("written");
    assert!(run(&empty).contains("is empty: write the token into it"));
}

//! What users read when something is wrong: in words of the shell, with what to do.

use std::{
    io::{BufRead as _, BufReader, Read},
    process::{Command, Output, Stdio},
    sync::mpsc,
};

use super::site::{PATIENCE, PROGRAM, Site, store, text};

/// The lines of a stream as they come.
fn lines(stream: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        let lines = BufReader::new(stream).lines().map_while(Result::ok);
        lines.take_while(|line| sender.send(line.clone()).is_ok()).count()
    });
    lines
}

/// The next of the lines with this text in it; none once the stream has ended.
fn next(lines: &mpsc::Receiver<String>, text: &str) -> Option<String> {
    loop {
        match lines.recv_timeout(PATIENCE) {
            Ok(line) if line.contains(text) => return Some(line),
            Ok(_) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => return None,
            Err(error) => panic!("no line with {text:?}: {error}"),
        }
    }
}

/// Starts a command that waits, as the last child of the site. Gives the lines of its standard output and standard error.
fn start_waiting(site: &mut Site, arguments: &[&str]) -> (mpsc::Receiver<String>, mpsc::Receiver<String>) {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).env("WINDLASS_SERVER", &site.url).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut waiting = command.spawn().unwrap();
    let streams = (lines(waiting.stdout.take().unwrap()), lines(waiting.stderr.take().unwrap()));
    site.children.push(waiting);
    streams
}

/// The standard error of a command that must not go well.
fn refused(output: &Output) -> String {
    assert_ne!(output.status.code(), Some(0), "{output:?}");
    text(&output.stderr)
}

#[test]
fn refusals_name_commands_not_calls() {
    let site = Site::start();
    let id = site.start_task("lonely");
    let nobody = "01a1fbfa-f4ee-7000-8000-2a39d23b42d8";
    for (arguments, said) in [
        (&["alarm", "ack", "a-1"][..], "`windlass alarm list --all`"),
        (&["task", "show", nobody], "`windlass task list`"),
        (&["task", "show", "x"], "`windlass task start`"),
        (&["queue", "show", "x"], "`windlass queue list`"),
        (&["flow", "show", "x"], "`windlass flow apply FILE`"),
        (&["task", "resolve", &id, "one", "skip"], "`windlass task why ID`"),
    ] {
        let error = refused(&site.run(arguments));
        assert!(error.contains(said), "{said}: {error}");
        for call in ["/v1", "GET ", "POST ", "PUT "] {
            assert!(!error.contains(call), "{error}");
        }
    }
}

#[test]
fn a_version_that_is_not_there_gets_those_that_are() {
    let site = Site::start();
    std::fs::write(site.path("more.yaml"), "flow: good\nsteps: [{ name: one, run: m.echo }]\n").unwrap();
    assert_eq!(site.run(&["flow", "apply", &site.path("more.yaml")]).status.code(), Some(0));
    for arguments in [["flow", "show", "good@9"], ["task", "start", "good@9"]] {
        let error = refused(&site.run(&arguments));
        assert!(error.contains("flow good has no version 9: it has 1 to 2"), "{error}");
    }
    let error = refused(&site.run(&["flow", "show", "bad@2"]));
    assert!(error.contains("flow bad has no version 2: it has 1 only"), "{error}");
}

#[test]
fn a_flow_of_a_name_much_like_it_is_suggested() {
    let site = Site::start();
    for arguments in [["task", "start", "goood"], ["flow", "show", "goood"]] {
        let error = refused(&site.run(&arguments));
        assert!(error.contains("there is no flow goood: did you mean good?"), "{error}");
    }
}

#[test]
fn a_change_of_no_task_gets_what_to_write() {
    let site = Site::start();
    let error = refused(&site.run(&["task", "pause", "--yes"]));
    assert!(error.contains("give ids, or a filter with --flow"), "{error}");
}

#[test]
fn resuming_what_is_held_tells_how_to_settle_it() {
    let site = Site::with_worker();
    assert_eq!(site.run(&["task", "start", "held", "--wait"]).status.code(), Some(11));
    let id = site.json(&["task", "list", "--flow", "held"])["items"][0]["id"].as_str().unwrap().to_owned();
    let output = site.run(&["task", "resume", &id]);
    let hint = format!("`windlass task resolve {id} one retry|skip|done|rollback`");
    assert!(text(&output.stderr).contains(&hint), "{output:?}");
}

#[test]
fn an_address_that_is_none_or_taken_gets_a_hint() {
    let site = Site::start();
    for command in ["server", "dev"] {
        let error = refused(&Command::new(PROGRAM).args([command, "--listen", "foo"]).output().unwrap());
        assert!(error.contains("such as 127.0.0.1:7700"), "{error}");
        let taken = site.url.strip_prefix("http://").unwrap();
        let output =
            Command::new(PROGRAM).args([command, "--listen", taken, "--store", "memory:"]).output().unwrap();
        let error = refused(&output);
        assert!(error.contains(taken) && error.contains("hint: ") && error.contains("--listen"), "{error}");
    }
}

#[test]
fn a_command_without_its_server_or_token_names_a_misspelt_variable() {
    let run = |variable: &str| {
        let mut command = Command::new(PROGRAM);
        command.args(["task", "list", "--server", "http://127.0.0.1:9"]).env(variable, "x");
        refused(&command.output().unwrap())
    };
    let said = run("WINDLASS_TOKEN_FIEL");
    assert!(
        said.contains("WINDLASS_TOKEN_FIEL is unknown and ignored: did you mean WINDLASS_TOKEN_FILE?"),
        "{said}"
    );
    assert!(!run("WINDLASS_STEP").contains("WINDLASS_STEP"));
}

#[test]
fn a_number_of_commands_at_once_is_at_least_one() {
    let output =
        Command::new(PROGRAM).args(["worker", "--modules", ".", "--concurrency", "0"]).output().unwrap();
    let error = refused(&output);
    assert!(error.contains("a worker with concurrency 0 runs nothing: use 1 or more"), "{error}");
}

#[test]
fn who_waits_hears_once_that_the_server_is_away() {
    let mut site = Site::start();
    let id = site.start_task("lonely");
    let listen = site.url.strip_prefix("http://").unwrap().to_owned();
    for arguments in [&["task", "watch", &id][..], &["task", "start", "lonely", "--wait"]] {
        let (stdout, stderr) = start_waiting(&mut site, arguments);
        // Its first line says that it waits.
        stdout.recv_timeout(PATIENCE).unwrap();

        site.children[0].kill().unwrap();
        site.children[0].wait().unwrap();
        let line = next(&stderr, "the server").unwrap();
        assert!(line.contains("does not answer") && line.contains("retrying"), "{line}");
        site.children[0] = Command::new(PROGRAM)
            .args(["server", "--listen", &listen, "--store", &store(site.dir.path())])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let line = next(&stderr, "the server").unwrap();
        assert!(line.contains("answers again"), "{line}");

        let unended = site.json(&["task", "list", "--status", "pending"]);
        for task in unended["items"].as_array().unwrap() {
            assert_eq!(site.run(&["task", "cancel", task["id"].as_str().unwrap()]).status.code(), Some(0));
        }
        assert_eq!(next(&stderr, "the server"), None, "each is said once");
        assert_eq!(site.children.pop().unwrap().wait().unwrap().code(), Some(10));
    }
}

#[test]
fn who_waits_reads_once_why_the_task_does_not_move() {
    let mut site = Site::start();
    let (stdout, stderr) = start_waiting(&mut site, &["task", "start", "lonely", "--wait"]);
    let id = stdout.recv_timeout(PATIENCE).unwrap();
    for (waits_for, change) in [("no worker is connected", "pause"), ("The task was paused", "cancel")] {
        let line = stderr.recv_timeout(PATIENCE).unwrap();
        let why = site.json(&["task", "why", &id])["sentence"].as_str().unwrap().to_owned();
        assert!(line.contains(waits_for) && why.contains(waits_for), "{line}\n{why}");
        assert_eq!(site.run(&["task", change, &id]).status.code(), Some(0));
    }
    assert_eq!(stderr.recv_timeout(PATIENCE), Err(mpsc::RecvTimeoutError::Disconnected), "each is said once");
    assert_eq!(site.children.pop().unwrap().wait().unwrap().code(), Some(10));
    assert!(stdout.iter().any(|line| line.starts_with("cancelled")));
}

//! The program's commands against a server and a worker in processes of their own.

use std::process::Command;

use super::site::{PROGRAM, Site, store, text, until};

#[test]
fn waiting_for_a_task_ends_with_what_became_of_it() {
    let site = Site::with_worker();
    for (flow, code) in [("good", 0), ("bad", 10), ("stuck", 11), ("held", 11)] {
        let output = site.run(&["task", "start", flow, "--wait"]);
        assert_eq!(output.status.code(), Some(code), "{flow}: {output:?}");
    }
    let bad = site.json(&["task", "list", "--flow", "bad"])["items"][0]["id"].as_str().unwrap().to_owned();
    let task = site.json(&["task", "show", &bad]);
    assert_eq!(task["status"], "rolled_back");
    assert_eq!(task["message"], "step two failed: no space left");
    assert_eq!(task["steps"][1]["code"], 7);
    assert_eq!(task["result"]["ran"], "one", "results of undos are merged as well, in the order they ran");
    assert!(text(&site.run(&["task", "logs", &bad]).stdout).contains("no space left"));
}

#[test]
fn an_alarm_is_seen_and_a_stuck_step_settled_by_a_person_whose_name_is_kept() {
    let site = Site::with_worker();
    let id = site.start_task("stuck");
    assert_eq!(site.run(&["task", "watch", &id]).status.code(), Some(11));
    // The alarm is raised by a message that the task sends when it becomes stuck.
    let alarm = until("an alarm is raised", || {
        site.json(&["alarm", "list"])["items"][0]["id"].as_str().map(str::to_owned)
    });
    assert_eq!(site.run(&["alarm", "ack", &alarm]).status.code(), Some(0));
    assert_eq!(site.json(&["alarm", "list"])["items"][0]["by"], "ops (claimed)");
    assert_eq!(site.run(&["task", "resolve", &id, "one", "rollback"]).status.code(), Some(4));
    let output = site.run(&["task", "resolve", &id, "one", "skip"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(site.json(&["task", "show", &id])["status"], "rolled_back");
    let events = text(&site.run(&["task", "events", &id]).stdout);
    assert!(events.contains("ops"), "{events}");
}

#[test]
fn a_command_that_nobody_serves_is_accepted_and_why_says_so() {
    let site = Site::start();
    let id = site.start_task("lonely");
    let why = site.json(&["task", "why", &id]);
    assert_eq!(why["reason"], "no_worker");
    assert!(why["sentence"].as_str().unwrap().contains("nobody"), "{why}");
    assert_eq!(site.run(&["task", "cancel", &id]).status.code(), Some(0));
    assert_eq!(site.json(&["task", "show", &id])["status"], "cancelled");
    assert_eq!(site.run(&["task", "cancel", &id]).status.code(), Some(4), "it has ended");
}

#[test]
fn what_is_not_there_and_what_cannot_be_reached_have_codes_of_their_own() {
    let site = Site::start();
    assert_eq!(site.run(&["task", "start", "unknown"]).status.code(), Some(3));
    assert_eq!(site.run(&["task", "show", "01a1fbfa-f4ee-7000-8000-2a39d23b42d8"]).status.code(), Some(3));
    assert_eq!(site.run(&["--server", "http://127.0.0.1:9", "queue", "list"]).status.code(), Some(5));
    std::fs::write(site.path("broken.yaml"), "flow: x\nsteps:\n  - name: a\n    run: m.a\n    tiemout: 5m\n")
        .unwrap();
    let output = site.run(&["flow", "check", &site.path("broken.yaml")]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    assert!(said.contains("broken.yaml:5:5") && said.contains("did you mean `timeout`"), "{said}");
}

#[test]
fn a_second_server_on_the_same_file_is_refused_and_the_first_goes_on() {
    let site = Site::start();
    let store = store(site.dir.path());
    let second = Command::new(PROGRAM)
        .args(["server", "--listen", "127.0.0.1:0", "--store", &store])
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(1));
    let said = text(&second.stderr);
    assert!(said.contains(&site.children[0].id().to_string()), "it names the process that has it: {said}");
    site.start_task("good");
}

#[test]
fn the_doctor_reads_a_store_in_use_and_refuses_what_is_none() {
    let site = Site::start();
    site.start_task("good");
    let found = site.json(&["doctor", "--store", &store(site.dir.path())]);
    assert_eq!((&found["active"], &found["problems"]), (&1.into(), &serde_json::json!([])));
    let output = site.run(&["doctor", "--store", &format!("sqlite:{}", site.path("flows.yaml"))]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("flows.yaml"), "{output:?}");
}

#[test]
fn an_address_that_others_can_reach_must_be_meant() {
    let output = Command::new(PROGRAM)
        .args(["server", "--listen", "0.0.0.0:0", "--store", "memory:"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("--insecure"), "{output:?}");
    let output = Command::new(PROGRAM).args(["server", "--print-config"]).output().unwrap();
    assert_eq!(
        text(&output.stdout),
        "[server]\nlisten = \"127.0.0.1:7700\"\nstore = \"sqlite:windlass.db\"\nkeep_tasks = \"720h\"\nkeep_logs = \"168h\"\nkeep_audit = \"8760h\"\nclient_connections = 2048\nclient_body_mib = 64\nresident_mib = 256\n\n[access]\ntokens = false\n"
    );
}

#[test]
fn a_short_benchmark_counts_what_it_ran() {
    let bench = ["bench", "--workload", "saga3", "--n", "50"];
    let output = Command::new(PROGRAM).args([&bench[..], &["-o", "json"]].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let measured: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&measured["workload"], &measured["n"]), (&"saga3".into(), &50.into()));
    assert_eq!(text(&output.stdout).lines().count(), 1, "one line, so that runs can be appended to a file");
    let output = text(&Command::new(PROGRAM).args(bench).output().unwrap().stdout);
    assert!(output.contains("saga3, 50 tasks") && output.contains("tasks/s"), "{output}");
}

#[test]
fn a_benchmark_refuses_a_store_that_has_tasks() {
    let dir = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", dir.path().join("bench.db").display());
    let bench = ["bench", "--workload", "noop", "--n", "5", "--store", &store];
    let run = || Command::new(PROGRAM).args(bench).output().unwrap();
    let first = run();
    assert_eq!(first.status.code(), Some(0), "{first:?}");
    let second = run();
    assert_eq!(second.status.code(), Some(1), "{second:?}");
    assert!(text(&second.stderr).contains("the store already has tasks"), "{second:?}");
}

#[test]
fn the_doctor_reads_a_database_in_use() {
    let Some(postgres) = windlass_testkit::Postgres::shared().unwrap() else { return };
    let database = postgres.database().unwrap();
    let site = Site::open(tempfile::tempdir().unwrap(), &database.url(), &[]);
    site.apply("flow: lonely\nsteps: [{ name: one, run: nobody.serves }]\n");
    let id = site.start_task("lonely");
    let doctor = ["doctor", "--store", &database.url()];
    let found = site.json(&doctor);
    assert_eq!((&found["active"], &found["problems"]), (&1.into(), &serde_json::json!([])), "{found}");
    assert_eq!(found["opened_by"], format!("by {}", site.url));
    database.ask("delete from windlass_wait").unwrap();
    let ill = site.run(&doctor);
    assert_eq!(ill.status.code(), Some(1), "{ill:?}");
    assert!(text(&ill.stdout).contains(&format!("active task {id} without what would wake it")), "{ill:?}");
    let empty = postgres.database().unwrap();
    let refused = site.run(&["doctor", "--store", &empty.url()]);
    assert!(text(&refused.stderr).contains("start a server on it once"), "{refused:?}");
}

#[test]
fn usage_errors_are_about_what_was_written_and_name_the_variables_that_they_are_about() {
    let run = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).envs(variables.iter().copied());
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        text(&output.stderr)
    };
    let start = &["task", "start"][..];
    let error = run(start, &[("WINDLASS_SERVER", "http://127.0.0.1:9"), ("WINDLASS_TOKEN", "t")]);
    assert!(error.contains("Usage: windlass task start <FLOW>\n"), "{error}");
    for (arguments, variables, named) in [
        (&["task", "list"][..], &[("WINDLASS_SERVER", "")][..], &["WINDLASS_SERVER is empty"][..]),
        (
            &["task", "list"],
            &[("WINDLASS_CA_FILE", "")],
            &["--ca-file comes from the variable WINDLASS_CA_FILE"],
        ),
        (start, &[("WINDLASS_CA_FILE", "")], &["--ca-file comes from the variable WINDLASS_CA_FILE"]),
        (
            &["server"],
            &[("WINDLASS_SERVER_KEEP_TASKS", "1h")],
            &["--keep-tasks comes from the variable WINDLASS_SERVER_KEEP_TASKS"],
        ),
        (
            &["task", "list"],
            &[("WINDLASS_TOKEN", "t"), ("WINDLASS_TOKEN_FILE", "f")],
            &["comes from the variable WINDLASS_TOKEN\n", "comes from the variable WINDLASS_TOKEN_FILE\n"],
        ),
    ] {
        let error = run(arguments, variables);
        assert!(named.iter().all(|part| error.contains(part)), "{error}");
    }
    // A flag overrides its variable.
    let error = run(&["server", "--keep-tasks=1x"], &[("WINDLASS_SERVER_KEEP_TASKS", "1d")]);
    assert!(error.contains("--keep-tasks") && !error.contains("WINDLASS"), "{error}");
}

#[test]
fn files_of_options_that_are_missing_are_usage_errors() {
    for arguments in [
        &["task", "list", "--token-file", "none"][..],
        &["task", "list", "--ca-file", "none", "--server", "https://127.0.0.1:9"],
        &["leader", "a", "--coordinator-file", "none"],
        &["worker", "--modules", ".", "--broker-file", "none"],
    ] {
        let output = Command::new(PROGRAM).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).contains("from none: "), "{output:?}");
    }
}

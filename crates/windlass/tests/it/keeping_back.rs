//! Limits and locks from the command line, over what a real worker runs.

use serde_json::{Value, json};

use super::site::{Site, text, until};

const FLOWS: &str = "
flow: gated
steps:
  - { name: pass, run: m.gate, timeout: 1m }
---
flow: locked
steps:
  - name: write
    run: m.told
    locks: [{ expression: \"'disk-' + disk\" }, catalogue]
    rollback: m.told
  - { name: free, run: m.told }
  - { name: last, run: m.fail }
---
flow: keeper
steps:
  - { name: keep, run: m.gate, locks: [catalogue], timeout: 1m }
";

/// A site with these flows and a worker.
fn site() -> Site {
    let site = Site::with_worker();
    site.apply(FLOWS);
    site
}

fn done(site: &Site, arguments: &[&str]) -> String {
    let output = site.run(arguments);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    text(&output.stdout)
}

fn refused(site: &Site, arguments: &[&str], code: i32) -> String {
    let output = site.run(arguments);
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    text(&output.stderr)
}

#[test]
fn a_limit_is_set_looked_at_changed_and_removed() {
    let site = site();
    assert_eq!(done(&site, &["limit", "list"]), "no limits\n");
    let set = done(&site, &["limit", "set", "gentle", "--queue", "m", "--command", "gate", "--running", "1"]);
    assert!(set.lines().any(|line| line.starts_with("gentle  m.gate  0 of 1")), "{set}");

    let (first, second) = (site.start_task("gated"), site.start_task("gated"));
    let holders = |limit: &Value| -> Vec<String> {
        let holders = limit["holders"].as_array().unwrap().iter();
        holders.map(|holder| holder["task"].as_str().unwrap().to_owned()).collect()
    };
    let show = || site.json(&["limit", "show", "gentle"]);
    until("the first is running", || (holders(&show()) == [first.clone()]).then_some(()));
    let page = done(&site, &["limit", "show", "gentle"]);
    assert!(page.contains("1 of 1") && page.lines().any(|line| line.starts_with(&first)), "{page}");
    let why = site.json(&["task", "why", &second]);
    assert!(why["sentence"].as_str().unwrap().contains("gentle"), "{why}");

    // One more may go from now on.
    done(&site, &["limit", "set", "gentle", "--queue", "m", "--command", "gate", "--running", "2"]);
    until("both are running", || (holders(&show()).len() == 2).then_some(()));
    site.open_gate();
    assert_eq!(site.run(&["task", "wait", &first, &second]).status.code(), Some(0));
    assert_eq!(holders(&show()), Vec::<String>::new());

    assert_eq!(done(&site, &["limit", "remove", "gentle"]), "removed gentle\n");
    for arguments in [["limit", "show", "gentle"], ["limit", "remove", "gentle"]] {
        let error = refused(&site, &arguments, 3);
        assert!(error.contains("gentle") && error.contains("`windlass limit list`"), "{error}");
    }
}

#[test]
fn a_limit_that_cannot_be_is_refused_with_what_to_do() {
    let site = Site::start();
    fn set<'a>(more: &[&'a str]) -> Vec<&'a str> {
        [&["limit", "set", "odd"][..], more].concat()
    }
    for (more, code, said) in [
        (&["--queue", "m"][..], 1, "it limits nothing"),
        (&["--queue", "m", "--running", "0"], 1, "pause the queue m"),
        (&["--queue", "m/n", "--running", "1"], 1, "`queue`"),
        (&["--queue", "m", "--starts", "5"], 2, "100/1m"),
        (&["--queue", "m", "--starts", "x/1m"], 2, "invalid number \"x\""),
        (&["--queue", "m", "--running", "few"], 2, "--running"),
        (&["--running", "1"], 2, "--queue"),
    ] {
        let error = refused(&site, &set(more), code);
        assert!(error.contains(said), "{more:?}: {error}");
    }
    assert_eq!(site.json(&["limit", "list"])["items"], json!([]), "nothing was set");
    let odd = done(&site, &set(&["--queue", "unused", "--starts", "5/1m"]));
    assert!(odd.contains("note: no step of any flow runs unused"), "{odd}");
}

/// What a step's command gets about locks: on its stdin, and in its environment as `NAME=FENCE …`.
fn told(result: &Value) -> (Value, String) {
    (result["stdin"]["locks"].clone(), result["locks"].as_str().unwrap().to_owned())
}

#[test]
fn a_command_is_told_its_locks_and_their_fences() {
    let site = site();
    assert_eq!(site.run(&["task", "start", "locked", "-p", "disk=\"7\"", "--wait"]).status.code(), Some(10));
    let task = &site.json(&["task", "list", "--flow", "locked"])["items"][0];
    let task = site.json(&["task", "show", task["id"].as_str().unwrap()]);

    let (document, variable) = told(&task["steps"][0]["result"]);
    let names: Vec<&Value> = document.as_array().unwrap().iter().map(|lock| &lock["name"]).collect();
    assert_eq!(names, ["catalogue", "disk-7"], "{document}");
    let fences: Vec<u64> =
        document.as_array().unwrap().iter().map(|lock| lock["fence"].as_u64().unwrap()).collect();
    assert!(fences.iter().all(|fence| *fence > 0), "{document}");
    assert_eq!(variable, format!("catalogue={} disk-7={}", fences[0], fences[1]));

    // A step without locks gets none.
    assert_eq!(told(&task["steps"][1]["result"]), (Value::Null, String::new()), "{task}");

    // Its rollback has acquired them again, so with higher fences. What it got is in the outcome of the task.
    let (document, undone) = told(&task["result"]);
    let anew: Vec<u64> =
        document.as_array().unwrap().iter().map(|lock| lock["fence"].as_u64().unwrap()).collect();
    assert_eq!(anew.len(), 2, "{document}");
    assert!(anew.iter().zip(&fences).all(|(anew, before)| anew > before), "{undone} after {variable}");
    assert_eq!(undone, format!("catalogue={} disk-7={}", anew[0], anew[1]));
}

#[test]
fn a_lock_is_looked_at_and_taken_away_with_a_reason() {
    let site = site();
    let keeper = site.start_task("keeper");
    let show = || site.json(&["lock", "show", "catalogue"]);
    until("the first has it", || {
        let output = site.run(&["lock", "show", "catalogue", "-o", "json"]);
        (output.status.code() == Some(0)).then_some(())
    });
    let fence = show()["holder"]["fence"].as_u64().unwrap();
    let second = site.start_task("keeper");
    until("the second waits for it", || (show()["waiting"] == 1).then_some(()));
    let list = done(&site, &["lock", "list"]);
    assert!(list.contains("catalogue") && list.contains(&keeper), "{list}");
    let page = done(&site, &["lock", "show", "catalogue"]);
    assert!(page.contains(&second), "{page}");

    refused(&site, &["lock", "release", "catalogue"], 2);
    let released = done(&site, &["lock", "release", "catalogue", "--reason", "its machine is gone"]);
    assert!(released.contains("catalogue"), "{released}");
    let holder = show()["holder"].clone();
    assert_eq!(holder["task"], json!(second));
    assert!(holder["fence"].as_u64() > Some(fence), "{holder}");
    until("its history says why and who did it", || {
        let events = done(&site, &["task", "events", &keeper]);
        (events.contains("its machine is gone") && events.contains("by ops")).then_some(())
    });
    site.open_gate();
    assert_eq!(site.run(&["task", "wait", &keeper, &second]).status.code(), Some(0));
    let error = refused(&site, &["lock", "show", "catalogue"], 3);
    assert!(error.contains("`windlass lock list`"), "{error}");
}

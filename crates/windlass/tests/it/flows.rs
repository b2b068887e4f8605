//! Versions of flows: what applying would change, what has changed, and what each of them was.

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use super::site::{PROGRAM, Site, text};

const CHANGED: &str = "
flow: good
on_failure: hold
steps:
  - { name: one, run: m.echo, timeout: 1h }
  - { name: between, wait: approved }
  - { name: two, run: m.echo }
---
flow: better
steps:
  - { name: one, run: m.echo }
";

/// What a command printed, and how it ended.
fn said(site: &Site, arguments: &[&str]) -> (String, Option<i32>) {
    let output = site.run(arguments);
    let said = text(&output.stdout) + &text(&output.stderr);
    (said.replace(&site.dir.path().display().to_string(), "DIR"), output.status.code())
}

#[test]
fn what_applying_would_change_is_told_step_by_step() {
    let site = Site::start();
    let (same, code) = said(&site, &["flow", "diff", &site.path("flows.yaml")]);
    assert_eq!((same.lines().next(), code), (Some("good@1 → DIR/flows.yaml: the same"), Some(0)));

    let changed = site.path("changed.yaml");
    std::fs::write(&changed, CHANGED).unwrap();
    let (differs, code) = said(&site, &["flow", "diff", &changed]);
    insta::assert_snapshot!(differs, @"
    good@1 → DIR/changed.yaml
      ~ on_failure: (left out) → hold
      ~ step one: timeout: (left out) → 1h
      ~ step two: after: [one] → [between]
      + step between: wait: approved, after: [one]
    DIR/changed.yaml: flow better is new
    ");
    assert_eq!(code, Some(1));
    let items = &site.json(&["flow", "diff", &changed])["items"];
    assert_eq!((&items[0]["before"], &items[0]["same"]), (&"good@1".into(), &false.into()));
    assert_eq!(items[0]["differences"][1]["after"], "1h");

    let (said, code) = said(&site, &["flow", "diff", &changed, &site.path("none.yaml")]);
    assert!(said.contains("none.yaml") && code == Some(2), "{said}");
}

#[test]
fn a_folder_is_applied_as_a_whole_and_a_refusal_names_what_was_applied() {
    let site = Site::start();
    let folder = site.path("flows");
    std::fs::create_dir(&folder).unwrap();
    let write = |name: &str, run: &str| {
        let flow = format!("flow: {name}\nsteps: [{{ name: one, run: {run} }}]\n");
        std::fs::write(format!("{folder}/{name}.yaml"), flow).unwrap();
    };
    let names = || {
        let flows = site.json(&["flow", "list"])["items"].clone();
        let names = flows.as_array().unwrap().iter().map(|flow| flow["name"].as_str().unwrap().to_owned());
        names.filter(|name| name.starts_with("f-")).collect::<Vec<_>>()
    };
    write("f-a", "m.echo");
    write("f-b", "nothing");
    let (refused, code) = said(&site, &["flow", "apply", &folder]);
    assert!(
        refused.contains("f-b.yaml:2:27: error:") && refused.contains("nothing was applied"),
        "{refused}"
    );
    assert_eq!((names(), code), (vec![], Some(1)), "the first file has no mistake");

    // Only the server sees that a flow would start itself.
    write("f-b", "flow.f-b");
    write("f-c", "m.echo");
    let (refused, code) = said(&site, &["flow", "apply", &folder]);
    assert!(refused.starts_with("applied: f-a@1; not applied: f-b, f-c\n"), "{refused}");
    assert!(refused.contains("DIR/flows/f-b.yaml: flow f-b: "), "{refused}");
    assert_eq!((names(), code), (vec!["f-a".to_owned()], Some(1)));

    write("f-b", "m.echo");
    let (applied, code) = said(&site, &["flow", "apply", &folder]);
    assert_eq!((applied.lines().count(), code), (4, Some(0)), "a heading and three flows: {applied}");
    assert_eq!(names(), ["f-a", "f-b", "f-c"]);
}

#[test]
fn every_version_stays() {
    let site = Site::start();
    let changed = site.path("changed.yaml");
    std::fs::write(&changed, CHANGED).unwrap();
    assert_eq!(site.run(&["flow", "apply", &changed]).status.code(), Some(0));

    let (differs, code) = said(&site, &["flow", "diff", "good@1", "good@2"]);
    assert!(differs.starts_with("good@1 → good@2\n  ~ on_failure: (left out) → hold\n"), "{differs}");
    assert_eq!(code, Some(1));
    let (same, code) = said(&site, &["flow", "diff", "good@1", "good@1"]);
    assert_eq!((&*same, code), ("good@1 → good@1: the same\n", Some(0)));
    for (arguments, expected) in [
        (["flow", "diff", "good@1", "good@9"], 3),
        (["flow", "diff", "good@1", &changed], 2),
        (["flow", "diff", "good@1", "good@x"], 2),
    ] {
        let (said, code) = said(&site, &arguments);
        assert_eq!(code, Some(expected), "{said}");
    }

    // What is shown of an old version can be applied again, as the next one.
    let old = site.run(&["flow", "show", "good@1"]);
    assert!(text(&old.stdout).starts_with("# version 1, applied "), "{old:?}");
    std::fs::write(site.path("old.yaml"), &old.stdout).unwrap();
    assert_eq!(site.run(&["flow", "apply", &site.path("old.yaml")]).status.code(), Some(0));
    assert_eq!(said(&site, &["flow", "diff", "good@1", "good@3"]).1, Some(0));
}

#[test]
fn a_list_has_the_flows_of_all_pages() {
    let site = Site::start();
    let before = site.json(&["flow", "list"])["items"].as_array().unwrap().len();
    let flow = |n| format!("flow: many-{n}\nsteps: [{{ name: one, run: m.c }}]\n");
    site.apply(&(0..101).map(flow).collect::<Vec<_>>().join("---\n"));
    let all = site.json(&["flow", "list"]);
    assert_eq!(
        (all["items"].as_array().unwrap().len(), &all["next"]),
        (before + 101, &serde_json::Value::Null)
    );
}

#[test]
fn a_file_that_cannot_be_applied_keeps_dev_from_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a-broken.yaml"), "flow: broken\nsteps: 3\n").unwrap();
    std::fs::write(dir.path().join("b-good.yaml"), "flow: good\nsteps: [{ name: one, run: m.c }]\n").unwrap();
    let mut dev = Command::new(PROGRAM)
        .args(["dev", "--listen", "127.0.0.1:0", "--store", "memory:", "--flows"])
        .arg(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(dev.stdout.take().unwrap()).lines();
    let lines: Vec<String> = lines.take(2).map_while(Result::ok).collect();
    dev.kill().unwrap();
    dev.wait().unwrap();
    assert_eq!(lines.get(1).map(String::as_str), Some("applied flow good version 1"), "{lines:?}");
}

#[test]
fn the_schema_for_editors_is_the_one_in_the_reference() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/flow.schema.json");
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    let printed = Command::new(PROGRAM).args(["flow", "schema"]).output().unwrap();
    assert!(
        kept == text(&printed.stdout),
        "write it again with `windlass flow schema > docs/reference/flow.schema.json`"
    );
}

#[test]
fn flow_files_are_as_the_schema_for_editors_says_and_mistakes_are_not() {
    let schema: Value = serde_json::from_str(&windlass::flowfile::schema()).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = vec![];
    for folder in ["crates/windlass/tests/flowfiles", "examples"] {
        files_below(&root.join(folder), &mut files);
    }
    let mut flows = 0;
    for file in files {
        for flow in serde_saphyr::from_multiple::<Value>(&std::fs::read_to_string(&file).unwrap()).unwrap() {
            // Folders have other documents beside flows.
            if flow.get("flow").is_some() && flow.get("steps").is_some() {
                let errors: Vec<_> = schema.iter_errors(&flow).map(|error| error.to_string()).collect();
                assert!(errors.is_empty(), "{}: {errors:?}", file.display());
                flows += 1;
            }
        }
    }
    assert!(flows >= 15, "{flows} flows");
    let step = json!({ "name": "one", "run": "m.echo" });
    let with = |key: &str, value: Value| {
        let mut step = step.clone();
        step[key] = value;
        json!({ "flow": "f", "steps": [step] })
    };
    assert!(schema.is_valid(&with("timeout", json!(90))), "a number of seconds");
    for mistake in [
        json!({ "steps": [step] }),
        json!({ "flow": "f" }),
        json!({ "flow": "f", "steps": [step], "on_failure": "stop" }),
        json!({ "flow": "f", "steps": [step], "stepps": [] }),
        with("timeuot", json!("5m")),
        with("timeout", json!(true)),
        with("retry", json!({ "max": 3, "every": "1s" })),
        with("on_partial", json!("most")),
        with("parallel", json!(-1)),
        with("name", Value::Null),
    ] {
        assert!(!schema.is_valid(&mistake), "{mistake}");
    }
}

/// Files in YAML below a folder.
fn files_below(folder: &Path, files: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_below(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml") {
            files.push(path);
        }
    }
}

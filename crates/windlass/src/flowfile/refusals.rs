//! The messages for invalid files. These messages are a user interface: read them all when you change them.

use std::{fmt::Write as _, time::Instant};

use windlass_core::STEPS_MAX;

use super::{FILE_BYTES_MAX, Format, compile, compile_document, read};

const YAML: &str = include_str!("../../tests/flowfiles/create_instance.yaml");

/// Checks the message for each text, with its line and column.
pub(super) fn refusals<'a>(format: Format, texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut said = String::new();
    for text in texts {
        let error = match read(text, format) {
            Ok(sources) => sources.iter().map(compile).find_map(Result::err).expect("a mistake was found"),
            Err(error) => error,
        };
        let place = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        writeln!(said, "{}:{}: {error}", place(error.line), place(error.column)).unwrap();
    }
    said
}

/// A flow with one step that has these keys in addition to its name and `run`.
pub(super) fn step(keys: &str) -> String {
    format!("flow: f\nsteps:\n  - name: a\n    run: m.c\n    {keys}\n")
}

pub(super) fn step_refusals<const N: usize>(keys: [&str; N]) -> String {
    let texts = keys.map(step);
    refusals(Format::Yaml, texts.iter().map(String::as_str))
}

#[test]
fn unknown_keys_are_refused_with_a_suggestion() {
    insta::assert_snapshot!(step_refusals([
        "timout: 5m",
        "Retry: 3",
        "retries: 3",
        "colour: red",
        "retry: { max: 3, backof: none }",
        "rollback: { run: m.wipe, after: [a] }",
        "on_partal: continue",
        "locks: [{ expresion: a }]",
        "priority: 3",
    ]), @r#"
    5:5: unknown key "timout" in a step: did you mean `timeout`? Known are `name`, `run`, `wait`, `device`, `topic`, `args`, `done`, `offline`, `settle`, `when`, `each`, `parallel`, `on_partial`, `delay`, `start_within`, `timeout`, `deadline`, `retry`, `key`, `locks`, `rollback` and `after`
    5:5: unknown key "Retry" in a step: did you mean `retry`? Known are `name`, `run`, `wait`, `device`, `topic`, `args`, `done`, `offline`, `settle`, `when`, `each`, `parallel`, `on_partial`, `delay`, `start_within`, `timeout`, `deadline`, `retry`, `key`, `locks`, `rollback` and `after`
    5:5: unknown key "retries" in a step: did you mean `retry`? Known are `name`, `run`, `wait`, `device`, `topic`, `args`, `done`, `offline`, `settle`, `when`, `each`, `parallel`, `on_partial`, `delay`, `start_within`, `timeout`, `deadline`, `retry`, `key`, `locks`, `rollback` and `after`
    5:5: unknown key "colour" in a step; known are `name`, `run`, `wait`, `device`, `topic`, `args`, `done`, `offline`, `settle`, `when`, `each`, `parallel`, `on_partial`, `delay`, `start_within`, `timeout`, `deadline`, `retry`, `key`, `locks`, `rollback` and `after`
    5:22: unknown key "backof" in a retry: did you mean `backoff`? Known are `max`, `backoff`, `base` and `cap`
    5:30: unknown key "after" in a rollback; known are `run`, `topic`, `args`, `done`, `offline`, `settle`, `start_within`, `timeout`, `deadline` and `retry`
    5:5: unknown key "on_partal" in a step: did you mean `on_partial`? Known are `name`, `run`, `wait`, `device`, `topic`, `args`, `done`, `offline`, `settle`, `when`, `each`, `parallel`, `on_partial`, `delay`, `start_within`, `timeout`, `deadline`, `retry`, `key`, `locks`, `rollback` and `after`
    5:15: unknown key "expresion" in a lock: did you mean `expression`? Known are `expression`
    5:5: `priority` is known but not supported by this version yet
    "#);
    insta::assert_snapshot!(refusals(Format::Yaml, [
        "flow: f\nstep: []\n",
        "flow: f\nexclusive: a b\nsteps: [{ name: a, run: m.c }]\n",
        "flow: f\non_error: { run: m.c, after: [a] }\nsteps: []\n",
        "flow: f\nunique: { key: a, until: finished }\nsteps: []\n",
    ]), @r#"
    2:1: unknown key "step" in a flow: did you mean `steps`? Known are `flow`, `params`, `retry_by`, `on_failure`, `deadline`, `unique`, `exclusive`, `retention`, `rollback_params`, `deaths_max`, `secret`, `key`, `steps` and `on_error`
    2:12: `exclusive`: invalid name "a b": use 1 to 128 of A-Z a-z 0-9 _ . - and begin with a letter or digit
    2:23: unknown key "after" in `on_error`; known are `run`, `topic`, `args`, `done`, `offline`, `settle`, `start_within`, `timeout`, `deadline` and `retry`
    2:19: unknown key "until" in `unique`; known are `key`, `while`, `for` and `on_conflict`
    "#);
}

#[test]
fn values_of_the_wrong_type_are_refused() {
    insta::assert_snapshot!(step_refusals([
        "timeout: -5m",
        "timeout: -5",
        "timeout: soon",
        "timeout: [5]",
        "timeout: 0",
        "deadline: 0s",
        "timeout: 400d",
        "timeout: 9000h",
        "retry: -1",
        "retry: 2.5",
        "retry: 5000000000",
        "retry: 2000000",
        "retry: three",
        "retry: { backoff: none }",
        "retry: { max: 3, backoff: linear }",
        "retry: { max: 3, base: 5m }",
        "retry: { max: 3, cap: 9000h }",
        "rollback: []",
        "rollback: { timeout: 5m }",
        "rollback: clean",
        "after: a",
        "after: [1]",
    ]), @r#"
    5:14: `timeout`: "-5m" is negative: a duration is 0 or more
    5:14: `timeout`: -5 is negative: a duration is 0 or more
    5:14: `timeout`: invalid duration "soon": use for example 250ms, 30s, 5m, 1h30m or 2d
    5:14: `timeout` is a list, and must be a duration such as 30s, 5m, 1h30m or 2d, or a number of seconds
    5:14: a timeout of 0 would fail every attempt: give it a length, or leave it out
    5:15: a deadline of 0 would fail every attempt: give it a length, or leave it out
    5:14: `timeout` is too long: the limit is 366 days
    5:14: `timeout` is too long: the limit is 366 days
    5:12: `retry`: -1 is negative: write 0 or more
    5:12: `retry`: 2.5 is not a whole number
    5:12: `retry`: 5000000000 is too large
    5:12: `retry` is 2000000: the limit is 1000000
    5:12: `retry` is a string, and must be a number such as 3, or a map with `max`
    5:12: a retry needs `max`: the number of retries
    5:31: `backoff` is "linear", and must be exponential, fixed or none
    5:28: the first delay `base` (5m) is longer than the longest, `cap` (1m)
    5:27: `cap` is too long: the limit is 366 days
    5:15: `rollback` is a list, and must be MODULE.COMMAND, or a map with `run`
    5:15: it needs `run`: write MODULE.COMMAND, such as mysql.init_instance
    5:15: "clean" names no command: write MODULE.COMMAND, such as mysql.init_instance
    5:12: `after` is a string, and must be a list of names of steps, such as [check, init], or [] for none
    5:13: `after[0]` must be a string: put it in quotes, as in "1"
    "#);
    insta::assert_snapshot!(refusals(Format::Yaml, [
        "flow: 7\nsteps: []\n",
        "flow: true\nsteps: []\n",
        "flow: f\nparams: [1]\nsteps: []\n",
        "flow: f\nparams: { ratio: .nan }\nsteps: []\n",
        "flow: f\nretry_by: worker\nsteps: []\n",
        "flow: f\non_failure: ignore\nsteps: []\n",
        "flow: f\nsteps: { a: m.c }\n",
        "flow: f\nsteps: [m.c]\n",
        "flow: f\nsteps: [{ name: a }]\n",
        "flow: f\nsteps: [{ run: m.c }]\n",
        "flow: f\nsteps:\n",
        "flow: f\n",
        "steps: [{ name: a, run: m.c }]\n",
        "- flow: f\n",
        "hello",
    ]), @r#"
    1:7: `flow` must be a string: put it in quotes, as in "7"
    1:7: `flow` must be a string: put it in quotes, as in "true"
    2:9: `params` is a list, and must be a map of keys, such as {size: 3}
    2:18: cannot read this YAML: value `.nan` is not a finite number
    2:11: `retry_by` is "worker", and must be engine or module
    2:13: `on_failure` is "ignore", and must be rollback or hold
    2:8: `steps` is a map of keys, and must be a list of steps, each with `name` and `run`
    2:9: a step is a map of keys, and this is a string
    2:9: a step needs `run`: write MODULE.COMMAND, such as mysql.init_instance; or `wait`: the signal it waits for; or `device`: the device that does it
    2:9: a step needs `name`: a name that no other step has
    1:1: a flow needs `steps`: list its steps, as in `steps: [{name: init, run: mysql.init}]`
    1:1: a flow needs `steps`: list its steps, as in `steps: [{name: init, run: mysql.init}]`
    1:1: the flow has no name: begin with `flow: NAME`
    1:1: a flow is a map of keys, and this is a list
    1:1: a flow is a map of keys, and this is a string
    "#);
}

#[test]
fn what_no_parameter_can_change_is_evaluated_when_it_is_read() {
    insta::assert_snapshot!(step_refusals([
        "when: \"'abc'\"",
        "when: 1 > 'a'",
        "key: '[1, 2]'",
        "locks: [{ expression: \"''\" }]",
        "locks: [\"'disk-' + disk\"]",
        "locks: ['a b']",
    ]), @r#"
    5:11: `when`: the expression `'abc'` evaluates to a text: a condition must be true or false, as in `size > 3`
    5:11: `when`: the expression `1 > 'a'` cannot be evaluated: `>` cannot take a whole number (int) and a text (string)
    5:10: `key`: the expression `[1, 2]` evaluates to a list: a key or a name must be a text of 1 to 256 bytes, a whole number, true or false
    5:27: `expression`: the expression `''` evaluates to an empty text: a key or a name must be a text of 1 to 256 bytes, a whole number, true or false
    5:13: `locks`: invalid name "'disk-' + disk": use 1 to 128 of A-Z a-z 0-9 _ . - and begin with a letter or digit. If the name depends on parameters, write { expression: TEXT }
    5:13: `locks`: invalid name "a b": use 1 to 128 of A-Z a-z 0-9 _ . - and begin with a letter or digit
    "#);
    insta::assert_snapshot!(refusals(Format::Yaml, [
        "flow: f\nkey: '[1]'\nsteps: [{ name: a, run: m.c }]\n",
        "flow: my flow\nsteps: [{ name: a b, run: m.c }]\n",
    ]), @r#"
    2:6: `key`: the expression `[1]` evaluates to a list: a key or a name must be a text of 1 to 256 bytes, a whole number, true or false
    1:7: invalid name "my flow": use 1 to 128 of A-Z a-z 0-9 _ . - and begin with a letter or digit
    "#);
    assert!(compile(&read(&step("when: 'true'"), Format::Yaml).unwrap()[0]).is_ok());
    let list = vec!["1"; 150].join(",");
    let long = step_refusals([&format!("when: '[{list}].all(a, [{list}].all(b, a == b))'")]);
    assert!(long.contains("it takes more than 10000 steps"), "{long}");
}

#[test]
fn a_command_is_a_name_and_no_path() {
    let runs = ["../x", "m/../../etc/passwd", "m.", ".c", "init", "m.-c", "m. c", "", "flow.", "flow.-c"];
    let texts = runs.map(|run| format!("flow: f\nsteps:\n  - name: a\n    run: \"{run}\"\n"));
    insta::assert_snapshot!(refusals(Format::Yaml, texts.iter().map(String::as_str)), @r#"
    4:10: "../x" is a path, and `run` is a name that workers look up: write MODULE.COMMAND, such as mysql.init_instance
    4:10: "m/../../etc/passwd" is a path, and `run` is a name that workers look up: write MODULE.COMMAND, such as mysql.init_instance
    4:10: "m." names no command: write MODULE.COMMAND, such as mysql.init_instance
    4:10: ".c" names no module: write MODULE.COMMAND, such as mysql.init_instance
    4:10: "init" names no command: write MODULE.COMMAND, such as mysql.init_instance
    4:10: `run`: invalid name "-c": use 1 to 128 of A-Z a-z 0-9 _ . - and begin with a letter or digit
    4:10: `run`: invalid name " c": use 1 to 128 of A-Z a-z 0-9 _ . - and begin with a letter or digit
    4:10: "" names no command: write MODULE.COMMAND, such as mysql.init_instance
    4:10: "flow." names no command: write MODULE.COMMAND, such as mysql.init_instance
    4:10: `run`: invalid name "-c": use 1 to 128 of A-Z a-z 0-9 _ . - and begin with a letter or digit
    "#);
    let error = read(&step("").replace("m.c", &format!("m.{}", "c".repeat(129))), Format::Yaml)
        .and_then(|sources| compile(&sources[0]))
        .unwrap_err();
    assert!(error.message.contains("1 to 128"), "{error}");
}

#[test]
fn steps_that_do_not_fit_together_are_refused() {
    insta::assert_snapshot!(refusals(Format::Yaml, [
        "flow: f\nsteps: []\n",
        "flow: f\nsteps:\n  - { name: init, run: m.c }\n  - { name: init, run: m.d }\n",
        "flow: f\nsteps:\n  - { name: a b, run: m.c }\n",
        "flow: f\nsteps:\n  - { name: init, run: m.c }\n  - { name: b, run: m.d, after: [inti] }\n",
        "flow: f\nsteps:\n  - { name: init, run: m.c }\n  - { name: b, run: m.d, after: [something] }\n",
        "flow: f\nsteps:\n  - { name: init, run: m.c }\n  - { name: b, run: m.d, after: [init, init] }\n",
        "flow: f\nsteps:\n  - { name: a, run: m.c, after: [a] }\n",
        "flow: f\nsteps:\n  - { name: x, run: m.c, after: [b] }\n  - { name: a, run: m.c, after: [c] }\n  \
            - { name: b, run: m.c, after: [a] }\n  - { name: c, run: m.c, after: [b] }\n",
        "flow: f/g\nsteps: [{ name: a, run: m.c }]\n",
        "flow: f\nsteps: [{ name: a, run: m.c }]\n---\nflow: f\nsteps: [{ name: a, run: m.c }]\n",
    ]), @r#"
    2:8: a flow needs at least one step
    4:13: duplicate step "init": step 1 and step 2 need different names
    3:13: invalid name "a b": use 1 to 128 of A-Z a-z 0-9 _ . - and begin with a letter or digit
    4:34: `after` names the unknown step "inti": did you mean "init"?
    4:34: `after` names the unknown step "something": write names of steps of this flow
    4:40: `after` names "init" twice: remove one
    3:33: steps wait for one another in a circle: a → a; break it
    5:33: steps wait for one another in a circle: b → c → a → b; break it
    1:7: invalid name "f/g": use 1 to 128 of A-Z a-z 0-9 _ . - and begin with a letter or digit
    4:7: duplicate flow "f": use different names
    "#);
    let steps: String =
        (0..=STEPS_MAX).map(|number| format!("  - {{ name: s{number}, run: m.c }}\n")).collect();
    insta::assert_snapshot!(refusals(Format::Yaml, [format!("flow: f\nsteps:\n{steps}").as_str()]), @"3:3: the flow has 257 steps; the limit is 256");
}

#[test]
fn every_format_says_where() {
    insta::assert_snapshot!(refusals(Format::Yaml, [
        "",
        "flow: f\nsteps: [\n",
        "flow: f\nflow: g\nsteps: []\n",
        "flow: f\n\tsteps: []\n",
        "flow: f\nsteps: *unknown\n",
        "flow: !custom f\nsteps: []\n",
        "a: &a [x, x]\nb: &b [*a, *a]\n",
    ]), @r#"
    1:1: the file contains no flow: a flow has `flow`, its name, and `steps`
    2:8: cannot read this YAML: unclosed bracket '['
    2:1: duplicate key "flow": remove one
    1:7: cannot read this YAML: while scanning a plain scalar, found a tab
    2:8: this alias names an unknown anchor
    1:15: cannot read this YAML: unsupported tag `!custom`
    1:8: a classic step is a map of keys, and this is a string
    "#);
    insta::assert_snapshot!(refusals(Format::Toml, [
        "",
        "flow = \n",
        "flow = \"f\"\nflow = \"g\"\n",
        "flow = \"f\"\n[[steps]]\nname = \"a\"\nrun = \"m.c\"\ntimeout = \"-5m\"\n",
        "flow = \"f\"\n[[steps]]\nname = \"a\"\nrun = \"m.c\"\ntimout = 5\n",
        "flow = \"f\"\n[[steps]]\nname = \"a\"\nrun = \"m.c\"\n[[steps]]\nname = \"a\"\nrun = \"m.c\"\n",
        "flow = \"f\"\n[[steps]]\nname = \"a\"\n",
        "flow = \"f\"\nsteps = []\n[params]\nsize = 99999999999999999999\n",
        "flow = \"f\"\nsteps = []\n[params]\nsize = nan\n",
    ]), @r#"
    1:1: the file contains no flow: a flow has `flow`, its name, and `steps`
    1:8: cannot read this TOML: string values must be quoted, expected literal string
    2:1: duplicate key "flow": remove one
    5:11: `timeout`: "-5m" is negative: a duration is 0 or more
    5:1: unknown key "timout" in a step: did you mean `timeout`? Known are `name`, `run`, `wait`, `device`, `topic`, `args`, `done`, `offline`, `settle`, `when`, `each`, `parallel`, `on_partial`, `delay`, `start_within`, `timeout`, `deadline`, `retry`, `key`, `locks`, `rollback` and `after`
    6:8: duplicate step "a": step 1 and step 2 need different names
    2:1: a step needs `run`: write MODULE.COMMAND, such as mysql.init_instance; or `wait`: the signal it waits for; or `device`: the device that does it
    4:8: the number "99999999999999999999" is too large or begins with 0: it must fit into 64 bits, or be in quotes
    4:8: the number is infinite or not a number, which parameters cannot contain
    "#);
    insta::assert_snapshot!(refusals(Format::Json, [
        "",
        "{\"flow\": \"f\"",
        "{\"flow\": \"f\"}}",
        "{\n\t\"flow\": \"f\",\n\t\"flow\": \"g\"\n}",
        "{flow: \"f\"}",
        "{\"flow\": / \"f\"}",
        "// größe\n{ /* ü */ \"flow\": \"f\", \"steps\": [{\"name\": \"a\", \"run\": \"m.c\", \"timout\": 5}] }",
        "{\"flow\": \"f\", \"steps\": [\n  {\"name\": \"a\", \"run\": \"m.c\"},\n  {\"name\": \"a\", \"run\": \"m.d\"},\n]}",
        "{\"flow\": \"\\ud800\", \"steps\": []}",
        "{\"flow\": \"f\", \"params\": {\"a\": 1e999}, \"steps\": []}",
    ]), @r#"
    1:1: cannot read this JSON: EOF while parsing a value
    1:12: cannot read this JSON: EOF while parsing an object
    1:14: cannot read this JSON: trailing characters
    3:2: duplicate key "flow": remove one
    1:2: cannot read this JSON: key must be a string
    1:10: a `/` that does not start a comment: write `//` or `/* … */`
    2:62: unknown key "timout" in a step: did you mean `timeout`? Known are `name`, `run`, `wait`, `device`, `topic`, `args`, `done`, `offline`, `settle`, `when`, `each`, `parallel`, `on_partial`, `delay`, `start_within`, `timeout`, `deadline`, `retry`, `key`, `locks`, `rollback` and `after`
    3:12: duplicate step "a": step 1 and step 2 need different names
    1:17: cannot read this JSON: unexpected end of hex escape
    1:31: the number is infinite or not a number, which parameters cannot contain
    "#);
}

#[test]
fn classic_catalogues_are_refused_in_their_own_words() {
    let action = r#"{"module": "m", "command": "c", "timeout": 5, "retry": 0}"#;
    insta::assert_snapshot!(refusals(Format::Json, [
        "{\"f\": []}",
        "{\"f\": [\n{\"normal\": {\"module\": \"m\", \"command\": \"c\", \"timeout\": -5, \"retry\": 0}}]}",
        "{\"f\": [\n{\"normal\": {\"module\": \"m\", \"command\": \"c\", \"timeuot\": 5, \"retry\": 0}}]}",
        "{\"f\": [\n{\"normal\": {\"module\": \"m.n\", \"command\": \"c\", \"timeout\": 5, \"retry\": 0}}]}",
        "{\"f\": [\n{\"normal\": {\"module\": \"m\", \"command\": \"../c\", \"timeout\": 5, \"retry\": 0}}]}",
        "{\"f\": [\n{\"normal\": {\"module\": \"m\", \"timeout\": 5, \"retry\": 0}}]}",
        "{\"f\": [\n{\"normal\": {\"module\": \"flow\", \"command\": \"g\", \"timeout\": 5, \"retry\": 0}}]}",
        "{\"f\": [\n{\"rollback\": null}]}",
        &format!("{{\"f\": [\n{{\"normal\": {action}, \"undo\": {action}}}]}}"),
        &format!("{{\"f\": [{{\"normal\": {action}}}],\n \"f\": [{{\"normal\": {action}}}]}}"),
        &format!("{{\"f\": [{{\"normal\": {action}}}],\n \"g\": {{\"normal\": {action}}}}}"),
        &format!("{{\"f\": [{{\"normal\": {action}}}],\n \"g\": {{\"retry_by\": \"module\"}}}}"),
        &format!("{{\"f\": {{\"retry_by\": \"modul\",\n \"steps\": [{{\"normal\": {action}}}]}}}}"),
    ]), @r#"
    1:2: a flow needs at least one step
    2:55: `timeout`: -5 is negative: a duration is 0 or more
    2:44: unknown key "timeuot" in a classic action: did you mean `timeout`? Known are `module`, `command`, `timeout` and `retry`
    2:23: the module "m.n" has a dot: modules must not contain one
    2:39: invalid name "../c": use 1 to 128 of A-Z a-z 0-9 _ . - and begin with a letter or digit
    2:12: a classic action needs `command`: the command of the module
    2:23: the module `flow` is reserved: no worker serves it, so give it another name
    2:1: a classic step needs `normal`: what the step does: module, command, timeout, retry
    2:71: unknown key "undo" in a classic step; known are `normal` and `rollback`
    2:2: duplicate key "f": remove one
    2:8: unknown key "normal" in a classic flow; known are `retry_by` and `steps`
    2:7: a classic flow needs `steps`: the list of its steps
    1:20: `retry_by` is "modul", and must be engine or module
    "#);
}

#[test]
fn a_document_without_a_text_is_refused_by_path() {
    let mut document = read(YAML, Format::Yaml).unwrap()[0].document.clone();
    document.steps[2].after = Some(vec!["chekc".to_owned()]);
    insta::assert_snapshot!(compile_document(&document).unwrap_err(), @r#"steps[2].after[0]: `after` names the unknown step "chekc": did you mean "check"?"#);
    document.flow = None;
    insta::assert_snapshot!(compile_document(&document).unwrap_err(), @"flow: the flow has no name: begin with `flow: NAME`");
}

#[test]
fn files_have_a_length_and_a_depth() {
    let long = format!("# {}\n{YAML}", "x".repeat(FILE_BYTES_MAX));
    insta::assert_snapshot!(refusals(Format::Yaml, [long.as_str()]), @"-:-: the flow file has 1049069 bytes: the limit is 1048576; split it");
    let nested = |open: &str, close: &str| format!("{}{}", open.repeat(200_000), close.repeat(200_000));
    let json = format!("{{\"flow\": \"f\", \"steps\": [], \"params\": {{\"a\": {}}}}}", nested("[", "]"));
    insta::assert_snapshot!(refusals(Format::Json, [json.as_str()]), @"1:106: this nests deeper than 64 levels");
    let yaml = format!("flow: f\nsteps: []\nparams:\n  a: {}\n", nested("[", "]"));
    insta::assert_snapshot!(refusals(Format::Yaml, [yaml.as_str()]), @"4:261: cannot read this YAML: recursion limit exceeded");
    let toml = format!("flow = \"f\"\nsteps = []\nparams.a = {}\n", nested("[", "]"));
    insta::assert_snapshot!(refusals(Format::Toml, [toml.as_str()]), @"3:92: cannot read this TOML: cannot recurse further; max recursion depth met");
}

#[test]
fn bombs_go_off_quickly_and_small() {
    let started = Instant::now();
    let mut lists = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let before = format!("*a{}, ", level - 1).repeat(9);
        writeln!(lists, "a{level}: &a{level} [{before}]").unwrap();
    }
    let text = format!(
        "flow: f\nsteps: []\nparams:\n  a: &a {}\n  b: [{}]\n",
        "x".repeat(500_000),
        "*a, ".repeat(90)
    );
    insta::assert_snapshot!(refusals(Format::Yaml, [lists.as_str(), text.as_str()]), @"
    6:10: the YAML is too large with its aliases expanded: the limit is 100000 values, 4194304 bytes of text and 32 levels
    5:35: the YAML is too large with its aliases expanded: the limit is 100000 values, 4194304 bytes of text and 32 levels
    ");
    // Finding lines and columns must not take quadratic time in the length of a line.
    let flows: Vec<String> = (0..9_000)
        .map(|n| format!("\"f{n}\": [{{\"normal\": {{\"module\": \"m\", \"command\": \"c\"}}}}]"))
        .collect();
    let catalogue = format!("{{{}}}", flows.join(", "));
    assert_eq!(read(&catalogue, Format::Json).unwrap().len(), 9_000);
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}

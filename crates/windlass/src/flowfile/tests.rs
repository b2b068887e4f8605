//! Whole files, and the flows that they define.

use windlass_core::{Backoff, Doer, During, Each, Expression, Flow, Millis, Name, OnPartial, Role};

use super::{Format, compile, compile_document, document, read};

const YAML: &str = include_str!("../../tests/flowfiles/create_instance.yaml");
const TOML: &str = include_str!("../../tests/flowfiles/create_instance.toml");
const JSON: &str = include_str!("../../tests/flowfiles/create_instance.json");
const CLASSIC: &str = include_str!("../../tests/flowfiles/classic.json");
const EVERYTHING: &str = include_str!("../../tests/flowfiles/everything.yaml");

fn flows(text: &str, format: Format) -> Vec<Flow> {
    read(text, format).unwrap().iter().map(|source| compile(source).unwrap()).collect()
}

#[test]
fn the_same_flow_in_yaml_toml_and_json() {
    let yaml = flows(YAML, Format::Yaml);
    assert_eq!(yaml, flows(TOML, Format::Toml));
    assert_eq!(yaml, flows(JSON, Format::Json));
    let [flow] = yaml.as_slice() else { panic!("one flow") };
    assert_eq!((flow.name.as_str(), flow.version, flow.steps.len()), ("create_instance", 0, 3));
    insta::assert_debug_snapshot!(flow.steps[1], @r#"
    StepDefinition {
        name: Name(
            "init",
        ),
        role: Plain,
        run: Action {
            doer: Worker {
                module: Name(
                    "mysql",
                ),
                command: Name(
                    "init_instance",
                ),
            },
            timeout: Millis(
                1800000,
            ),
            deadline: None,
            start_within: None,
            retry: Retry {
                max: 3,
                backoff: Exponential,
                base: Millis(
                    1000,
                ),
                cap: Millis(
                    60000,
                ),
            },
        },
        rollback: Some(
            Action {
                doer: Worker {
                    module: Name(
                        "mysql",
                    ),
                    command: Name(
                        "clean_instance",
                    ),
                },
                timeout: Millis(
                    900000,
                ),
                deadline: None,
                start_within: None,
                retry: Retry {
                    max: 3,
                    backoff: Exponential,
                    base: Millis(
                        1000,
                    ),
                    cap: Millis(
                        60000,
                    ),
                },
            },
        ),
        after: [
            0,
        ],
        when: None,
        each: None,
        on_partial: Fail,
        delay: None,
        key: None,
        locks: [],
    }
    "#);
}

#[test]
fn a_classic_catalogue_loads_as_it_stands() {
    let flows = flows(CLASSIC, Format::Json);
    assert_eq!(
        flows.iter().map(|flow| flow.name.as_str()).collect::<Vec<_>>(),
        ["modify_ntp", "restart_twice"]
    );
    let names = |flow: &Flow| flow.steps.iter().map(|step| step.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(&flows[0]), ["check_resource", "init_instance", "deduct_resource"]);
    assert_eq!(names(&flows[1]), ["restart", "restart-2"]);

    let init = &flows[0].steps[1];
    assert_eq!(init.run.doer.to_string(), "mysql.init_instance");
    assert_eq!(init.run.timeout, Millis::from_secs(1800));
    assert_eq!(init.run.deadline, Some(Millis::from_secs(1800)), "the timeout wraps all attempts together");
    assert_eq!((init.run.retry.max, init.run.retry.backoff), (3, Backoff::None));
    let rollback = init.rollback.as_ref().unwrap();
    assert_eq!(
        (&*rollback.doer.to_string(), rollback.deadline),
        ("mysql.clean_instance", Some(Millis::from_secs(900)))
    );
    assert_eq!(init.after, [0]);
    assert!(flows[1].steps.iter().all(|step| step.rollback.is_none()));
}

#[test]
fn a_classic_flow_may_leave_its_retries_to_the_module() {
    let step = r#"{ "normal": { "module": "m", "command": "c", "timeout": 60, "retry": 3 } }"#;
    let read =
        |text: &str| flows(text, Format::Json).into_iter().map(|flow| flow.retry_by).collect::<Vec<_>>();
    let (module, engine) = (windlass_core::RetryBy::Module, windlass_core::RetryBy::Engine);
    let both = format!(r#"{{ "a": {{ "retry_by": "module", "steps": [{step}] }}, "b": [{step}] }}"#);
    assert_eq!(read(&both), [module, engine]);
    let alone = format!(r#"{{ "a": {{ "retry_by": "module", "steps": [{step}] }} }}"#);
    assert_eq!(read(&alone), [module]);
    let told = format!(r#"{{ "a": {{ "steps": [{step}], "retry_by": "engine" }} }}"#);
    assert_eq!(read(&told), [engine]);
}

#[test]
fn every_key_is_understood() {
    let flows = flows(EVERYTHING, Format::Yaml);
    assert_eq!(
        flows[0].params.as_deref(),
        Some(concat!(
            r#"{"bucket":"backups","levels":[1,2.5,true,null],"#,
            r#""nested":{"zone":"no","when":"2026-01-31"}}"#
        ))
    );
    assert_eq!(flows[0].retry_by, windlass_core::RetryBy::Module);
    assert_eq!(flows[0].on_failure, windlass_core::OnFailure::Hold);
    let lock = &flows[0].steps[0];
    assert_eq!((lock.run.timeout, lock.run.deadline), (Millis(250), Some(Millis::from_secs(90))));
    assert_eq!(lock.rollback.as_ref().unwrap().timeout, Millis::from_secs(5400));
    let (_, command) = flows[0].steps[1].run.worker().unwrap();
    assert_eq!(command.as_str(), "dump.full", "split at the first dot");
    assert_eq!(
        flows[0].steps.iter().map(|step| step.after.clone()).collect::<Vec<_>>(),
        [vec![], vec![], vec![0, 1]]
    );
    assert_eq!(flows[1].steps[1].run.retry.max, 3, "merged from the step before");
}

#[test]
fn keys_of_graphs_are_understood() {
    let flow = &flows(EVERYTHING, Format::Yaml)[2];
    assert_eq!(flow.deadline, Some(Millis::from_secs(3600)));
    assert_eq!(flow.retention, Some(Millis::from_secs(90 * 86_400)));
    let unique = flow.unique.as_ref().unwrap();
    assert_eq!(
        (unique.key.source(), unique.during),
        ("release", During::Finished(Millis::from_secs(86_400)))
    );
    let step = |name: &str| &flow.steps[flow.step_index(name).unwrap()];

    assert_eq!(step("list-hosts").run.start_within, Some(Millis::from_secs(60)));
    let canary = step("canary");
    assert_eq!(canary.run.doer, Doer::Signal { name: Name::new("canary-seen").unwrap() });
    assert_eq!(canary.run.deadline, Some(Millis::from_secs(1800)), "how long it waits");
    assert_eq!((canary.when.as_ref().unwrap().source(), &canary.key), ("!params.urgent", &None));

    let install = step("install");
    assert_eq!(install.each, Some(Each { list: "hosts".into(), parallel: 20 }));
    assert_eq!((install.on_partial, install.delay), (OnPartial::AtLeast(3), Some(Millis::from_secs(10))));
    assert_eq!(install.rollback.as_ref().unwrap().start_within, Some(Millis::from_secs(300)));
    let keys: Vec<_> = flow.steps.iter().map(|step| step.key.as_ref().map(Expression::source)).collect();
    let region = Some("'region-' + region");
    assert_eq!(keys, [region, None, Some("release"), region, region, region, region]);

    assert_eq!((step("announce").on_partial, &*step("announce").after), (OnPartial::Continue, &[3, 4][..]));
    let on_error = step("on_error");
    assert_eq!((on_error.role, on_error.run.retry.max, &*on_error.after), (Role::OnError, 2, &[][..]));
    assert_eq!(flow.steps.last().unwrap().name, on_error.name);
}

/// A value common to all steps is written once.
#[test]
fn the_way_back_says_things_once() {
    let flow = &flows(EVERYTHING, Format::Yaml)[2];
    insta::assert_snapshot!(serde_saphyr::to_string(&document(flow)).unwrap(), @r#"
    flow: rollout
    deadline: 1h
    unique:
      key: release
      while: finished
      for: 24h
    retention: 2160h
    key: "'region-' + region"
    steps:
    - name: list-hosts
      run: inventory.hosts
      start_within: 1m
    - name: canary
      wait: canary-seen
      when: "!params.urgent"
      timeout: 30m
    - name: install
      run: host.install
      each: hosts
      parallel: 20
      on_partial: 3
      delay: 10s
      key: release
      rollback:
        run: host.restore
        start_within: 5m
    - name: check-east
      run: probe.check
    - name: check-west
      run: probe.check
      after:
      - install
    - name: announce
      run: mail.announce
      on_partial: continue
      after:
      - check-east
      - check-west
    on_error:
      run: mail.report
      start_within: 10m
      timeout: 30s
      retry: 2
    "#);
    let all =
        flows("flow: f\nsteps:\n  - { name: a, run: m.c, key: x }\n  - { name: b, wait: s }\n", Format::Yaml);
    insta::assert_snapshot!(serde_saphyr::to_string(&document(&all[0])).unwrap(), @"
    flow: f
    key: x
    steps:
    - name: a
      run: m.c
    - name: b
      wait: s
    ");
}

/// The API's types and the reader both name the keys. This test keeps them equal.
#[test]
fn a_document_the_api_writes_is_read_back_as_it_was() {
    for source in read(EVERYTHING, Format::Yaml).unwrap() {
        let text = serde_json::to_string_pretty(&source.document).unwrap();
        let again = read(&text, Format::Json).unwrap();
        assert_eq!(serde_json::to_string_pretty(&again[0].document).unwrap(), text);
        let parsed: windlass_api::FlowDocument = serde_json::from_str(&text).unwrap();
        assert_eq!(compile_document(&parsed).unwrap(), compile(&source).unwrap());
    }
}

#[test]
fn defaults_are_left_out_on_the_way_back() {
    let written = document(&flows(YAML, Format::Yaml)[0]);
    insta::assert_snapshot!(serde_saphyr::to_string(&written).unwrap(), @"
    flow: create_instance
    steps:
    - name: check
      run: resource.check_resource
      rollback:
        run: monitor.report_event
        retry: 3
    - name: init
      run: mysql.init_instance
      timeout: 30m
      retry: 3
      rollback:
        run: mysql.clean_instance
        timeout: 15m
        retry: 3
    - name: deduct
      run: resource.deduct_resource
      rollback: resource.restore_resource
    ");
}

#[test]
fn a_byte_order_mark_is_no_character() {
    assert_eq!(flows(&format!("\u{feff}{JSON}"), Format::Json), flows(JSON, Format::Json));
    let error = read("\u{feff}flw: f\n", Format::Yaml).unwrap_err();
    assert_eq!((error.line, error.column), (Some(1), Some(1)));
}

/// The examples of the reference must be valid; one directly followed by a text block must be refused with
/// that message.
#[test]
fn the_reference_says_what_is_so() {
    let reference = include_str!("../../../../docs/reference/flow-file.md");
    let blocks: Vec<(&str, &str)> =
        reference.split("```").skip(1).step_by(2).filter_map(|block| block.split_once('\n')).collect();
    let mut read_blocks = 0;
    for (index, (language, text)) in blocks.iter().enumerate() {
        let format = match *language {
            "yaml" => Format::Yaml,
            "toml" => Format::Toml,
            "json" => Format::Json,
            _ => continue,
        };
        read_blocks += 1;
        let compiled =
            read(text, format).and_then(|sources| sources.iter().map(compile).collect::<Result<Vec<_>, _>>());
        let said =
            compiled.map_err(|error| format!("{}:{}: {error}\n", error.line.unwrap(), error.column.unwrap()));
        match blocks.get(index + 1) {
            Some(("text", expected)) => assert_eq!(said.unwrap_err(), *expected),
            _ => assert!(!said.unwrap().is_empty()),
        }
    }
    assert_eq!(read_blocks, 15);
}

//! The modules of `examples/classic-modules`, each page with a broker of its own.

use std::{
    io::{self, Write as _},
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Stdio},
};

use windlass_testkit::{ElasticMq, Kafka, RabbitMq, Redis, free_port};

use super::{PROGRAM, run_parts};

/// The Python that the system's packages are for.
pub(super) const PYTHON: &str = "/usr/bin/python3";

#[test]
fn over_redis() {
    // Not the server that all share: lists and streams of the same names have no place in one.
    let Some(server) = Redis::start().unwrap() else { return };
    over("README.md", "redis", &[("BROKER", &server.url())]);
}

#[test]
fn over_rabbitmq() {
    let Some(server) = RabbitMq::shared().unwrap() else { return };
    over("rabbitmq.md", "pika", &[("BROKER", &server.url())]);
}

#[test]
fn over_kafka() {
    let Some(server) = Kafka::shared().unwrap() else { return };
    over("kafka.md", "confluent_kafka", &[("BROKER", &server.url())]);
}

#[test]
fn over_sqs() {
    let Some(server) = ElasticMq::shared().unwrap() else { return };
    let place = format!("127.0.0.1:{}", server.port());
    let variables = [
        ("BROKER", &*format!("sqs+http://{place}")),
        ("AWS_ENDPOINT_URL", &*format!("http://{place}")),
        ("AWS_DEFAULT_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
    ];
    over("sqs.md", "boto3", &variables);
}

/// The workers of `examples/job-api`: one in Python, and one in Java, which is compiled against the jars of the server.
#[test]
fn jobs_over_kafka() {
    let Some(server) = Kafka::start().unwrap() else { return };
    if !["javac -version", &format!("{PYTHON} -c 'import confluent_kafka'")]
        .iter()
        .all(|command| works(command))
    {
        return;
    }
    let port = free_port().unwrap().to_string();
    let jars = server.jars().display().to_string();
    let python = tempfile::tempdir().expect("temporary folder");
    symlink(PYTHON, python.path().join("python3")).expect("a link");
    let programs = Path::new(PROGRAM).parent().expect("a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{}:{path}", python.path().display(), programs.display());
    let variables = [("BROKER", &*server.url()), ("JARS", &jars), ("JOBS_PORT", &port), ("PATH", &path)];
    run_parts("examples/job-api/README.md", &[], &variables);
}

/// Tasks for clients of the Go library machinery.
#[test]
fn signatures_over_redis() {
    let Some(server) = Redis::start().unwrap() else { return };
    let port = server.port().to_string();
    run_parts("examples/machinery/README.md", &[], &[("REDIS_PORT", &port)]);
}

/// Runs a page whose modules need this package of Python, Go, and the example of the Rust client.
fn over(page: &str, package: &str, variables: &[(&str, &str)]) {
    let programs = Path::new(PROGRAM).parent().expect("a folder");
    let examples = programs.join("examples");
    let rust = examples.join("classic_module");
    let broker = variables.iter().find(|(name, _)| *name == "BROKER").expect("the URL of a broker").1;
    // Cargo builds it for `cargo test`, but not for a part of it, or without this broker.
    let needed = [
        format!("{PYTHON} -c 'import {package}'"),
        "go version".to_owned(),
        format!("test -x '{}'", rust.display()),
        format!(
            "! timeout 5 '{}' '{broker}' results no-kind 2>&1 | grep 'not in this build'",
            rust.display()
        ),
    ];
    if !needed.iter().all(|command| works(command)) {
        return;
    }
    let python = tempfile::tempdir().expect("temporary folder");
    symlink(PYTHON, python.path().join("python3")).expect("a link");
    let path = format!(
        "{}:{}:{}:{}",
        python.path().display(),
        programs.display(),
        examples.display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let variables: Vec<_> = variables.iter().copied().chain([("PATH", &*path)]).collect();
    run_parts(&format!("examples/classic-modules/{page}"), &[], &variables);
}

/// Whether a command succeeds, without which a test leaves out what it is for. Where `CI` is set it must.
pub(super) fn works(command: &str) -> bool {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdout(Stdio::null()).stderr(Stdio::null());
    let works = shell.status().expect("a shell").success();
    if !works {
        assert!(std::env::var_os("CI").is_none_or(|value| value.is_empty()), "it does not work: {command}");
        let thread = std::thread::current();
        let test = thread.name().unwrap_or("a test");
        // Not by `eprintln`, which the test harness keeps to itself for tests that pass.
        let line = format!("skipped {test}: it does not work: {command}\n");
        io::stderr().write_all(line.as_bytes()).expect("stderr");
    }
    works
}

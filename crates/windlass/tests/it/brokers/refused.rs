//! Names and kinds that a broker cannot have are refused when the program starts, where no broker can be reached.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::site::{PROGRAM, script, text, until_within};

/// Far more than a program needs that does nothing.
const PATIENCE: Duration = Duration::from_secs(20);

/// A program that is to end by itself, and is killed if it does not.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the program says as it ends.
fn refused(arguments: &[&str], folder: &Path) -> String {
    let said = folder.join("stderr");
    let mut command = Command::new(PROGRAM);
    command.args(arguments).stdout(Stdio::null()).stderr(std::fs::File::create(&said).unwrap());
    let mut program = Program(command.spawn().unwrap());
    let status = until_within(PATIENCE, "it ends", || program.0.try_wait().unwrap());
    let said = text(&std::fs::read(&said).unwrap());
    assert_eq!(status.code(), Some(1), "{said}");
    said
}

#[test]
fn a_configuration_that_a_broker_cannot_have_is_refused_with_its_section() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("windlass.toml");
    let long = format!("queue = \"{}\"", "x".repeat(248));
    for (section, broker, settings, key, words) in [
        ("[queues.far]", "redis", "kind = \"heap\"", "kind", "a stream, a list or a reliable-list"),
        ("[queues.far]", "amqp", "kind = \"stream\"", "kind", "use quorum, single-active, classic or plain"),
        ("[queues.far]", "amqp", "results = \"amq.r\"", "results", "belong to the server"),
        ("[queues.far]", "kafka", "kind = \"list\"", "kind", "leave the kind out"),
        ("[queues.far]", "kafka", "queue = \"no/body\"", "queue", "letters, digits, dots"),
        (
            "[queues.far]",
            "kafka",
            long.as_str(),
            "queue",
            "x-dead, which the broker does not accept: use another name",
        ),
        ("[queues.far]", "sqs+http", "kind = \"fifo\"", "kind", "end in .fifo"),
        ("[[intake]]", "sqs+http", "queue = \"no.body\"", "queue", "1 to 80 letters"),
        (
            "[[intake]]",
            "amqp",
            "queue = \"orders\"\nkind = \"list\"",
            "kind",
            "use quorum, single-active, classic or plain",
        ),
        (
            "[[intake]]",
            "amqp",
            "queue = \"orders\"\nleader = { coordinator = \"nacos://u:secret@h\", name = \"a\" }",
            "leader",
            "must start with one of consul://, consuls://, etcd://, etcds://, zookeeper://",
        ),
        (
            "[[intake]]",
            "amqp",
            "queue = \"orders\"\nleader = { coordinator = \"etcd://u:secret@h\", name = \"a\", lease = \"1s\" }",
            "leader",
            "invalid lease",
        ),
        ("[events]", "redis", "topic = \"e\"\nkind = \"list\"", "kind", "can be a stream"),
        ("[events]", "kafka", "topic = \"no/body\"", "topic", "letters, digits, dots"),
    ] {
        let config = format!("{section}\nbroker = \"{broker}://u:secret@127.0.0.1:1\"\n{settings}\n");
        std::fs::write(&file, config).unwrap();
        let file = file.display().to_string();
        let arguments = ["server", "--listen", "127.0.0.1:0", "--store", "memory:", "--config", &file];
        let said = refused(&arguments, dir.path());
        assert!(said.contains(section) && said.contains(&format!("`{key}`: ")), "{section} {key}: {said}");
        assert!(said.contains(words) && !said.contains("secret"), "{words}: {said}");
    }
}

#[test]
fn a_broker_that_cannot_be_meant_is_refused_with_its_section() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("windlass.toml");
    for (section, settings, broker, words) in [
        ("[queues.far]", "", "redis://u:secret@h:port", "its port"),
        ("[queues.far]", "", "redis://u:secret@h/one", "its database"),
        ("[queues.far]", "", "redis://u:secret@h?user=x", "after the ?"),
        ("[queues.far]", "", "redis://u:secret%zz@h", "%25"),
        ("[queues.far]", "", "amqp://u:secret@h?heartbeat=x", "heartbeat is a number"),
        ("[queues.far]", "", "amqp://u:secret%zz@h", "%25"),
        ("[[intake]]", "queue = \"orders\"", "http://u:secret@h", "must start with one of"),
        ("[events]", "topic = \"e\"", "kafka://u:secret@h?x=y", "unknown parameter"),
    ] {
        std::fs::write(&file, format!("{section}\nbroker = \"{broker}\"\n{settings}\n")).unwrap();
        let file = file.display().to_string();
        let arguments = ["server", "--listen", "127.0.0.1:0", "--store", "memory:", "--config", &file];
        let said = refused(&arguments, dir.path());
        let place = format!("in the configuration file: in {} section {section}", article(section));
        assert!(said.contains(&place) && said.contains("`broker`: "), "{broker}: {said}");
        assert!(said.contains(words) && !said.contains("secret"), "{words}: {said}");
    }
}

/// Of a section that there can be several of, or one.
fn article(section: &str) -> &'static str {
    if section.starts_with("[[") { "a" } else { "the" }
}

#[test]
fn a_worker_is_refused_what_its_broker_cannot_have() {
    let dir = tempfile::tempdir().unwrap();
    let modules = dir.path().join("modules");
    std::fs::create_dir_all(modules.join("far")).unwrap();
    script(&modules.join("far/check"), "");
    let modules = modules.display().to_string();
    for (broker, option, value, key, words) in [
        ("redis", "--queue-kind", "heap", "--queue-kind", "a stream, a list or a reliable-list"),
        ("kafka", "--queue", "far=no/body", "--queue far=…", "letters, digits, dots"),
        ("sqs+http", "--results", "no.body", "--results", "1 to 80 letters"),
    ] {
        let url = format!("{broker}://u:secret@127.0.0.1:1");
        let arguments = ["worker", "--modules", &modules, "--broker", &url, option, value];
        let said = refused(&arguments, dir.path());
        assert!(said.contains(&format!("`{key}`: ")) && said.contains(words), "{key}: {said}");
        assert!(said.contains("127.0.0.1:1") && !said.contains("secret"), "{said}");
    }
    let on_redis = ["worker", "--modules", &modules, "--broker", "redis://127.0.0.1:1", "--queue", "far=a"];
    let twice = refused(&[&on_redis[..], &["--queue", "far=b"]].concat(), dir.path());
    assert!(twice.contains("`--queue far=a` and `--queue far=b`"), "{twice}");
    let both = refused(&[&on_redis[..], &["--results", "a"]].concat(), dir.path());
    assert!(both.contains("results (`--results`) and for the module far (`--queue far=…`)"), "{both}");
}

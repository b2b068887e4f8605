//! The pages that people paste commands from: their `sh` blocks are run one after the other in one shell, against
//! a real server, and what they print is compared with the block that follows.
//!
//! A block that is one line beginning with `windlass server` or `windlass dev` is started beside the shell and
//! lives until the end of the page. In an expected block `…` matches anything, and white space does not count:
//! answers of the server are one line, and pages show them on several.

mod blocks;
#[cfg(all(feature = "kafka", feature = "rabbitmq", feature = "redis", feature = "sqs"))]
mod modules;
mod shell;
#[cfg(all(feature = "kafka", feature = "rabbitmq", feature = "redis", feature = "sqs"))]
mod single_consumer;

use std::{fs, path::Path};

use windlass_testkit::{Consul, MariaDb, Postgres};

use self::{
    blocks::{blocks, matches},
    shell::Shell,
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_windlass");

#[test]
fn with_curl_alone() {
    run("docs/reference/curl.md");
}

#[test]
fn two_minutes_of_the_readme() {
    run("README.md");
}

#[test]
fn tutorial_of_a_first_task() {
    run("docs/tutorial/1-first-task.md");
}

#[test]
fn tutorial_of_a_first_rollback() {
    run("docs/tutorial/2-first-rollback.md");
}

#[test]
fn tutorial_of_a_first_worker() {
    run("docs/tutorial/3-first-worker.md");
}

#[test]
fn tutorial_of_a_first_fan_out() {
    run("docs/tutorial/4-first-fan-out.md");
}

#[test]
fn tutorial_of_going_to_postgresql() {
    let Some(server) = Postgres::shared().unwrap() else { return };
    let database = server.database().unwrap();
    let url = database.url();
    run_parts("docs/tutorial/5-postgresql.md", &[], &on_postgres(&url));
}

#[test]
fn guide_to_idempotency() {
    run("docs/guides/idempotency.md");
}

#[test]
fn guide_to_rollbacks() {
    run("docs/guides/rollbacks.md");
}

#[test]
fn guide_to_errors() {
    run("docs/guides/errors.md");
}

#[test]
fn guide_to_fairness() {
    run("docs/guides/fairness.md");
}

#[test]
fn guide_to_approvals() {
    run("docs/guides/approvals.md");
}

#[test]
fn guide_to_secrets() {
    run("docs/guides/secrets.md");
}

#[test]
fn metrics() {
    run("docs/reference/metrics.md");
}

#[test]
fn triggers() {
    run("docs/concepts/triggers.md");
}

#[test]
fn access_tokens() {
    run("docs/operate/access.md");
}

#[test]
fn tls() {
    run("docs/operate/tls.md");
}

#[test]
fn rollouts() {
    run("docs/operate/rollouts.md");
}

#[test]
fn a_fan_out_over_files() {
    run("examples/fan-out/README.md");
}

#[test]
fn a_chord() {
    run("examples/chord/README.md");
}

#[test]
fn a_person_approves() {
    run("examples/approval/README.md");
}

#[test]
fn a_saga_over_a_diamond() {
    run("examples/diamond-saga/README.md");
}

#[test]
fn a_fleet_update_by_child_tasks() {
    run("examples/fleet-update/README.md");
}

#[test]
fn a_real_postgres_instance() {
    if Postgres::is_installed().unwrap() {
        run("examples/postgres-instance/README.md");
    }
}

#[cfg(feature = "mqtt")]
#[test]
fn a_fleet_of_devices() {
    let Some(broker) = windlass_testkit::Mosquitto::start().unwrap() else { return };
    let port = broker.port().to_string();
    run_parts("examples/device-fleet/README.md", &[], &[("MQTT_PORT", &port)]);
}

#[test]
fn tasks_by_sql_with_postgresql() {
    let Some(server) = Postgres::shared().unwrap() else { return };
    let database = server.database().unwrap();
    let url = database.url();
    run_parts("docs/reference/sql.md", &["PostgreSQL", "What is refused"], &on_postgres(&url));
}

#[test]
fn tasks_by_sql_with_mariadb() {
    let Some(server) = MariaDb::shared().unwrap() else { return };
    let database = server.database().unwrap();
    let (url, port, name) = (database.url(), server.port(), database.name());
    let connection = format!("--protocol=tcp --host=127.0.0.1 --port={port} --user=root --database={name}");
    let variables = [("WINDLASS_SERVER_STORE", &*url), ("CONNECTION", &*connection)];
    run_parts("docs/reference/sql.md", &["MariaDB and MySQL"], &variables);
}

#[test]
fn orders_and_their_tasks_in_one_transaction() {
    let Some(server) = Postgres::shared().unwrap() else { return };
    let database = server.database().unwrap();
    let url = database.url();
    run_parts("examples/transactional-enqueue/README.md", &[], &on_postgres(&url));
}

#[test]
fn a_task_list_in_consul() {
    let Some(server) = Consul::start().unwrap() else { return };
    let address = format!("127.0.0.1:{}", server.port());
    run_parts("docs/operate/consul-task-list.md", &[], &[("CONSUL", &address)]);
}

fn on_postgres(url: &str) -> [(&'static str, &str); 2] {
    [("WINDLASS_SERVER_STORE", url), ("DATABASE", url)]
}

/// Runs the blocks of a page; those of an example run in a copy of its folder.
fn run(page: &str) {
    run_parts(page, &[], &[]);
}

/// Runs the blocks under these headings, or all of them, with these variables.
fn run_parts(page: &str, headings: &[&str], variables: &[(&str, &str)]) {
    let page_path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    let text = fs::read_to_string(&page_path).expect(page);
    let mut blocks = blocks(&text);
    blocks.retain(|block| headings.is_empty() || headings.contains(&&*block.heading));
    assert!(!blocks.is_empty(), "{page} has no commands");
    let mut shell = Shell::start(variables);
    if page.starts_with("examples/") {
        copy(page_path.parent().expect("a folder"), shell.folder.path());
    }
    let mut servers = Vec::new();
    for block in &blocks {
        let place = format!("{page}:{}", block.line);
        if let Some(server) = block.server() {
            servers.push(shell.start_server(&server));
            continue;
        }
        let printed = shell.run(&block.script, &place);
        if let Some(expected) = &block.expected
            && let Err(missing) = matches(expected, &printed)
        {
            panic!("{place}: expected {missing:?} in what it printed:\n{printed}");
        }
    }
}

/// Copies what is in a folder, with its permissions.
fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let copied = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            fs::create_dir(&copied).expect("create a folder");
            copy(&entry.path(), &copied);
        } else {
            fs::copy(entry.path(), &copied).expect("copy a file");
        }
    }
}

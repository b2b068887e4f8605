//! The set-ups of `examples/single-consumer`.

use std::{os::unix::fs::symlink, path::Path};

use windlass_testkit::{Consul, HaProxy, Postgres, RabbitMq, ZooKeeper};

use super::{
    PROGRAM,
    modules::{PYTHON, works},
    on_postgres, run_parts,
};

#[test]
fn with_the_store_alone() {
    let Some(server) = Postgres::shared().unwrap() else { return };
    if HaProxy::is_installed().unwrap() {
        let database = server.database().unwrap();
        run_parts("examples/single-consumer/README.md", &[], &on_postgres(&database.url()));
    }
}

#[test]
fn with_a_task_list_in_consul() {
    let (Some(server), Some(consul)) = (Postgres::shared().unwrap(), Consul::start().unwrap()) else {
        return;
    };
    if !HaProxy::is_installed().unwrap() || !works("python3 --version && curl --version") {
        return;
    }
    let database = server.database().unwrap();
    let variables = [
        ("DATABASE", database.url()),
        // Nobody listens on the first address.
        ("CONSUL", format!("127.0.0.1:1,127.0.0.1:{}", consul.port())),
        ("LEASE", "4s".to_owned()),
    ];
    run_parts(
        "examples/single-consumer/consul.md",
        &[],
        &variables.each_ref().map(|(name, value)| (*name, &**value)),
    );
}

#[test]
fn with_rabbitmq_behind_haproxy() {
    let (Some(server), Some(broker)) = (Postgres::shared().unwrap(), RabbitMq::shared().unwrap()) else {
        return;
    };
    let Some(haproxy) = HaProxy::in_front_of(&[broker.port()]).unwrap() else { return };
    let Some(zookeeper) = ZooKeeper::shared().unwrap() else { return };
    if !works(&format!("{PYTHON} -c 'import pika'")) {
        return;
    }
    let database = server.database().unwrap();
    // The Python that has the package comes first.
    let python = tempfile::tempdir().expect("temporary folder");
    symlink(PYTHON, python.path().join("python3")).expect("a link");
    let programs = Path::new(PROGRAM).parent().expect("a folder");
    let inherited = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{}:{inherited}", python.path().display(), programs.display());
    let variables = [
        ("DATABASE", database.url()),
        ("BROKER", broker.url_at(haproxy.port())),
        ("COORDINATOR", format!("zookeeper://127.0.0.1:{}", zookeeper.port())),
        ("PATH", path),
    ];
    run_parts(
        "examples/single-consumer/rabbitmq.md",
        &[],
        &variables.each_ref().map(|(name, value)| (*name, &**value)),
    );
}

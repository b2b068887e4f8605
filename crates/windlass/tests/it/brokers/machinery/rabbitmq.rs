//! Clients and workers of the library over RabbitMQ, with the names that they use there by default.

use std::process::Stdio;

use serde_json::{Value, json};
use windlass_brokers::Queue;
use windlass_testkit::{RabbitMq, machinery};

use super::{
    Shop, addition_before, configured, kill_all, restart_server, section, send_the_example, signature,
    start_example_worker, whole, workers_of_the_library_run_steps,
};
use crate::{
    brokers::{Far, PATIENCE, block_on},
    site::{Site, text, until_within},
};

/// The URL of a virtual host of its own, on the shared server. `None` where RabbitMQ is missing.
fn virtual_host(name: &str) -> Option<String> {
    virtual_host_for(name, ".*")
}

/// The same, where only what has such a name can be created.
fn virtual_host_for(name: &str, names: &str) -> Option<String> {
    let server = RabbitMq::shared().unwrap()?;
    let made = format!(
        "rabbit_vhost:add(<<\"{name}\">>, <<\"test\">>), rabbit_auth_backend_internal:set_permissions(<<\"guest\">>, \
         <<\"{name}\">>, <<\"{names}\">>, <<\".*\">>, <<\".*\">>, <<\"test\">>)"
    );
    server.evaluate(&made).unwrap();
    Some(format!("{}{name}", server.url().trim_end_matches("%2F")))
}

/// A server for clients in a virtual host, with the modules of the example, once it has its queue: what clients send before
/// that goes nowhere else either.
fn shop(name: &str, url: &str) -> Site {
    let mut site = configured(&section(url, ""));
    start_example_worker(&mut site);
    let server = RabbitMq::shared().unwrap().unwrap();
    let bindings = format!("length(rabbit_binding:list(<<\"{name}\">>))");
    // The second is that of every queue, with the default exchange.
    until_within(PATIENCE, "the queue is bound", || {
        (server.evaluate(&bindings).unwrap() == "2").then_some(())
    });
    site
}

/// Sends a signature as clients do.
fn send(url: &str, signature: &Value) {
    let broker = windlass_brokers::signature_broker(url, "machinery_exchange").unwrap();
    block_on(broker.send("machinery_tasks", &signature.to_string(), None)).unwrap();
}

#[test]
fn clients_of_the_library_get_their_results() {
    const NAME: &str = "machinery-clients";
    let Some(url) = virtual_host(NAME) else { return };
    let _site = shop(NAME, &url);
    send_the_example(&url);
}

#[test]
fn workers_that_use_the_library_run_steps_and_none_is_lost_when_one_is_killed() {
    let Some(url) = virtual_host("machinery-workers") else { return };
    workers_of_the_library_run_steps(&url, &url);
}

#[test]
fn what_follows_and_can_have_no_queue_fails() {
    const NAME: &str = "machinery-names";
    let Some(url) = virtual_host(NAME) else { return };
    let Some(mut shop) = Shop::over(&url) else { return };
    start_example_worker(&mut shop.site);
    let follows = |uuid: &str, queue: &str, eta: &str| {
        signature(uuid, "report", json!({ "RoutingKey": queue, "ETA": eta }))
    };
    let first = addition_before(&[
        follows("task_long", &"q".repeat(256), "2020-01-01T00:00:00Z"),
        follows("task_delayed", &"q".repeat(250), "2099-01-01T00:00:00Z"),
        follows("task_reserved", "amq.queue", "2020-01-01T00:00:00Z"),
    ]);
    send(&url, &first);
    assert_eq!(shop.results("task_a"), json!([whole(42)]));
    shop.fails("task_long", "more than 255 bytes");
    shop.fails("task_delayed", "more than 255 bytes");
    shop.fails("task_reserved", "belong to the server");
}

#[test]
fn what_follows_a_refusal_fails_if_the_broker_refuses_it() {
    const NAME: &str = "machinery-refused";
    let Some(url) = virtual_host_for(NAME, "^(?!forbidden)") else { return };
    let Some(shop) = Shop::over(&url) else { return };
    let follows = |uuid: &str, queue: &str| signature(uuid, "report", json!({ "RoutingKey": queue }));
    let refused = signature(
        "task_a",
        "add",
        json!({
            "Args": [{ "Type": "complex", "Value": 1 }],
            "OnError": [follows("task_b", "forbidden"), follows("task_c", "errors")],
        }),
    );
    send(&url, &refused);
    shop.fails("task_a", "complex");
    shop.fails("task_b", "it cannot be sent: the broker refuses");
    let errors = Queue { name: "errors".to_owned(), kind: Some("plain".to_owned()) };
    let told: Value = serde_json::from_str(&Far::receive_from(&url, &errors)).unwrap();
    assert_eq!(told["UUID"], "task_c");
    assert_eq!(shop.document("task_c").unwrap()["State"], "PENDING");
}

#[test]
fn a_client_gets_all_its_results_when_the_server_and_the_worker_are_killed() {
    // The client makes a connection each time it looks for a result.
    const TASKS: usize = 50;
    const NAME: &str = "machinery-kills";
    let Some(url) = virtual_host(NAME) else { return };
    let Some(mut client) = machinery().unwrap() else { return };
    let mut site = shop(NAME, &url);
    let client = client.args(["many", &url, &TASKS.to_string()]).stdout(Stdio::piped()).spawn().unwrap();
    let succeeded = |site: &Site| {
        let tasks = site.json(&["task", "list", "--status", "succeeded", "--limit", "1000"]);
        tasks["items"].as_array().unwrap().len()
    };
    until_within(PATIENCE, "half of the tasks have run", || (succeeded(&site) >= TASKS / 2).then_some(()));
    kill_all(&mut site);
    restart_server(&mut site);
    start_example_worker(&mut site);
    let output = client.wait_with_output().unwrap();
    let printed = text(&output.stdout);
    assert!(output.status.success() && printed.contains(&format!("right {TASKS}")), "{printed}");
    assert_eq!(succeeded(&site), TASKS, "each has started one task");
}

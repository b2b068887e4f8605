//! Clients and workers of the library over RabbitMQ, with the names that they use there by default.

use std::process::Stdio;

use windlass_testkit::{RabbitMq, machinery};

use super::{
    configured, kill_all, restart_server, section, send_the_example, start_example_worker,
    workers_of_the_library_run_steps,
};
use crate::{
    brokers::PATIENCE,
    site::{Site, text, until_within},
};

/// The URL of a virtual host of its own, on the shared server. `None` where RabbitMQ is missing.
fn virtual_host(name: &str) -> Option<String> {
    let server = RabbitMq::shared().unwrap()?;
    let made = format!(
        "rabbit_vhost:add(<<\"{name}\">>, <<\"test\">>), rabbit_auth_backend_internal:set_permissions(<<\"guest\">>, \
         <<\"{name}\">>, <<\".*\">>, <<\".*\">>, <<\".*\">>, <<\"test\">>)"
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

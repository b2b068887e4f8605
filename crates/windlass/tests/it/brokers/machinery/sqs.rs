//! Clients and workers of the library over SQS, with Redis for results.

use serde_json::{Value, json};
use windlass_testkit::{ElasticMq, Redis};

use super::{
    Shop, addition_before, send_the_example, signature, start_example_worker, whole,
    workers_of_the_library_run_steps,
};
use crate::{
    brokers::{Far, PATIENCE},
    site::until_within,
};

/// SQS, and a server for clients with the modules of the example. `None` where SQS or Redis is missing.
fn shop() -> Option<(ElasticMq, Shop)> {
    let server = ElasticMq::start().unwrap()?;
    let mut shop = Shop::over(&server.url())?;
    start_example_worker(&mut shop.site);
    // The library does not create queues.
    until_within(PATIENCE, "the queue is there", || {
        let answer = server.ask("Action=GetQueueUrl&QueueName=machinery_tasks").ok()?;
        answer.contains("GetQueueUrlResult").then_some(())
    });
    Some((server, shop))
}

/// What the library has as its URLs.
fn of_library(server: &ElasticMq, redis: &Redis) -> String {
    format!("{},{}", server.queue_urls().unwrap(), redis.url())
}

#[test]
fn clients_of_the_library_get_their_results() {
    let Some((server, shop)) = shop() else { return };
    send_the_example(&of_library(&server, &shop.redis));
}

#[test]
fn what_follows_goes_to_its_queue_and_what_cannot_be_sent_fails() {
    let Some((server, shop)) = shop() else { return };
    let follows = |uuid: &str, queue: &str, eta: Value| {
        signature(uuid, "report", json!({ "RoutingKey": queue, "ETA": eta, "BrokerMessageGroupId": "g" }))
    };
    let first = addition_before(&[
        follows("task_late", "reports", json!("2099-01-01T00:00:00Z")),
        follows("task_far", "reports", json!("9999-01-01T00:00:00Z")),
        signature(
            "task_nowhere",
            "report",
            json!({ "RoutingKey": "a.b", "OnError": [follows("task_told", "errors", Value::Null)] }),
        ),
        follows("task_b", "reports", Value::Null),
        follows("task_c", "reports.fifo", json!("2099-01-01T00:00:00Z")),
    ]);
    Far::publish(&server.url(), "machinery_tasks", &[&first.to_string()]);
    assert_eq!(shop.results("task_a"), json!([whole(42)]));
    for (queue, uuid) in [("reports", "task_b"), ("reports.fifo", "task_c")] {
        let sent: Value = serde_json::from_str(&Far::receive(&server.url(), queue)).unwrap();
        assert_eq!((&sent["UUID"], &sent["Args"]), (&json!(uuid), &json!([whole(42)])));
        assert_eq!(shop.document(uuid).unwrap()["State"], "PENDING");
    }
    let told: Value = serde_json::from_str(&Far::receive(&server.url(), "errors")).unwrap();
    let why = &told["Args"][0]["Value"];
    assert!(
        told["UUID"] == "task_told" && why.as_str().unwrap().contains("cannot be a queue of SQS"),
        "{told}"
    );
    shop.fails("task_late", "900 s at most");
    shop.fails("task_far", "900 s at most");
    shop.fails("task_nowhere", "cannot be a queue of SQS");
}

#[test]
fn workers_that_use_the_library_run_steps_and_none_is_lost_when_one_is_killed() {
    let Some(server) = ElasticMq::start().unwrap() else { return };
    let Some(redis) = Redis::start().unwrap() else { return };
    workers_of_the_library_run_steps(&server.url(), &of_library(&server, &redis));
}

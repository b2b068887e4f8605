//! Without a server: results go to a queue.

use std::sync::{Arc, Mutex, atomic::Ordering};

use serde_json::{Value, json};
use windlass_brokers::{Message, REASON_HEADER};
use windlass_client::{Failure, Job, Outcome, Secrets, api::TOKEN_HEADER};

use super::{Bench, counting, step, step_with, step_without};
use crate::support::{RunningWorker, handler};

#[tokio::test]
async fn secrets_are_replaced_for_the_handler_and_hidden_in_its_results() {
    let Some(bench) = Bench::start("secrets") else { return };
    bench.publish([step_with("a", &json!({"Parameters": {"password": "secret://hunter2-9f3c"}}))]).await;
    let handler = handler(|job| async move {
        let params: Value = job.params().unwrap();
        assert_eq!(params["password"], "hunter2-9f3c");
        Outcome::succeeded(&json!({"said": format!("it is {}", params["password"])}))
    });
    // The program prints the name.
    let builder = bench.one_way(handler).secrets(Secrets::new().command("echo"));
    let worker = RunningWorker::start_built(builder.build().unwrap());
    let result = &bench.results(2).await[1];
    assert_eq!(result["Event"], "succeeded");
    let said = result.to_string();
    assert!(said.contains("secret://hunter2-9f3c") && !said.contains("\"hunter2"), "{said}");
    worker.drained().await.unwrap();
}

#[tokio::test]
async fn an_attempt_is_told_to_begin_and_to_end() {
    let Some(bench) = Bench::start("one-way") else { return };
    bench.publish([step("good")]).await;
    let worker = bench.start_one_way(handler(|job: Job| async move {
        match job.attempt.token.as_str() {
            "good" => Outcome::succeeded(&json!({"Ip": "10.0.0.7"})),
            _ => Outcome::Failed(Failure::new("no room").with_code(7)),
        }
    }));
    let told = |event: &str, code: i32, message: Value, token: &str| {
        json!({"TaskId": "t-1", "Cursor": 2, "Type": 1, "Event": event, "Code": code, "Message": message,
            "Token": token})
    };
    let mut succeeded = told("succeeded", 0, Value::Null, "good");
    succeeded["Parameters"] = json!({"Ip": "10.0.0.7"});
    assert_eq!(bench.results(2).await, [told("started", 0, Value::Null, "good"), succeeded]);
    bench.publish([step("bad")]).await;
    assert_eq!(
        bench.results(2).await,
        [told("started", 0, Value::Null, "bad"), told("failed", 7, json!("no room"), "bad")]
    );
    bench.emptied().await;
    worker.drained().await.unwrap();
}

#[tokio::test]
async fn a_list_has_no_headers_and_will_do() {
    let Some(server) = windlass_testkit::Redis::shared().unwrap() else { return };
    let bench = Bench::at(&server.url(), "list", Some("list"));
    server.ask(&["RPUSH", "client-list", &step("a").to_string(), "nonsense"]).unwrap();
    let (_, handler) = counting();
    let worker = bench.start_one_way(handler);
    let results = bench.results(2).await;
    assert_eq!((&results[1]["Event"], &results[1]["Token"]), (&json!("succeeded"), &json!("a")));
    let dead = bench.read(&bench.queue.dead(), 1).await;
    let document: Value = serde_json::from_slice(&dead[0].body).unwrap();
    assert_eq!(document["Message"], "nonsense");
    assert!(document["Reason"].as_str().unwrap().contains("not a step message"), "{document}");
    worker.drained().await.unwrap();
}

#[tokio::test]
async fn what_comes_twice_to_a_worker_runs_once() {
    let Some(bench) = Bench::start("twice") else { return };
    bench.publish([step("a"), step("a")]).await;
    let (ran, handler) = counting();
    let worker = bench.start_one_way(handler);
    bench.results(2).await;
    bench.emptied().await;
    bench.publish([step("a")]).await;
    bench.emptied().await;
    worker.drained().await.unwrap();
    assert_eq!((ran.load(Ordering::SeqCst), bench.left(&bench.results).await), (1, 0));
}

#[tokio::test]
async fn what_is_no_step_message_goes_to_the_dead_queue_with_the_reason() {
    let Some(bench) = Bench::start("unfit") else { return };
    bench.publish([json!("hello"), step_with("a", &json!({"Type": 7})), step("b")]).await;
    let (ran, handler) = counting();
    let worker = bench.start_one_way(handler);
    bench.emptied().await;
    worker.drained().await.unwrap();
    let dead = bench.read(&bench.queue.dead(), 2).await;
    let reasons: Vec<&str> = dead.iter().map(|message| message.header(REASON_HEADER).unwrap()).collect();
    assert!(reasons[0].contains("not a step message") && reasons[1].contains("Type is 7"), "{reasons:?}");
    assert_eq!((&*dead[0].body, ran.load(Ordering::SeqCst)), (&br#""hello""#[..], 1));
}

#[tokio::test]
async fn a_token_may_be_in_the_header() {
    let Some(bench) = Bench::start("header") else { return };
    let headed = step_without("", "Token").to_string();
    let message = Message::new("1", "t", headed).with_header(TOKEN_HEADER, "from.header");
    assert!(bench.broker.publish(&bench.queue, &[message]).await[0].is_ok());
    let (_, handler) = counting();
    let worker = bench.start_one_way(handler);
    assert!(bench.results(2).await.iter().all(|result| result["Token"] == "from.header"));
    worker.drained().await.unwrap();
}

#[tokio::test]
async fn a_module_tries_again_while_retries_and_time_are_left() {
    let Some(bench) = Bench::start("retries") else { return };
    let tries = Arc::new(Mutex::new(Vec::new()));
    let tried = tries.clone();
    let flaky = handler(move |job: Job| {
        let tried = tried.clone();
        async move {
            let try_of_it = {
                let mut tried = tried.lock().unwrap();
                tried.push((job.attempt.token.clone(), job.attempt.attempt));
                tried.iter().filter(|(token, _)| *token == job.attempt.token).count()
            };
            match (job.attempt.token.as_str(), try_of_it) {
                ("third", 3) => Outcome::Succeeded(None),
                ("third", 2) => panic!("the second try"),
                ("final", 2) => Outcome::Failed(Failure::permanent("it cannot be")),
                ("slow", 2) => {
                    job.cancelled().await;
                    Outcome::Failed(Failure::new("stopped"))
                }
                (_, try_of_it) => Outcome::Failed(Failure::new(format!("try {try_of_it}"))),
            }
        }
    });
    let worker = bench.start_one_way(flaky);
    for (token, changes, event, code, message) in [
        ("third", json!({"Retry": 3}), "succeeded", 0, None),
        ("never", json!({"Retry": 2}), "failed", 1, Some("try 3")),
        ("final", json!({"Retry": 9}), "failed", 65, Some("it cannot be")),
        ("slow", json!({"Retry": 9, "Timeout": 1}), "failed", 124, Some("timed out after 1s")),
    ] {
        bench.publish([step_with(token, &changes)]).await;
        let result = bench.results(2).await.pop().unwrap();
        assert_eq!((&result["Event"], &result["Code"]), (&json!(event), &json!(code)), "{result}");
        assert_eq!(result["Message"].as_str(), message);
    }
    worker.drained().await.unwrap();
    let tries = tries.lock().unwrap();
    let attempts: Vec<u32> = tries.iter().filter(|(token, _)| token == "third").map(|(_, n)| *n).collect();
    assert_eq!(attempts, [1, 2, 3]);
}

//! What is counted.

use serde_json::json;

use super::server::{Server, Worker};

#[tokio::test]
async fn what_passes_through_is_counted() {
    let server = Server::start().await;
    server.apply("f", "steps: [{ name: only, run: m.c }]").await;
    for _ in 0..2 {
        server.post("/v1/tasks", &json!({ "flow": "f", "key": "k" })).await;
    }
    server.submit("f", json!({})).await;
    server.submit("f", json!({})).await;
    let mut worker = Worker::new(&server, 1, &["m"]);
    let attempt = worker.run("succeeded", json!({})).await;
    assert_eq!(worker.report(&attempt, "succeeded", json!({})).await, "duplicate");
    worker.take().await;
    server.get("/v1/tasks/7").await;
    server.verb("/v1/queues/m/pause").await;

    let request =
        axum::http::Request::get("/metrics").header("accept", "application/openmetrics-text;q=0.8,*/*;q=0.1");
    let open = server.send(request.body(axum::body::Body::empty()).unwrap()).await;
    assert!(open.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    assert!(open.text.ends_with("# EOF\n") && open.text.matches("# EOF").count() == 1);
    let scraped = server.get("/metrics").await;
    assert_eq!(scraped.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    for line in [
        "windlass_tasks_accepted_total 3",
        "windlass_tasks_repeated_total 1",
        "windlass_commands_total{kind=\"pause_queue\"} 1",
        "windlass_attempts_handed_out_total 2",
        "windlass_reports_total{status=\"accepted\"} 1",
        "windlass_reports_total{status=\"duplicate\"} 1",
        "windlass_http_requests_total{route=\"/v1/tasks\",method=\"POST\",status=\"202\"} 3",
        "windlass_http_requests_total{route=\"/v1/tasks\",method=\"POST\",status=\"200\"} 1",
        "windlass_http_requests_total{route=\"/v1/tasks/{id}\",method=\"GET\",status=\"404\"} 1",
        "windlass_queue_ready{queue=\"m\"} 1",
        "windlass_queue_running{queue=\"m\"} 1",
        "windlass_queue_paused{queue=\"m\"} 1",
        "windlass_worker_sessions 1",
        "windlass_alarms_open 0",
    ] {
        assert!(scraped.text.lines().any(|found| found == line), "{line} is not in\n{}", scraped.text);
    }
    let value = |name: &str| -> u64 {
        let line = scraped.text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("{name}")).parse().unwrap()
    };
    assert!(value("windlass_commits_total") >= 6);
    assert!(value("windlass_commit_items_total") >= value("windlass_commits_total"));
    assert!(value("windlass_process_resident_memory_bytes") > 1_000_000);
}

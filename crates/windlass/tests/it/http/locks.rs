//! Locks over HTTP: who has them, who waits, and taking one away with a reason.

use serde_json::json;

use super::server::{Server, Worker};

const FLOW: &str = "
steps:
  - { name: write, run: disk.write, locks: [{ expression: \"'disk-' + disk\" }] }
";

#[tokio::test]
async fn a_lock_is_shown_handed_out_with_its_fence_and_taken_away() {
    let server = Server::start().await;
    server.apply("backup", FLOW).await;
    let first = server.submit("backup", json!({ "disk": "7" })).await;
    server.pass(1_000).await;
    let second = server.submit("backup", json!({ "disk": "7" })).await;
    server.pass(1_000).await;

    let list = server.get("/v1/locks").await.json();
    assert_eq!((list["items"][0]["name"].as_str(), list["next"].is_null()), (Some("disk-7"), true), "{list}");
    let lock = server.get("/v1/locks/disk-7").await.json();
    assert_eq!(
        (&lock["holder"]["task"], &lock["holder"]["step"]),
        (&json!(first), &json!("write")),
        "{lock}"
    );
    assert_eq!((&lock["waiting"], &lock["waiters"][0]["task"]), (&json!(1), &json!(second)), "{lock}");

    let attempt = Worker::new(&server, 1, &["disk"]).take().await;
    assert_eq!(attempt["task"], json!(first));
    let fence = &lock["holder"]["fence"];
    assert_eq!(attempt["locks"], json!([{ "name": "disk-7", "fence": fence }]), "{attempt}");

    let refused = server.post("/v1/locks/disk-7/release", &json!({ "reason": " " })).await;
    assert_eq!(refused.status, 400);
    assert!(refused.text.contains("why the lock is taken"), "{}", refused.text);
    let released = server.post("/v1/locks/disk-7/release", &json!({ "reason": "its machine is gone" })).await;
    let released = released.json();
    assert_eq!(
        (&released["former"]["task"], &released["former"]["fence"]),
        (&json!(first), fence),
        "{released}"
    );
    assert_eq!(released["lock"]["holder"]["task"], json!(second), "{released}");
    assert!(released["lock"]["holder"]["fence"].as_u64() > fence.as_u64(), "{released}");

    server.pass(1_000).await;
    let events = server.get(&format!("/v1/tasks/{first}/events")).await.json();
    let unlocked = events["items"].as_array().unwrap().iter().find(|event| event["kind"] == "step.unlocked");
    let unlocked = unlocked.unwrap_or_else(|| panic!("its history says so: {events}"));
    assert_eq!(unlocked["data"]["reason"], json!("its machine is gone"), "{unlocked}");

    let unknown = server.get("/v1/locks/other").await;
    assert_eq!(unknown.status, 404);
    assert!(unknown.text.contains("unknown-lock"), "{}", unknown.text);
}

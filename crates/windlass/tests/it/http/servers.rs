//! Which servers there are.

use serde_json::json;
use windlass_engine::services::Membership;
use windlass_store::{ServerId, ServerState};

use super::server::Server;

#[tokio::test]
async fn servers_are_listed_with_the_one_that_answers() {
    let server = Server::start().await;
    assert_eq!(server.get("/v1/servers").await.json(), json!({ "items": [], "next": null }));
    let now = server.app.clock.now();
    let me = ServerState {
        id: ServerId(7),
        version: "1.2.3".into(),
        address: "http://north:7700".into(),
        level: 1,
        started_at: now.wall,
        heard_at: now.wall,
        heard: now.mono,
    };
    let membership = Membership::new(server.app.engine.clone(), me);
    membership.run_once(now).await.unwrap();
    let listed = json!({
        "id": "00000000-0000-0000-0000-000000000007",
        "version": "1.2.3",
        "address": "http://north:7700",
        "level": 1,
        "state": "up",
        "answers": true,
        "started_at": "2030-03-17T17:46:41Z",
        "last_seen_at": "2030-03-17T17:46:41Z",
    });
    assert_eq!(server.get("/v1/servers").await.json()["items"], json!([listed]));
    // It does not renew its entry in the store for a while.
    server.pass(5_000).await;
    let silent = server.get("/v1/servers").await.json();
    assert_eq!(silent["items"][0]["state"], "silent");
    membership.end().await.unwrap();
    assert_eq!(server.get("/v1/servers").await.json()["items"], json!([]));
    let refused = server.get("/v1/servers?limit=1").await;
    assert_eq!(refused.status, 400, "{}", refused.text);
}

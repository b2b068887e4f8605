//! Waiting for changes of keys.

use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::{Value, json};

use super::api::{Api, encode, encode_bytes, end_of};
use crate::{
    CoordinatorError,
    http::{PATIENCE_MAX, explain},
};

/// The longest line of the stream, in bytes: an event has one candidate in it.
const LINE_BYTES_MAX: usize = 1 << 20;

impl Api {
    /// Waits until this key, or a key that begins with it, is changed at or after a revision; for up to `wait`.
    /// It may return early: look again.
    pub(super) async fn change(
        &self,
        key: &str,
        is_folder: bool,
        from: u64,
        wait: Duration,
    ) -> Result<(), CoordinatorError> {
        let waiting = self.next_event(key, is_folder, from, wait);
        // The time is over when nothing has changed.
        tokio::time::timeout(wait, waiting).await.unwrap_or(Ok(()))
    }

    async fn next_event(
        &self,
        key: &str,
        is_folder: bool,
        from: u64,
        wait: Duration,
    ) -> Result<(), CoordinatorError> {
        let mut question = json!({ "create_request": { "key": encode(key), "start_revision": from } });
        if is_folder {
            question["create_request"]["range_end"] = json!(encode_bytes(&end_of(key)));
        }
        let request = self.request("watch", &question, wait.min(PATIENCE_MAX)).await?;
        let mut stream = self.http.open(&request).await?.bytes_stream();
        let mut line = Vec::new();
        while let Some(piece) = stream.next().await {
            let piece = piece.map_err(|error| CoordinatorError::Unavailable(explain(error)))?;
            for byte in piece {
                if byte != b'\n' {
                    line.push(byte);
                } else if is_news(&std::mem::take(&mut line)) {
                    return Ok(());
                }
            }
            if line.len() > LINE_BYTES_MAX {
                break;
            }
        }
        Err(CoordinatorError::Unavailable("etcd ended a watch".to_owned()))
    }
}

/// Whether a line is more than the confirmation that the watch began. A watch that etcd cancels, because it has
/// dropped the revision or for any other reason, may have missed something.
fn is_news(line: &[u8]) -> bool {
    let Ok(line) = serde_json::from_slice::<Value>(line) else { return true };
    let result = &line["result"];
    result["created"] != json!(true) || result["canceled"] == json!(true) || !line["error"].is_null()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_but_the_confirmation_is_news() {
        assert!(!is_news(br#"{"result":{"header":{},"created":true}}"#));
        for news in [
            r#"{"result":{"events":[{"type":"DELETE"}]}}"#,
            r#"{"result":{"created":true,"canceled":true,"compact_revision":"7"}}"#,
            r#"{"error":{"grpc_code":14}}"#,
            "x",
        ] {
            assert!(is_news(news.as_bytes()), "{news}");
        }
    }
}

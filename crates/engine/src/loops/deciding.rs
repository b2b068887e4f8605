//! Deciding and committing.

use std::sync::Arc;

use super::Timer;
use crate::{Committer, Engine};

/// Decides and commits what comes in.
pub async fn commit(engine: Arc<Engine>, committer: Committer, timer: impl Timer) {
    loop {
        engine.inbox().wait().await;
        while committer.run_once(|| timer.now()).await > 0 {}
    }
}

/// Decides and commits what comes in while another batch is under way, where servers share a store. A round trip costs as
/// much for one item as for many, so a few items wait for the other batch and go together.
pub async fn commit_many(engine: Arc<Engine>, committer: Committer, timer: impl Timer) {
    loop {
        engine.inbox().wait_for_many().await;
        committer.run_once(|| timer.now()).await;
    }
}

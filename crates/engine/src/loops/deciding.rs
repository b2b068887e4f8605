//! Deciding and committing.

use std::sync::Arc;

use super::Timer;
use crate::{Committer, Engine};

/// Decides and commits incoming operations.
pub async fn commit(engine: Arc<Engine>, committer: Committer, timer: impl Timer) {
    loop {
        engine.inbox().wait().await;
        while committer.run_once(|| timer.now()).await > 0 {}
    }
}

/// Decides and commits operations that arrive while another batch is in progress, where servers share a store. A round
/// trip costs as much for one item as for many, so a few items wait for the other batch and go together.
pub async fn commit_many(engine: Arc<Engine>, committer: Committer, timer: impl Timer) {
    loop {
        engine.inbox().wait_for_many().await;
        committer.run_once(|| timer.now()).await;
    }
}

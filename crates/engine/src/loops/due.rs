//! Leases, due work, and changes by other servers.

use std::sync::Arc;

use windlass_core::Millis;

use super::{Timer, wait_until_due};
use crate::{
    Engine,
    services::{ChangePoller, Dispatcher, LeaseKeeper, MESSAGES_MAX, Messenger, Reclaimer, Timekeeper},
};

/// The pause between two checks for attempts that other servers made ready. A store reports an attempt that arrives at
/// an empty queue, and sends no second report within half of this time.
const CHANGES_PAUSE: Millis = Millis(20);

/// Keeps leases. Nothing in this loop waits for a commit: a server that waits for a slow disk would look suspended.
pub async fn keep_leases(engine: Arc<Engine>, timer: impl Timer) {
    let lease_keeper = LeaseKeeper::new(engine.clone());
    loop {
        let kept = lease_keeper.run_once(timer.now()).await;
        if let Err(error) = &kept {
            tracing::warn!(%error, "leases could not be renewed in the store; trying again");
        }
        let wake = engine.next_poll_end(timer.now());
        wait_until_due(&timer, wake, kept.is_err(), engine.polls_closed().wait()).await;
    }
}

/// Processes due timers, reclaims attempts of workers that are gone, polls for changes of other servers, and hands out
/// attempts that became ready over time.
pub async fn keep_time(engine: Arc<Engine>, timer: impl Timer) {
    let timekeeper = Timekeeper::new(engine.clone());
    let reclaimer = Reclaimer::new(engine.clone());
    let change_poller = ChangePoller::new(engine.clone());
    let dispatcher = Dispatcher::new(engine.clone());
    loop {
        let results = [
            reclaimer.run_once(timer.now()).await.map(drop),
            timekeeper.run_once(timer.now()).await.map(drop),
            change_poller.run_once(timer.now()).await.map(drop),
            dispatcher.run_once(timer.now()).await.map(drop),
        ];
        let has_failed = results.iter().any(Result::is_err);
        for error in results.into_iter().filter_map(Result::err) {
            tracing::warn!(%error, "due work failed; trying again");
        }
        let wake = engine.next_wake(timer.now());
        wait_until_due(&timer, wake, has_failed, engine.timers().wait()).await;
    }
}

/// Delivers messages. A round may read many tasks and waits for its commit: timers do not wait for it.
pub async fn deliver_messages(engine: Arc<Engine>, timer: impl Timer) {
    let messenger = Messenger::new(engine.clone());
    loop {
        let delivered = messenger.run_once(timer.now()).await;
        if let Err(error) = &delivered {
            tracing::warn!(%error, "messages could not be delivered; trying again");
        }
        // After a full round more may wait, and delivering those need not send any.
        let wake = delivered.as_ref().is_ok_and(|count| *count >= MESSAGES_MAX).then_some(Millis(0));
        wait_until_due(&timer, wake, delivered.is_err(), engine.messages().wait()).await;
    }
}

/// Hands out attempts that other servers made ready, as soon as the store reports them.
pub async fn hear_changes(engine: Arc<Engine>, timer: impl Timer) {
    let dispatcher = Dispatcher::new(engine.clone());
    loop {
        engine.news().await;
        // Runs once more after the pause, for attempts that became ready in it without a report.
        for _ in 0..2 {
            if let Err(error) = dispatcher.run_once(timer.now()).await {
                tracing::warn!(%error, "attempts that other servers made ready could not be handed out; trying again");
            }
            timer.sleep(CHANGES_PAUSE).await;
        }
    }
}

//! Renews a leadership until its end.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{sync::watch, time::sleep};
use tracing::{debug, warn};
use windlass_coordinators::{Campaign, CoordinatorError, Leadership};

use super::term::State;
use crate::pacing::Pacing;

/// The longest pause between a renewal that failed and the next one.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The part of the time until leadership is at risk after which the next renewal is sent, so that several may
/// fail.
const RENEWAL_PART: u32 = 3;

/// Renews until the end, which it reports to `states`.
pub(super) async fn keep(leadership: Arc<dyn Leadership>, campaign: Campaign, states: watch::Sender<State>) {
    tokio::select! {
        () = renew(&*leadership, &campaign, &states) => {}
        () = leadership.ended() => {}
    }
    states.send_modify(State::ended);
    warn!(name = campaign.name, fence = leadership.fence(), "leadership has ended");
}

/// Returns when leadership is lost. Another failed renewal changes nothing: it is tried again.
async fn renew(leadership: &dyn Leadership, campaign: &Campaign, states: &watch::Sender<State>) {
    let every = campaign.renew_every();
    let mut pacing = Pacing::up_to(every.min(PAUSE_MAX));
    let mut pause = soon(every, states);
    loop {
        sleep(pause).await;
        let sent = Instant::now();
        match leadership.renew().await {
            Ok(()) => {
                states.send_modify(|state| state.renewed(sent, leadership.acts_until()));
                pacing.succeeded();
                pause = soon(every, states);
            }
            Err(error @ CoordinatorError::Lost(_)) => {
                debug!(name = campaign.name, %error, "a renewal was refused");
                return;
            }
            Err(error) => {
                warn!(name = campaign.name, %error, "a renewal failed; retrying");
                pause = pacing.failed();
            }
        }
    }
}

/// The pause before the next renewal: shorter than usual where a renewal gives little time.
fn soon(every: Duration, states: &watch::Sender<State>) -> Duration {
    let left = states.borrow().stops_at.saturating_duration_since(Instant::now());
    every.min(left / RENEWAL_PART)
}

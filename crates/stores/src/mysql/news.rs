//! How often to look for what other servers did: MySQL cannot notify them.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// While this server has nothing to do, or is the only one.
pub(super) const EVERY: Duration = Duration::from_millis(200);

/// While several servers are at work. A report may go to another server than the poll of a free worker. A step that it makes ready
/// is handed out when the server with the poll looks. Each look is a claim of two round trips, made only for polls that wait.
const EVERY_BUSY: Duration = Duration::from_millis(10);

/// A server is at work for so long after it has written or handed out something.
const BUSY_FOR: Duration = Duration::from_secs(1);

/// What says how soon to look.
#[derive(Debug, Default)]
pub(super) struct News {
    state: Mutex<State>,
}

#[derive(Debug, Default, Clone, Copy)]
struct State {
    worked_at: Option<Instant>,
    has_others: bool,
}

impl News {
    /// This server has written or handed out something.
    pub(super) fn worked(&self) {
        self.state().worked_at = Some(Instant::now());
    }

    /// So many servers are on the database.
    pub(super) fn count_servers(&self, count: usize) {
        self.state().has_others = count > 1;
    }

    /// Returns when it is time to look. Must be polled within the runtime.
    pub(super) async fn next(&self) {
        let pause = self.state().pause(Instant::now());
        tokio::time::sleep(pause).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn pause(self, now: Instant) -> Duration {
        let is_at_work = self.worked_at.is_some_and(|at| now.saturating_duration_since(at) < BUSY_FOR);
        if is_at_work && self.has_others { EVERY_BUSY } else { EVERY }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_work_beside_others_look_more_often() {
        let news = News::default();
        let pause = |later: Duration| {
            let state = *news.state();
            state.pause(state.worked_at.unwrap_or_else(Instant::now) + later)
        };
        news.count_servers(2);
        assert_eq!(pause(Duration::ZERO), EVERY, "it has nothing to do");
        news.worked();
        assert_eq!(pause(BUSY_FOR / 2), EVERY_BUSY);
        assert_eq!(pause(BUSY_FOR), EVERY);
        news.count_servers(1);
        assert_eq!(pause(Duration::ZERO), EVERY, "there is nobody else");
    }
}

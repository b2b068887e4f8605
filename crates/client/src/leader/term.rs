//! A view of a leadership.

use std::{fmt, time::Instant};

use tokio::{sync::watch, time::sleep_until};

/// The part of the time between the risk and the loss that is left for what is killed to end: 1 in 5.
const MARGIN_PART: u32 = 5;

/// One leadership, as others than its owner see it: cheap to clone. It keeps nothing alive: when its `Leader`
/// is dropped, the term is lost.
#[derive(Clone)]
pub struct Term {
    fence: u64,
    states: watch::Receiver<State>,
}

/// The bounds of a leadership after the last successful renewal.
#[derive(Debug, Clone, Copy)]
pub(super) struct State {
    pub(super) acts_until: Instant,
    pub(super) stops_at: Instant,
    pub(super) has_ended: bool,
}

impl State {
    /// The bounds of a leadership that begins now.
    pub(super) fn new(now: Instant, acts_until: Instant) -> Self {
        Self { acts_until, stops_at: stops_at(now, acts_until), has_ended: false }
    }

    /// A renewal sent at `sent` has succeeded.
    pub(super) fn renewed(&mut self, sent: Instant, acts_until: Instant) {
        self.acts_until = acts_until;
        self.stops_at = self.stops_at.max(stops_at(sent, acts_until));
    }

    /// Leadership has ended.
    pub(super) fn ended(&mut self) {
        self.has_ended = true;
        self.acts_until = self.acts_until.min(Instant::now());
    }

    fn is_over(&self) -> bool {
        self.has_ended || Instant::now() >= self.acts_until
    }
}

/// Two thirds of the time that a renewal gives have passed.
fn stops_at(sent: Instant, acts_until: Instant) -> Instant {
    sent + acts_until.saturating_duration_since(sent) * 2 / 3
}

impl Term {
    pub(super) fn new(fence: u64, states: watch::Receiver<State>) -> Self {
        Self { fence, states }
    }

    /// Higher than the fence of each earlier leader of this name under this coordinator. The owner of every
    /// effect must refuse fences below the highest one that it has seen.
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// Until then the leader may act, on the monotonic clock of this process: nobody else leads before. Each
    /// successful renewal moves it. It is in the past once the end is known.
    #[must_use]
    pub fn acts_until(&self) -> Instant {
        self.states.borrow().acts_until
    }

    /// When leadership is at risk, unless a renewal succeeds before: two thirds of the time that the last
    /// successful renewal gave have passed then.
    #[must_use]
    pub fn at_risk_at(&self) -> Instant {
        self.states.borrow().stops_at
    }

    /// When what still runs must be killed or dropped, so that it has surely ended when leadership is lost:
    /// between [`at_risk_at`](Self::at_risk_at) and [`acts_until`](Self::acts_until). In the past once the end
    /// is known.
    #[must_use]
    pub fn ends_work_at(&self) -> Instant {
        let state = *self.states.borrow();
        state.acts_until - state.acts_until.saturating_duration_since(state.stops_at) / MARGIN_PART
    }

    /// Whether no renewal has succeeded by [`at_risk_at`](Self::at_risk_at), or leadership is lost.
    #[must_use]
    pub fn is_at_risk(&self) -> bool {
        self.is_lost() || Instant::now() >= self.at_risk_at()
    }

    /// Whether leadership is lost.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.states.has_changed().is_err() || self.states.borrow().is_over()
    }

    /// Waits until no renewal has succeeded by [`at_risk_at`](Self::at_risk_at), or leadership is lost. Work
    /// that takes time to stop must begin to stop now: it has until [`acts_until`](Self::acts_until). A later
    /// renewal may still succeed.
    pub async fn at_risk(&self) {
        self.wait(|state| state.stops_at.min(state.acts_until)).await;
    }

    /// Waits until leadership is lost: the coordinator says so, its time is over without a renewal, or its
    /// `Leader` resigned or was dropped. Nothing may act any more.
    pub async fn lost(&self) {
        self.wait(|state| state.acts_until).await;
    }

    /// Waits for a successful renewal, or the end, since the last call. False if nobody renews any more.
    pub async fn changed(&mut self) -> bool {
        self.states.changed().await.is_ok()
    }

    /// Waits for a time that renewals move, or for the end.
    async fn wait(&self, due: impl Fn(&State) -> Instant) {
        let mut states = self.states.clone();
        loop {
            let state = *states.borrow_and_update();
            let due = due(&state);
            if state.has_ended || due <= Instant::now() {
                return;
            }
            tokio::select! {
                changed = states.changed() => if changed.is_err() { return },
                () = sleep_until(due.into()) => {}
            }
        }
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = self.acts_until().saturating_duration_since(Instant::now());
        f.debug_struct("Term").field("fence", &self.fence).field("left", &left).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LEFT: Duration = Duration::from_secs(9);

    fn term(state: State) -> (watch::Sender<State>, Term) {
        let (sender, states) = watch::channel(state);
        (sender, Term::new(7, states))
    }

    #[test]
    fn a_renewal_moves_both_bounds_and_none_backwards() {
        let start = Instant::now();
        let mut state = State::new(start, start + LEFT);
        assert_eq!(state.stops_at, start + LEFT * 2 / 3);
        state.renewed(start + LEFT / 9, start + LEFT * 10 / 9);
        assert_eq!(state.stops_at, start + LEFT * 7 / 9);
        // One that proves an earlier request only.
        state.renewed(start + LEFT / 3, start + LEFT * 10 / 9);
        assert_eq!(state.stops_at, start + LEFT / 3 + LEFT * 14 / 27);
        state.renewed(start, start + LEFT * 10 / 9);
        assert_eq!(state.stops_at, start + LEFT / 3 + LEFT * 14 / 27);
    }

    #[tokio::test]
    async fn risk_comes_before_the_loss_and_the_end_at_once() {
        let now = Instant::now();
        let (sender, term) = term(State::new(now, now + Duration::from_secs(3600)));
        assert!(!term.is_lost());
        sender.send_modify(State::ended);
        term.at_risk().await;
        term.lost().await;
        assert!(term.is_lost() && term.acts_until() <= Instant::now());
    }

    #[tokio::test]
    async fn a_term_without_a_leader_is_lost() {
        let now = Instant::now();
        let (sender, term) = term(State::new(now, now + Duration::from_secs(3600)));
        let lost = tokio::spawn({
            let term = term.clone();
            async move { term.lost().await }
        });
        tokio::task::yield_now().await;
        drop(sender);
        lost.await.unwrap();
        assert!(term.is_lost());
    }

    #[tokio::test]
    async fn a_leader_without_renewals_is_at_risk_and_then_lost() {
        let now = Instant::now();
        let (sender, term) = term(State::new(now, now + Duration::from_millis(60)));
        term.at_risk().await;
        assert!(Instant::now() >= now + Duration::from_millis(40));
        term.lost().await;
        assert!(Instant::now() >= now + Duration::from_millis(60) && term.is_lost());
        // Too late for what has ended.
        drop(sender);
    }
}

//! Claims: which session has which attempt, and for how long.

use async_trait::async_trait;

use super::{
    Adoption, AttemptId, ClaimRequest, Claimed, Leadership, Leave, Now, SessionId, SessionRenewal, StoreError,
};

/// What came of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimOutcome {
    /// These attempts are the session's.
    Claimed(Vec<Claimed>),
    /// The store had to read first, which took time, and claimed nothing: the time of a claim begins with its `now`. Ask
    /// again with the time that it is then.
    Later,
}

/// Hands ready attempts to sessions.
#[async_trait]
pub trait Claims: Send + Sync + 'static {
    /// Hands ready attempts to a session: of each claim request at most its number, smallest rank first where concurrency
    /// keys do not take turns, none that a limit keeps back, none of a paused queue. Each gets a higher claim number than
    /// any before. Returns nothing of a task that [`Store::quarantine`](super::Store::quarantine) names, up to a number
    /// that the store sets. A store may leave to other servers what `leave` names.
    async fn claim(
        &self,
        session: SessionId,
        claim_requests: &[ClaimRequest],
        leave: &Leave,
        now: Now,
    ) -> Result<ClaimOutcome, StoreError>;

    /// A session names attempts that it has: those that are current and not known to be another session's are its own from
    /// now on. Returns for each whether it is the session's.
    async fn adopt(
        &self,
        session: SessionId,
        attempts: &[AttemptId],
        now: Now,
    ) -> Result<Vec<Adoption>, StoreError>;

    /// A session gives an attempt back that it did not begin; it is free again, and [`windlass_core::Free`] decides what
    /// becomes of it. With `led` the leader of a service takes it from a session that is over; this is checked as in
    /// [`Store::commit_and_claim`](super::Store::commit_and_claim).
    async fn release(
        &self,
        session: SessionId,
        attempt: AttemptId,
        led: Option<Leadership>,
        now: Now,
    ) -> Result<(), StoreError>;

    /// Sessions were heard of, or polls of them ended; each session is named once.
    async fn renew(&self, sessions: Vec<SessionRenewal>, now: Now) -> Result<(), StoreError>;

    /// Gives every session a full new lease: this server was unavailable, so silence means nothing. A session that got
    /// [`EXTENSIONS_MAX`](super::EXTENSIONS_MAX) since it was last heard of gets none.
    async fn forgive(&self, now: Now) -> Result<(), StoreError>;

    /// The attempts that a session has.
    async fn held(&self, session: SessionId) -> Result<Vec<Claimed>, StoreError>;

    /// The attempts that these sessions have and are to stop: [`windlass_core::Free::GiveUp`] would become of them if they
    /// were free.
    async fn to_stop(&self, sessions: &[SessionId]) -> Result<Vec<Claimed>, StoreError>;

    /// At most `limit` attempts whose session's lease has ended. They are returned again until they are settled.
    async fn lost(&self, now: Now, limit: usize) -> Result<Vec<Claimed>, StoreError>;
}

//! Deletes rows whose retention has ended, a few at a time, and frees the locks of leaders that died.

mod kept_messages;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass_core::{LockName, Millis, Timestamp};
use windlass_store::{
    Change, JournalKind, LockChange, Now, Outcome, RecordKind, Retention, Service, SizeQuery,
};

use super::leading::Led;
use crate::{Engine, EngineError, ROLLOUTS_MAX, RoundsOf, commands::rollouts::ReadRollout, decode_rollout};
use kept_messages::KeptMessages;

/// The maximum number of rows deleted in one round, so that a round does not block the writer for long.
const ROUND_MAX: usize = 500;

/// Sizes of messages read at once, and how often in one round.
const PAGE: usize = 10_000;
const PAGES_MAX: usize = 100;

/// Messages are counted in parts of this share of what is kept.
const PARTS: u64 = 256;

/// The bytes of messages of devices that are kept, unless the settings say otherwise.
pub const MESSAGE_BYTES_KEPT: u64 = 256 << 20;

/// Deletes rows whose retention has ended.
pub struct Janitor {
    engine: Arc<Engine>,
    retention: Retention,
    message_bytes: u64,
    /// The messages that are kept, while this server deletes rows.
    messages: Mutex<KeptMessages>,
    /// The monotonic time of this process.
    uptime: Box<dyn Fn() -> Millis + Send + Sync>,
    /// How far it has looked for leaders that died.
    looked_up_to: Mutex<Option<LockName>>,
}

impl Janitor {
    /// A janitor of `engine`. `uptime` is the monotonic time of this process, which does not follow the clock of a store.
    #[must_use]
    pub fn new(
        engine: Arc<Engine>,
        retention: Retention,
        uptime: impl Fn() -> Millis + Send + Sync + 'static,
    ) -> Self {
        Self {
            engine,
            retention,
            message_bytes: MESSAGE_BYTES_KEPT,
            messages: Mutex::default(),
            uptime: Box::new(uptime),
            looked_up_to: Mutex::default(),
        }
    }

    /// Keeps messages of devices of at most `message_bytes` bytes, whatever their age; [`MESSAGE_BYTES_KEPT`] where this is not called.
    #[must_use]
    pub fn message_bytes(self, message_bytes: u64) -> Self {
        Self { message_bytes, ..self }
    }

    /// Deletes a bounded number of rows. Returns their number; if it is not 0, more may be left.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn run_once(&self, now: Now) -> Result<u64, EngineError> {
        let round = |led| self.round(led, now);
        self.engine.round_of(RoundsOf::Janitor, Service::Sweeping, now, round).await
    }

    async fn round(&self, led: Led, now: Now) -> Result<u64, EngineError> {
        let retention = Retention { messages_until: self.messages_until(now).await?, ..self.retention };
        let swept = self.engine.store.sweep(&retention, led.lease, now, ROUND_MAX).await?;
        let deposed = self.depose_dead_leaders().await?;
        Ok(swept
            + deposed
            + self.delete_free_locks(led, now).await?
            + self.delete_old_rollouts(led, now).await?)
    }

    /// Frees the locks of leaders that died, so that they are deleted as well. Guarded by the version of the lock, which
    /// each renewal changes.
    async fn depose_dead_leaders(&self) -> Result<u64, EngineError> {
        let place = || self.looked_up_to.lock().unwrap_or_else(PoisonError::into_inner);
        let after = place().clone();
        let (deposed, looked) = self.engine.depose_dead_leaders(after, ROUND_MAX, &*self.uptime).await?;
        *place() = looked;
        Ok(deposed)
    }

    /// The time of the newest messages of devices for which there is no room.
    async fn messages_until(&self, now: Now) -> Result<Option<Timestamp>, EngineError> {
        let kind = JournalKind::DeviceMessage;
        for _ in 0..PAGES_MAX {
            let after = self.messages().after();
            let sizes = self.engine.store.journal_sizes(SizeQuery { kind, after, limit: PAGE }).await?;
            self.messages().add(&sizes, self.message_bytes / PARTS);
            if sizes.len() < PAGE {
                break;
            }
        }
        Ok(self.messages().cut(kind.until(&self.retention, now.wall), self.message_bytes))
    }

    fn messages(&self) -> MutexGuard<'_, KeptMessages> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Deletes rollouts that ended as long ago as tasks are kept.
    async fn delete_old_rollouts(&self, led: Led, now: Now) -> Result<u64, EngineError> {
        let generation = self.engine.store.generation();
        let mut deleted = 0;
        for record in self.engine.store.records(RecordKind::Rollout, None, ROLLOUTS_MAX).await? {
            let Ok(rollout) = decode_rollout(&record) else { continue };
            if rollout.ended_at.is_some_and(|ended_at| ended_at + self.retention.tasks <= now.wall) {
                let read = ReadRollout { rollout: Arc::new(rollout), generation };
                deleted += u64::from(self.engine.delete_rollout(led.lease, &read).await?);
            }
        }
        Ok(deleted)
    }

    /// Deletes locks without holders and waiters. A lock that is requested meanwhile stays, because its version
    /// differs.
    async fn delete_free_locks(&self, led: Led, now: Now) -> Result<u64, EngineError> {
        let generation = self.engine.store.generation();
        let free = self.engine.store.free_locks(ROUND_MAX).await?;
        if free.is_empty() {
            return Ok(0);
        }
        let delete = |lock| Change::Lock(LockChange::delete(lock, now.wall).decided_in(generation));
        let changes = free.into_iter().map(delete);
        let outcomes = self.engine.commit_as(led.lease, changes.collect(), now).await?;
        Ok(outcomes.into_iter().filter(|outcome| *outcome == Outcome::Committed).count() as u64)
    }
}

//! A server's connection to a database that it shares with others.

use async_trait::async_trait;
use windlass_core::{ActKey, Alarm, AlarmId, Event, Lock, LockName, Millis, Name, Ready, TaskId, Timestamp};
use windlass_store::{
    Adoption, Ask, AttemptId, Change, ClaimOutcome, ClaimRequest, Claimed, Claims, Cluster, Due,
    EnqueuedTasks, Envelope, JournalEntry, JournalQuery, JournalSize, Leadership, Leave, LimitState, Loaded,
    LogLine, Members, Now, Outcome, Page, Quarantine, Queries, QueueState, Record, RecordKind, Retention,
    ServerId, ServerState, Service, ServiceLease, SessionId, SessionRenewal, SessionState, SizeQuery, Store,
    StoreError, StoredAlarm, StoredFlow, TaskQuery, Unannounced, memory::SharedStore,
};

use super::EnqueuedThere;
use crate::world::{DatabaseClock, Device, Entry, Journal, Operation};

/// A connection to shared rows.
pub(crate) struct Database {
    pub(crate) rows: SharedStore,
    pub(crate) device: Device,
    pub(crate) journal: Journal,
    /// The clock that all servers follow. None if they share one clock.
    pub(crate) clock: Option<DatabaseClock>,
    /// Tasks that applications have enqueued there.
    pub(crate) enqueued: EnqueuedThere,
}

/// A call that only reads. Its result travels for a while, and may be out of date on arrival.
macro_rules! read {
    ($self:ident, $call:expr) => {{
        $self.device.wait(Operation::Read).await?;
        let answer = $call.await;
        $self.device.wait(Operation::Back).await?;
        answer
    }};
}

/// A call that writes: the call and its answer may be lost.
macro_rules! write {
    ($self:ident, $call:expr) => {{
        $self.device.wait(Operation::There).await?;
        let answer = $call.await;
        $self.device.wait(Operation::Back).await?;
        answer
    }};
}

impl Database {
    /// Records what came of a write, if the leader of a service makes it.
    async fn led<T>(
        &self,
        led: Option<Leadership>,
        write: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let written = write.await;
        match (&written, led) {
            (Ok(_), Some(led)) => self.journal.add(Entry::Led(led)),
            (Err(StoreError::LeaseLost), _) => self.journal.add(Entry::Deposed),
            _ => {}
        }
        written
    }
}

/// What a change is, if only the leader of a service makes it.
fn of_leader(change: &Change) -> Option<&'static str> {
    match change {
        Change::Announced(_) => Some("events leave the outbox"),
        Change::Lock(change) if !change.kept => Some("a free lock is deleted"),
        Change::Task(change) if change.lost.iter().any(|lost| lost.over_at.is_some()) => {
            Some("an attempt is lost")
        }
        _ => None,
    }
}

#[async_trait]
impl Store for Database {
    fn token_key(&self) -> [u8; 32] {
        self.rows.token_key()
    }

    fn cluster(&self) -> Option<&dyn Cluster> {
        Some(self)
    }

    fn quarantine(&self) -> &Quarantine {
        self.rows.quarantine()
    }

    fn enqueued(&self) -> Option<&dyn EnqueuedTasks> {
        Some(&self.enqueued)
    }

    fn next_wake(&self, now: Now) -> Option<Millis> {
        self.rows.next_wake(now)
    }

    async fn load(&self, ids: &[TaskId]) -> Result<Vec<Option<Loaded>>, StoreError> {
        read!(self, self.rows.load(ids))
    }

    async fn commit_and_claim(
        &self,
        changes: Vec<Change>,
        asks: &[Ask],
        leave: &Leave,
        led: Option<Leadership>,
        now: Now,
    ) -> Result<(Vec<Outcome>, Vec<Option<Vec<Claimed>>>), StoreError> {
        self.device.wait(Operation::There).await?;
        let commit = self.rows.commit_and_claim(changes.clone(), asks, leave, led, now);
        let (outcomes, claimed) = self.led(led, commit).await?;
        if led.is_none()
            && let Some(what) = changes.iter().find_map(of_leader)
        {
            self.journal.add(Entry::Unled(what));
        }
        for (change, outcome) in changes.iter().zip(&outcomes) {
            if *outcome == Outcome::Committed {
                self.journal.written(change);
            }
        }
        claimed.iter().flatten().flatten().for_each(|claimed| self.journal.claimed(claimed.id));
        self.device.wait(Operation::Back).await?;
        Ok((outcomes, claimed))
    }

    async fn due(&self, now: Now, limit: usize) -> Result<Vec<Due>, StoreError> {
        read!(self, self.rows.due(now, limit))
    }

    async fn messages(&self, limit: usize) -> Result<Vec<Envelope>, StoreError> {
        read!(self, self.rows.messages(limit))
    }

    async fn unannounced(&self, above: TaskId, limit: usize) -> Result<Vec<Unannounced>, StoreError> {
        read!(self, self.rows.unannounced(above, limit))
    }

    async fn sweep(
        &self,
        retention: &Retention,
        led: Option<Leadership>,
        now: Now,
        limit: usize,
    ) -> Result<u64, StoreError> {
        if led.is_none() {
            self.journal.add(Entry::Unled("a sweep"));
        }
        write!(self, self.led(led, self.rows.sweep(retention, led, now, limit)))
    }
}

#[async_trait]
impl Claims for Database {
    async fn claim(
        &self,
        session: SessionId,
        claim_requests: &[ClaimRequest],
        leave: &Leave,
        now: Now,
    ) -> Result<ClaimOutcome, StoreError> {
        self.device.wait(Operation::There).await?;
        let outcome = self.rows.claim(session, claim_requests, leave, now).await?;
        if let ClaimOutcome::Claimed(claimed) = &outcome {
            claimed.iter().for_each(|claimed| self.journal.claimed(claimed.id));
        }
        self.device.wait(Operation::Back).await?;
        Ok(outcome)
    }

    async fn adopt(
        &self,
        session: SessionId,
        attempts: &[AttemptId],
        now: Now,
    ) -> Result<Vec<Adoption>, StoreError> {
        write!(self, self.rows.adopt(session, attempts, now))
    }

    async fn release(
        &self,
        session: SessionId,
        attempt: AttemptId,
        led: Option<Leadership>,
        now: Now,
    ) -> Result<(), StoreError> {
        write!(self, self.led(led, self.rows.release(session, attempt, led, now)))
    }

    async fn renew(&self, sessions: Vec<SessionRenewal>, now: Now) -> Result<(), StoreError> {
        write!(self, self.rows.renew(sessions, now))
    }

    async fn forgive(&self, now: Now) -> Result<(), StoreError> {
        write!(self, self.rows.forgive(now))
    }

    async fn held(&self, session: SessionId) -> Result<Vec<Claimed>, StoreError> {
        read!(self, self.rows.held(session))
    }

    async fn to_stop(&self, sessions: &[SessionId]) -> Result<Vec<Claimed>, StoreError> {
        read!(self, self.rows.to_stop(sessions))
    }

    async fn lost(&self, now: Now, limit: usize) -> Result<Vec<Claimed>, StoreError> {
        read!(self, self.rows.lost(now, limit))
    }
}

#[async_trait]
impl Queries for Database {
    async fn flow(&self, name: &str, version: Option<u32>) -> Result<Option<StoredFlow>, StoreError> {
        read!(self, self.rows.flow(name, version))
    }

    async fn flows(&self) -> Result<Vec<StoredFlow>, StoreError> {
        read!(self, self.rows.flows())
    }

    async fn tasks(&self, query: &TaskQuery) -> Result<Page<Loaded, TaskId>, StoreError> {
        read!(self, self.rows.tasks(query))
    }

    async fn events(&self, task: TaskId, after: u64, limit: usize) -> Result<Vec<(u64, Event)>, StoreError> {
        read!(self, self.rows.events(task, after, limit))
    }

    async fn logs(&self, task: TaskId, after: u64, limit: usize) -> Result<Vec<(u64, LogLine)>, StoreError> {
        read!(self, self.rows.logs(task, after, limit))
    }

    async fn alarms_by_id(&self, ids: &[AlarmId]) -> Result<Vec<Option<StoredAlarm>>, StoreError> {
        read!(self, self.rows.alarms_by_id(ids))
    }

    async fn alarms(&self, all: bool, limit: usize) -> Result<Vec<Alarm>, StoreError> {
        read!(self, self.rows.alarms(all, limit))
    }

    async fn locks_by_name(&self, names: &[LockName]) -> Result<Vec<Lock>, StoreError> {
        read!(self, self.rows.locks_by_name(names))
    }

    async fn free_locks(&self, limit: usize) -> Result<Vec<Lock>, StoreError> {
        read!(self, self.rows.free_locks(limit))
    }

    async fn lock_floor(&self) -> Result<u64, StoreError> {
        read!(self, self.rows.lock_floor())
    }

    async fn locks(&self, after: Option<&LockName>, limit: usize) -> Result<Vec<Lock>, StoreError> {
        read!(self, self.rows.locks(after, limit))
    }

    async fn records_by_name(
        &self,
        kind: RecordKind,
        names: &[Name],
    ) -> Result<Vec<Option<Record>>, StoreError> {
        read!(self, self.rows.records_by_name(kind, names))
    }

    async fn records(
        &self,
        kind: RecordKind,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        read!(self, self.rows.records(kind, after, limit))
    }

    async fn journal(&self, query: &JournalQuery) -> Result<Vec<(u64, JournalEntry)>, StoreError> {
        read!(self, self.rows.journal(query))
    }

    async fn journal_sizes(&self, query: SizeQuery) -> Result<Vec<JournalSize>, StoreError> {
        read!(self, self.rows.journal_sizes(query))
    }

    async fn queues(&self) -> Result<Vec<QueueState>, StoreError> {
        read!(self, self.rows.queues())
    }

    async fn sessions(&self, now: Now) -> Result<Vec<SessionState>, StoreError> {
        read!(self, self.rows.sessions(now))
    }

    async fn limits(&self, now: Now) -> Result<Vec<LimitState>, StoreError> {
        read!(self, self.rows.limits(now))
    }

    async fn keeping_back(&self, ready: &Ready, now: Now) -> Result<Vec<LimitState>, StoreError> {
        read!(self, self.rows.keeping_back(ready, now))
    }

    async fn place(&self, task: TaskId, key: ActKey) -> Result<Option<u64>, StoreError> {
        read!(self, self.rows.place(task, key))
    }
}

#[async_trait]
impl Members for Database {
    async fn register(&self, server: ServerState) -> Result<(), StoreError> {
        write!(self, self.rows.register(server))
    }

    async fn servers(&self) -> Result<Vec<ServerState>, StoreError> {
        read!(self, self.rows.servers())
    }

    async fn leave(&self, server: ServerId) -> Result<(), StoreError> {
        write!(self, async {
            self.rows.leave(server).await?;
            self.journal.add(Entry::Left(server));
            Ok(())
        })
    }

    async fn lease(
        &self,
        service: Service,
        server: ServerId,
        length: Millis,
        now: Now,
    ) -> Result<ServiceLease, StoreError> {
        write!(self, async {
            let lease = self.rows.lease(service, server, length, now).await?;
            self.journal.add(Entry::Leased { service, lease, at: now.mono });
            Ok(lease)
        })
    }
}

#[async_trait]
impl Cluster for Database {
    async fn news(&self) {
        Cluster::news(&self.rows).await;
    }

    async fn time(&self) -> Result<Option<Timestamp>, StoreError> {
        let Some(clock) = &self.clock else { return Ok(None) };
        read!(self, async { Ok(Some(clock.now())) })
    }

    fn connected(&self) -> u64 {
        Cluster::connected(&self.rows)
    }

    fn round_trips(&self) -> Option<u64> {
        None
    }
}

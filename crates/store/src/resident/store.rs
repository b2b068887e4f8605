//! The store port over the scheduler and its sink.

mod members;

use std::ops::Bound;

use async_trait::async_trait;
use windlass_core::{
    ActKey, Alarm, AlarmId, Event, Free, Lock, LockName, Millis, Name, Ready, TaskId,
    planted::{Bug, is_planted},
};

use super::{Resident, queue::Queues, state::Grace};
use crate::port::{
    Adoption, Ask, AttemptId, Change, ClaimOutcome, ClaimRequest, Claimed, Claims, DamagedTask, Due,
    Envelope, JournalEntry, JournalQuery, JournalSize, Leadership, Leave, LimitState, Loaded, LogLine, Now,
    Outcome, Page, Quarantine, Queries, QueueState, Record, RecordKind, Retention, SessionId, SessionRenewal,
    SessionState, SizeQuery, Store, StoreError, StoredAlarm, StoredFlow, TaskQuery, Unannounced,
};

#[async_trait]
impl Store for Resident {
    fn token_key(&self) -> [u8; 32] {
        self.token_key
    }

    fn quarantine(&self) -> &Quarantine {
        &self.quarantine
    }

    fn next_wake(&self, now: Now) -> Option<Millis> {
        let inner = self.inner();
        let scheduler = &inner.scheduler;
        let due = scheduler.next_due().map(|at| at - now.wall);
        let due = if scheduler.kept_back.is_empty() { due } else { Some(Millis(0)) };
        let grace_until = match inner.grace {
            Grace::Over => None,
            Grace::Begins => Some(now.mono),
            Grace::Until(until) => Some(until),
        };
        let start = scheduler.queues.next_start(now.mono);
        let mono = [scheduler.claims.next_time(), scheduler.sessions.next_end(), grace_until, start];
        let mono = mono.into_iter().flatten().map(|at| Millis(at.0.saturating_sub(now.mono.0)));
        let waking = scheduler.next_waking(now.wall, self.rest.horizon, self.rest.page);
        mono.chain(due).chain([waking]).min()
    }

    fn is_ahead(&self, by: Millis) {
        self.inner().scheduler.ahead = by;
    }

    fn generation(&self) -> u64 {
        self.inner().scheduler.generation
    }

    async fn load(&self, ids: &[TaskId]) -> Result<Vec<Option<Loaded>>, StoreError> {
        self.load_tasks(ids, false).await
    }

    async fn load_first(&self, ids: &[TaskId]) -> Result<Vec<Option<Loaded>>, StoreError> {
        self.load_tasks(ids, true).await
    }

    async fn load_heads(&self, ids: &[TaskId]) -> Result<Vec<Option<Loaded>>, StoreError> {
        self.heads(ids).await
    }

    fn resident_bytes(&self) -> Option<u64> {
        Some(self.inner().scheduler.bodies.bytes())
    }

    fn loads_at_once(&self) -> usize {
        self.inner().scheduler.loads_at_once()
    }

    async fn versions(&self, ids: &[TaskId]) -> Result<Vec<Option<u64>>, StoreError> {
        let heads = self.heads(ids).await?.into_iter();
        Ok(heads.map(|loaded| Some(loaded?.task.state.events)).collect())
    }

    /// Nothing is claimed with commits: a claim in memory costs no round trip.
    async fn commit_and_claim(
        &self,
        changes: Vec<Change>,
        asks: &[Ask],
        _leave: &Leave,
        _led: Option<Leadership>,
        _now: Now,
    ) -> Result<(Vec<Outcome>, Vec<Option<Vec<Claimed>>>), StoreError> {
        Ok((self.commit(changes).await?, vec![None; asks.len()]))
    }

    /// A commit without changes ends after every write before it.
    async fn flush(&self) -> Result<(), StoreError> {
        self.commit(Vec::new()).await.map(drop)
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<Vec<Outcome>, StoreError> {
        let generation = self.current_generation().await?;
        let ended = self.keep_ended(&changes).await;
        let reading = self.begin_read();
        let on_disk = self.look_up(&changes).await?;
        if ended.is_some() {
            self.bring_back(&changes, generation).await?;
        }
        let (outcomes, ticket) = self.stage(changes, generation, &on_disk);
        if ended.is_some() {
            self.inner().note_after_end();
        }
        drop((reading, ended));
        if let Some(ticket) = ticket
            && !is_planted(Bug::AcknowledgedEarly)
        {
            ticket.written().await?;
        }
        Ok(outcomes)
    }

    async fn due(&self, now: Now, limit: usize) -> Result<Vec<Due>, StoreError> {
        // Asked for at every turn: after a failed write this is what reads the rows again when nobody else comes.
        self.current_generation().await?;
        self.wake_due(now, limit).await?;
        let mut inner = self.inner();
        inner.by_now(now);
        inner.end_grace(now);
        Ok(inner.scheduler.due(now, limit))
    }

    async fn messages(&self, limit: usize) -> Result<Vec<Envelope>, StoreError> {
        Ok(self.inner().scheduler.messages.values().take(limit).cloned().collect())
    }

    async fn unannounced(&self, above: TaskId, limit: usize) -> Result<Vec<Unannounced>, StoreError> {
        // From the disk: nothing is announced that may yet be lost.
        let found = self.sink.unannounced(above, limit).await?;
        Ok(self.sound(found))
    }

    async fn sweep(
        &self,
        retention: &Retention,
        _led: Option<Leadership>,
        now: Now,
        limit: usize,
    ) -> Result<u64, StoreError> {
        let swept = {
            let _alone = self.deleting.lock().await;
            if self.inner().goes_on_after_end() {
                self.flush().await?;
            }
            self.sink.sweep(retention, now, limit).await?
        };
        let flows = self.sweep_flows(limit.saturating_sub(usize::try_from(swept).unwrap_or(limit))).await?;
        Ok(swept + flows as u64)
    }
}

#[async_trait]
impl Claims for Resident {
    async fn claim(
        &self,
        session: SessionId,
        claim_requests: &[ClaimRequest],
        _leave: &Leave,
        now: Now,
    ) -> Result<ClaimOutcome, StoreError> {
        if self.refill(claim_requests).await? {
            return Ok(ClaimOutcome::Later);
        }
        let claimed = self.claim_in_memory(session, claim_requests, now);
        if session.is_own() && !claimed.is_empty() {
            // Before it goes out as a message: after a start nobody else would know.
            self.keep_claims().await?;
        }
        Ok(ClaimOutcome::Claimed(claimed))
    }

    async fn adopt(
        &self,
        session: SessionId,
        attempts: &[AttemptId],
        now: Now,
    ) -> Result<Vec<Adoption>, StoreError> {
        let mut inner = self.inner();
        let now = inner.by_now(now);
        let mut adoptions = Vec::with_capacity(attempts.len());
        for id in attempts {
            let entry = inner.scheduler.active.get(&id.task);
            // A parked attempt is nobody's, but for a moment of an import, in which it waits.
            let current = entry.is_some_and(|entry| entry.task.has_current(id.key, id.attempt));
            let holder = inner.scheduler.claims.get(id.task, id.key).map(|held| (held.session, held.number));
            let adoption = match holder {
                _ if !current => Adoption::Gone,
                Some((holder, number)) if holder == session && number == id.claim => Adoption::Held,
                Some((holder, _)) if !session.takes_from(holder) && !is_planted(Bug::StolenAttempts) => {
                    Adoption::Gone
                }
                _ => {
                    if inner.give_to(session, *id, now).is_some() {
                        Adoption::Held
                    } else {
                        Adoption::Gone
                    }
                }
            };
            adoptions.push(adoption);
        }
        Ok(adoptions)
    }

    async fn release(
        &self,
        session: SessionId,
        attempt: AttemptId,
        _led: Option<Leadership>,
        _now: Now,
    ) -> Result<(), StoreError> {
        let mut inner = self.inner();
        let held = inner.scheduler.claims.get(attempt.task, attempt.key);
        if held.is_some_and(|held| held.session == session && held.number == attempt.claim) {
            inner.take_from_holder(attempt.task, attempt.key);
            let scheduler = &mut inner.scheduler;
            if let Some(ready) = scheduler.published_ready(attempt.task, attempt.key).cloned() {
                scheduler.stand_in_line(attempt.task, attempt.key, &ready);
            }
        }
        Ok(())
    }

    async fn renew(&self, sessions: Vec<SessionRenewal>, now: Now) -> Result<(), StoreError> {
        let mut inner = self.inner();
        sessions.into_iter().for_each(|session| inner.scheduler.sessions.renew(session, now));
        Ok(())
    }

    async fn forgive(&self, now: Now) -> Result<(), StoreError> {
        self.inner().scheduler.sessions.forgive(now);
        Ok(())
    }

    async fn held(&self, session: SessionId) -> Result<Vec<Claimed>, StoreError> {
        let inner = self.inner();
        let holds = inner.scheduler.sessions.holds(session);
        Ok(holds.filter_map(|(task, key)| inner.scheduler.claims.claimed(*task, *key)).collect())
    }

    async fn to_stop(&self, sessions: &[SessionId]) -> Result<Vec<Claimed>, StoreError> {
        let inner = self.inner();
        let scheduler = &inner.scheduler;
        let holds = sessions.iter().flat_map(|session| scheduler.sessions.holds(*session));
        let is_to_stop = |(task, key): &&(TaskId, ActKey)| {
            scheduler.published_ready(*task, *key).is_some_and(|ready| ready.free == Free::GiveUp)
        };
        Ok(holds.filter(is_to_stop).filter_map(|(task, key)| scheduler.claims.claimed(*task, *key)).collect())
    }

    async fn lost(&self, now: Now, limit: usize) -> Result<Vec<Claimed>, StoreError> {
        let mut inner = self.inner();
        let ended = inner.scheduler.sessions.ended(now, limit);
        Ok(ended.into_iter().filter_map(|(_, task, key)| inner.scheduler.claims.claimed(task, key)).collect())
    }
}

#[async_trait]
impl Queries for Resident {
    async fn flow(&self, name: &str, version: Option<u32>) -> Result<Option<StoredFlow>, StoreError> {
        self.inner().scheduler.readable_flow(name, version)
    }

    async fn flows(&self) -> Result<Vec<StoredFlow>, StoreError> {
        Ok(self.inner().scheduler.flows.values().filter_map(|versions| versions.last()).cloned().collect())
    }

    async fn tasks(&self, query: &TaskQuery) -> Result<Page<Loaded, TaskId>, StoreError> {
        self.page(query).await
    }

    async fn events(&self, task: TaskId, after: u64, limit: usize) -> Result<Vec<(u64, Event)>, StoreError> {
        self.sink.events(task, after, limit).await
    }

    async fn logs(&self, task: TaskId, after: u64, limit: usize) -> Result<Vec<(u64, LogLine)>, StoreError> {
        self.sink.logs(task, after, limit).await
    }

    async fn alarms_by_id(&self, ids: &[AlarmId]) -> Result<Vec<Option<StoredAlarm>>, StoreError> {
        // From the disk, whatever is on its way there: a change that is decided on it conflicts until it is.
        let mut alarms = Vec::with_capacity(ids.len());
        for id in ids {
            alarms.push(self.sink.alarm(id).await?);
        }
        Ok(alarms)
    }

    async fn locks_by_name(&self, names: &[LockName]) -> Result<Vec<Lock>, StoreError> {
        self.current_generation().await?;
        let scheduler = &self.inner().scheduler;
        let free = |name: &LockName| Lock::new(name.clone(), scheduler.lock_floor);
        Ok(names
            .iter()
            .map(|name| scheduler.locks.get(name).cloned().unwrap_or_else(|| free(name)))
            .collect())
    }

    async fn free_locks(&self, limit: usize) -> Result<Vec<Lock>, StoreError> {
        self.current_generation().await?;
        let inner = self.inner();
        let free = inner.scheduler.locks.values().filter(|lock| lock.is_free());
        Ok(free.take(limit).cloned().collect())
    }

    async fn lock_floor(&self) -> Result<u64, StoreError> {
        self.current_generation().await?;
        Ok(self.inner().scheduler.lock_floor)
    }

    async fn locks(&self, after: Option<&LockName>, limit: usize) -> Result<Vec<Lock>, StoreError> {
        self.current_generation().await?;
        let inner = self.inner();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let above = inner.scheduler.locks.range::<LockName, _>((from, Bound::Unbounded));
        let above = above.map(|(_, lock)| lock).filter(|lock| !lock.is_free());
        Ok(above.take(limit).cloned().collect())
    }

    async fn alarms(&self, all: bool, limit: usize) -> Result<Vec<Alarm>, StoreError> {
        let found = self.sink.alarms(all, limit).await?;
        Ok(self.sound(found))
    }

    async fn records_by_name(
        &self,
        kind: RecordKind,
        names: &[Name],
    ) -> Result<Vec<Option<Record>>, StoreError> {
        self.current_generation().await?;
        let records = &self.inner().scheduler.records;
        Ok(names.iter().map(|name| records.get(&(kind, name.clone())).cloned()).collect())
    }

    async fn records(
        &self,
        kind: RecordKind,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        self.current_generation().await?;
        let inner = self.inner();
        Ok(Record::page(&inner.scheduler.records, kind, after).take(limit).cloned().collect())
    }

    async fn journal(&self, query: &JournalQuery) -> Result<Vec<(u64, JournalEntry)>, StoreError> {
        self.sink.journal(query).await
    }

    async fn journal_sizes(&self, query: SizeQuery) -> Result<Vec<JournalSize>, StoreError> {
        self.sink.journal_sizes(query).await
    }

    async fn queues(&self) -> Result<Vec<QueueState>, StoreError> {
        self.current_generation().await?;
        self.refill_lines(Queues::starved).await?;
        Ok(self.inner().scheduler.queues.states())
    }

    async fn sessions(&self, now: Now) -> Result<Vec<SessionState>, StoreError> {
        Ok(self.inner().scheduler.sessions.states(now))
    }

    async fn limits(&self, now: Now) -> Result<Vec<LimitState>, StoreError> {
        self.current_generation().await?;
        Ok(self.inner().scheduler.limits(now))
    }

    async fn keeping_back(&self, ready: &Ready, now: Now) -> Result<Vec<LimitState>, StoreError> {
        self.current_generation().await?;
        Ok(self.inner().scheduler.keeping_back(ready, now))
    }

    async fn place(&self, task: TaskId, key: ActKey) -> Result<Option<u64>, StoreError> {
        self.place_in_line(task, key).await
    }
}

impl Resident {
    /// What could be read. An alarm names the first row of no task that could not.
    fn sound<T>(&self, found: Vec<Result<T, DamagedTask>>) -> Vec<T> {
        let sound = |read: Result<T, DamagedTask>| read.map_err(|damaged| self.quarantine.add(damaged)).ok();
        found.into_iter().filter_map(sound).collect()
    }
}

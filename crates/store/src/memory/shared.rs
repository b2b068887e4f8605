//! A store without a memory of its own, in memory: the model of every store in SQL.

mod members;
mod rows;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use async_trait::async_trait;
use windlass_core::{ActKey, Alarm, AlarmId, Event, Lock, LockName, Name, Ready, TaskId};

use super::{Row, sink::without_results};
use crate::port::{
    Adoption, Announced, Ask, AttemptId, Change, ClaimOutcome, ClaimRequest, Claimed, Claims, Cluster, Due,
    Envelope, JournalEntry, JournalQuery, JournalSize, Leadership, Leave, LimitState, Loaded, LogLine, Now,
    Outcome, Page, Quarantine, Queries, QueueState, Record, RecordKind, Retention, SessionId, SessionRenewal,
    SessionState, SizeQuery, Store, StoreError, StoredAlarm, StoredFlow, TaskQuery, Unannounced,
};
use rows::{News, Rows};

/// Keeps rows as long as a handle of it lives; a clone is a handle of the same rows, as a server's connection
/// to a database is. Claims and leases are rows too, so they survive the servers that made them.
#[derive(Debug)]
pub struct SharedStore {
    token_key: [u8; 32],
    rows: Arc<Mutex<Rows>>,
    news: Arc<News>,
    quarantine: Quarantine,
}

impl Clone for SharedStore {
    fn clone(&self) -> Self {
        let news = Arc::default();
        self.rows().news.push(Arc::downgrade(&news));
        Self { token_key: self.token_key, rows: self.rows.clone(), news, quarantine: Quarantine::default() }
    }
}

impl SharedStore {
    /// No rows yet. `token_key` is what tokens are signed with.
    #[must_use]
    pub fn new(token_key: [u8; 32]) -> Self {
        let (rows, news) = (Arc::<Mutex<Rows>>::default(), Arc::default());
        let store = Self { token_key, rows, news, quarantine: Quarantine::default() };
        store.rows().news.push(Arc::downgrade(&store.news));
        store
    }

    /// Damages a row: it cannot be read until it is written again.
    pub fn damage(&self, row: Row) {
        self.rows().damage.add(row);
    }

    /// The first row of what is to be announced.
    #[must_use]
    pub fn first_unannounced(&self) -> Option<Announced> {
        let first = self.rows().tables.unannounced(TaskId::NONE, 1).pop()?;
        Some(Announced { task: first.task, after: first.after })
    }

    /// Notifies the other handles that there is something new.
    fn tell_others(&self, rows: &mut Rows) {
        rows.news.retain(|news| news.strong_count() > 0);
        let others = rows.news.iter().filter_map(Weak::upgrade);
        others.filter(|news| !Arc::ptr_eq(news, &self.news)).for_each(|news| news.changed.set());
    }

    /// Fails where another server has taken the lease: for tables that are kept beside these rows.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`].
    pub fn check(&self, led: Option<Leadership>) -> Result<(), StoreError> {
        self.rows().servers.check(led)
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Store for SharedStore {
    fn token_key(&self) -> [u8; 32] {
        self.token_key
    }

    fn quarantine(&self) -> &Quarantine {
        &self.quarantine
    }

    fn cluster(&self) -> Option<&dyn Cluster> {
        Some(self)
    }

    async fn load(&self, ids: &[TaskId]) -> Result<Vec<Option<Loaded>>, StoreError> {
        let rows = self.rows();
        Ok(ids.iter().map(|id| rows.load(*id, &self.quarantine)).collect())
    }

    async fn commit_and_claim(
        &self,
        changes: Vec<Change>,
        asks: &[Ask],
        _leave: &Leave,
        led: Option<Leadership>,
        now: Now,
    ) -> Result<(Vec<Outcome>, Vec<Option<Vec<Claimed>>>), StoreError> {
        let mut rows = self.rows();
        rows.servers.check(led)?;
        let outcomes = rows.commit(&changes);
        if outcomes.contains(&Outcome::Committed) {
            self.tell_others(&mut rows);
        }
        let claimed = asks.iter().map(|Ask { session, claim_request }| {
            // As SQL stores, which leave queues that limits or turns rule to a claim by itself.
            let is_ruled = rows.is_ruled(&claim_request.module);
            let claim_requests = std::slice::from_ref(claim_request);
            (!is_ruled).then(|| rows.claim(*session, claim_requests, &self.quarantine, now))
        });
        let claimed = claimed.collect();
        Ok((outcomes, claimed))
    }

    async fn due(&self, now: Now, limit: usize) -> Result<Vec<Due>, StoreError> {
        Ok(self.rows().waits.due(now, limit))
    }

    async fn messages(&self, limit: usize) -> Result<Vec<Envelope>, StoreError> {
        Ok(self.rows().tables.messages().take(limit).cloned().collect())
    }

    async fn unannounced(&self, above: TaskId, limit: usize) -> Result<Vec<Unannounced>, StoreError> {
        let rows = self.rows();
        // Damaged rows, and those behind them, do not use up the limit.
        let found = rows.tables.unannounced(above, if rows.damage.is_empty() { limit } else { usize::MAX });
        let mut found = rows.damage.announcements(found, &self.quarantine);
        found.truncate(limit);
        Ok(found)
    }

    async fn sweep(
        &self,
        retention: &Retention,
        led: Option<Leadership>,
        now: Now,
        limit: usize,
    ) -> Result<u64, StoreError> {
        let mut rows = self.rows();
        rows.servers.check(led)?;
        let (swept, tasks) = rows.tables.sweep(retention, now.wall, limit);
        for task in tasks {
            rows.waits.delete(task);
        }
        let flows = rows.tables.sweep_flows(limit - swept);
        Ok((swept + flows) as u64)
    }
}

#[async_trait]
impl Claims for SharedStore {
    async fn claim(
        &self,
        session: SessionId,
        claim_requests: &[ClaimRequest],
        _leave: &Leave,
        now: Now,
    ) -> Result<ClaimOutcome, StoreError> {
        let claimed = self.rows().claim(session, claim_requests, &self.quarantine, now);
        Ok(ClaimOutcome::Claimed(claimed))
    }

    async fn adopt(
        &self,
        session: SessionId,
        attempts: &[AttemptId],
        now: Now,
    ) -> Result<Vec<Adoption>, StoreError> {
        let mut rows = self.rows();
        let grace = rows.grace(session);
        let adopt = |id: &AttemptId| match rows.waits.adopt(session, *id, grace, now) {
            true => Adoption::Held,
            false => Adoption::Gone,
        };
        Ok(attempts.iter().map(adopt).collect())
    }

    async fn release(
        &self,
        session: SessionId,
        attempt: AttemptId,
        led: Option<Leadership>,
        _now: Now,
    ) -> Result<(), StoreError> {
        let mut rows = self.rows();
        rows.servers.check(led)?;
        let Rows { tables, waits, .. } = &mut *rows;
        waits.release(session, attempt, tables.limits());
        Ok(())
    }

    async fn renew(&self, sessions: Vec<SessionRenewal>, now: Now) -> Result<(), StoreError> {
        let mut rows = self.rows();
        sessions.into_iter().for_each(|session| rows.sessions.renew(session, now));
        Ok(())
    }

    async fn forgive(&self, now: Now) -> Result<(), StoreError> {
        self.rows().sessions.forgive(now);
        Ok(())
    }

    async fn held(&self, session: SessionId) -> Result<Vec<Claimed>, StoreError> {
        let rows = self.rows();
        let claimed = rows.waits.all_claimed().map(|(claimed, _)| claimed);
        Ok(claimed.filter(|claimed| claimed.session == session).collect())
    }

    async fn to_stop(&self, sessions: &[SessionId]) -> Result<Vec<Claimed>, StoreError> {
        Ok(self.rows().waits.to_stop(sessions))
    }

    async fn lost(&self, now: Now, limit: usize) -> Result<Vec<Claimed>, StoreError> {
        let mut rows = self.rows();
        let Rows { waits, sessions, .. } = &mut *rows;
        sessions.forget(now, |session| waits.all_claimed().any(|(claimed, _)| claimed.session == session));
        let lost = waits.all_claimed().map(|(claimed, _)| claimed);
        Ok(lost.filter(|claimed| sessions.is_over(claimed.session, now.mono)).take(limit).collect())
    }
}

#[async_trait]
impl Queries for SharedStore {
    async fn flow(&self, name: &str, version: Option<u32>) -> Result<Option<StoredFlow>, StoreError> {
        Ok(self.rows().tables.flow(name, version).cloned())
    }

    async fn flows(&self) -> Result<Vec<StoredFlow>, StoreError> {
        Ok(self.rows().tables.flows().filter_map(|versions| versions.last()).cloned().collect())
    }

    async fn tasks(&self, query: &TaskQuery) -> Result<Page<Loaded, TaskId>, StoreError> {
        let rows = self.rows();
        if let Some(scopes) = &query.scopes {
            let ids = scopes.iter().filter_map(|scope| rows.tables.submit_key(scope)).map(|(id, _)| id);
            return Ok(query.page_of(ids.map(|id| rows.load(id, &self.quarantine)).collect()));
        }
        Ok(rows.tables.page(query, |task| {
            let loaded = rows.load(task.id, &self.quarantine)?;
            let wanted = query.matches(task, &loaded.held());
            wanted.then(|| Loaded { task: Arc::new(without_results(task)), ..loaded })
        }))
    }

    async fn events(&self, task: TaskId, after: u64, limit: usize) -> Result<Vec<(u64, Event)>, StoreError> {
        Ok(self.rows().tables.events(task, after, limit))
    }

    async fn logs(&self, task: TaskId, after: u64, limit: usize) -> Result<Vec<(u64, LogLine)>, StoreError> {
        Ok(self.rows().tables.logs(task, after, limit))
    }

    async fn alarms_by_id(&self, ids: &[AlarmId]) -> Result<Vec<Option<StoredAlarm>>, StoreError> {
        let rows = self.rows();
        Ok(ids.iter().map(|id| rows.tables.alarm(id).cloned()).collect())
    }

    async fn locks_by_name(&self, names: &[LockName]) -> Result<Vec<Lock>, StoreError> {
        let rows = self.rows();
        let lock = |name: &LockName| match rows.tables.locks().get(name) {
            Some(lock) => rows.damage.lock(lock, &self.quarantine),
            None => Lock::new(name.clone(), rows.tables.lock_floor()),
        };
        Ok(names.iter().map(lock).collect())
    }

    async fn free_locks(&self, limit: usize) -> Result<Vec<Lock>, StoreError> {
        let rows = self.rows();
        let locks = rows.tables.locks().values().map(|lock| rows.damage.lock(lock, &self.quarantine));
        Ok(locks.filter(Lock::is_free).take(limit).collect())
    }

    async fn lock_floor(&self) -> Result<u64, StoreError> {
        Ok(self.rows().tables.lock_floor())
    }

    async fn locks(&self, after: Option<&LockName>, limit: usize) -> Result<Vec<Lock>, StoreError> {
        let rows = self.rows();
        let above = rows.tables.locks().values().filter(|lock| after.is_none_or(|after| lock.name > *after));
        let above = above.map(|lock| rows.damage.lock(lock, &self.quarantine));
        Ok(above.filter(|lock| !lock.is_free()).take(limit).collect())
    }

    async fn alarms(&self, all: bool, limit: usize) -> Result<Vec<Alarm>, StoreError> {
        Ok(self.rows().tables.alarms(all, limit))
    }

    async fn records_by_name(
        &self,
        kind: RecordKind,
        names: &[Name],
    ) -> Result<Vec<Option<Record>>, StoreError> {
        let rows = self.rows();
        Ok(names.iter().map(|name| rows.tables.records().get(kind, name).cloned()).collect())
    }

    async fn records(
        &self,
        kind: RecordKind,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        Ok(self.rows().tables.records().page(kind, after).take(limit).cloned().collect())
    }

    async fn journal(&self, query: &JournalQuery) -> Result<Vec<(u64, JournalEntry)>, StoreError> {
        Ok(self.rows().tables.records().journal(query))
    }

    async fn journal_sizes(&self, query: SizeQuery) -> Result<Vec<JournalSize>, StoreError> {
        Ok(self.rows().tables.records().journal_sizes(query))
    }

    async fn queues(&self) -> Result<Vec<QueueState>, StoreError> {
        let rows = self.rows();
        Ok(rows.waits.queues(rows.tables.paused()))
    }

    async fn sessions(&self, now: Now) -> Result<Vec<SessionState>, StoreError> {
        let rows = self.rows();
        let running = |session: SessionId| {
            let theirs = rows.waits.all_claimed().filter(|(claimed, _)| claimed.session == session);
            u32::try_from(theirs.count()).unwrap_or(u32::MAX)
        };
        Ok(rows.sessions.states(now, running))
    }

    async fn limits(&self, now: Now) -> Result<Vec<LimitState>, StoreError> {
        let rows = self.rows();
        let limits = rows.limits(&self.quarantine);
        Ok(limits.iter().map(|limit| rows.waits.limit(limit, None, now)).collect())
    }

    async fn keeping_back(&self, ready: &Ready, now: Now) -> Result<Vec<LimitState>, StoreError> {
        let rows = self.rows();
        let limits = rows.limits(&self.quarantine);
        Ok(rows.waits.keeping_back(limits.iter(), ready, now))
    }

    async fn place(&self, task: TaskId, key: ActKey) -> Result<Option<u64>, StoreError> {
        Ok(self.rows().waits.place(task, key))
    }
}

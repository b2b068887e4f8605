//! The store port over a database that several servers share, whatever the product.

use std::{fmt, future::Future, sync::Arc};

use async_trait::async_trait;
use tokio::runtime::Handle;
use windlass_core::{ActKey, Alarm, AlarmId, Event, Lock, LockName, Name, Ready, TaskId, is_adhoc};
use windlass_store::{
    Adoption, Ask, AttemptId, Change, ClaimOutcome, ClaimRequest, Claimed, Claims, Cluster, Due, Enqueued,
    EnqueuedTasks, Envelope, JournalEntry, JournalQuery, JournalSize, Leadership, Leave, LimitState, Loaded,
    LogLine, Now, Outcome, Page, Quarantine, Queries, QueueState, Record, RecordKind, Retention, SessionId,
    SessionRenewal, SessionState, Settlement, SizeQuery, Standing, Store, StoreError, StoredAlarm,
    StoredFlow, TaskQuery, Unannounced,
};

use super::{
    Database as _, Flows, Newest, News,
    claims::{self, ClaimSql},
    commit::{Asked, CommitSql, Committer},
    enqueued::{self, EnqueuedSql},
    load,
    locks::{self, LockSql},
    policy::retrying,
    query::{self, QuerySql},
    servers::ServerSql,
    sessions::{self, SessionSql},
    snapshot::SnapshotSql,
    sweep::SweepSql,
};

/// A product: its connections, its SQL, and how it claims.
pub(crate) trait Dialect:
    QuerySql + LockSql + ClaimSql + SessionSql + ServerSql + EnqueuedSql + CommitSql + SweepSql + SnapshotSql
{
    /// How the store learns of what other servers did.
    type News: News;
}

/// Tasks in a database on which other servers may work as well.
///
/// What a call began is completed on the runtime on which the store was opened, even when the caller stops waiting: no
/// transaction is left open.
pub struct RowStore<D: Dialect> {
    inner: Arc<Inner<D>>,
    news: D::News,
    runtime: Handle,
    token_key: [u8; 32],
}

struct Inner<D: Dialect> {
    database: Arc<D::Database>,
    flows: Flows,
    newest: Newest,
    committer: Committer<D>,
}

impl<D: Dialect> RowStore<D> {
    /// The store over an open database. Must be called on a Tokio runtime, which the store works on from then on.
    pub(crate) fn over(database: D::Database, memory: D::Memory, news: D::News, token_key: [u8; 32]) -> Self {
        let (flows, newest, committer) = (Flows::default(), Newest::default(), Committer::new(memory));
        let inner = Arc::new(Inner { database: Arc::new(database), flows, newest, committer });
        Self { inner, news, runtime: Handle::current(), token_key }
    }

    pub(crate) fn database(&self) -> &Arc<D::Database> {
        &self.inner.database
    }

    /// Completes work on the store's runtime.
    async fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let ended = |error| StoreError::Unavailable(format!("what the store did has ended: {error}"));
        self.runtime.spawn(work).await.unwrap_or_else(|error| Err(ended(error)))
    }
}

impl<D: Dialect> Inner<D> {
    fn damaged(&self) -> &Quarantine {
        &self.flows.quarantine
    }
}

impl<D: Dialect> Drop for RowStore<D> {
    fn drop(&mut self) {
        self.inner.database.close();
    }
}

impl<D: Dialect> fmt::Debug for RowStore<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowStore").field("product", &D::PRODUCT).finish_non_exhaustive()
    }
}

/// Completes work on a connection, with retries.
macro_rules! with_link {
    ($store:expr, |$inner:ident, $link:ident| $work:expr) => {{
        let $inner = $store.inner.clone();
        $store
            .spawn(async move {
                let database = &$inner.database;
                retrying!(database, |$link| $work.await)
            })
            .await
    }};
}

mod members;

/// Sends a script of statements without answers.
async fn send<D: Dialect>(link: &mut D, script: D::Script<'_>) -> Result<(), super::Fault> {
    link.send(script).await?;
    Ok(())
}

#[async_trait]
impl<D: Dialect> Store for RowStore<D> {
    fn token_key(&self) -> [u8; 32] {
        self.token_key
    }

    fn cluster(&self) -> Option<&dyn Cluster> {
        Some(self)
    }

    fn quarantine(&self) -> &Quarantine {
        self.inner.damaged()
    }

    fn enqueued(&self) -> Option<&dyn EnqueuedTasks> {
        Some(self)
    }

    async fn load(&self, ids: &[TaskId]) -> Result<Vec<Option<Loaded>>, StoreError> {
        let ids = ids.to_vec();
        with_link!(self, |inner, link| load::load(&mut link, &inner.flows, &ids))
    }

    async fn versions(&self, ids: &[TaskId]) -> Result<Vec<Option<u64>>, StoreError> {
        let ids = ids.to_vec();
        with_link!(self, |inner, link| query::versions(&mut link, &ids))
    }

    async fn commit_and_claim(
        &self,
        changes: Vec<Change>,
        asks: &[Ask],
        leave: &Leave,
        led: Option<Leadership>,
        now: Now,
    ) -> Result<(Vec<Outcome>, Vec<Option<Vec<Claimed>>>), StoreError> {
        if changes.is_empty() {
            return Ok((Vec::new(), vec![None; asks.len()]));
        }
        let (inner, asked) = (self.inner.clone(), Asked { asks: asks.to_vec(), leave: leave.clone(), now });
        self.spawn(async move {
            let (outcomes, claimed) =
                inner.committer.commit(&inner.database, &inner.flows, &changes, led, &asked).await?;
            inner.newest.settle(&changes, &outcomes).await;
            Ok((outcomes, claimed))
        })
        .await
    }

    async fn due(&self, now: Now, limit: usize) -> Result<Vec<Due>, StoreError> {
        with_link!(self, |inner, link| query::due(&mut link, now, limit))
    }

    async fn messages(&self, limit: usize) -> Result<Vec<Envelope>, StoreError> {
        with_link!(self, |inner, link| query::messages(&mut link, inner.damaged(), limit))
    }

    async fn unannounced(&self, above: TaskId, limit: usize) -> Result<Vec<Unannounced>, StoreError> {
        with_link!(self, |inner, link| query::unannounced(&mut link, inner.damaged(), above, limit))
    }

    async fn sweep(
        &self,
        retention: &Retention,
        led: Option<Leadership>,
        now: Now,
        limit: usize,
    ) -> Result<u64, StoreError> {
        let retention = *retention;
        with_link!(self, |inner, link| link.sweep(&retention, led, now, limit))
    }
}

#[async_trait]
impl<D: Dialect> Claims for RowStore<D> {
    async fn claim(
        &self,
        session: SessionId,
        claim_requests: &[ClaimRequest],
        leave: &Leave,
        now: Now,
    ) -> Result<ClaimOutcome, StoreError> {
        let (inner, claim_requests, leave) = (self.inner.clone(), claim_requests.to_vec(), leave.clone());
        self.spawn(async move {
            let (database, damaged) = (&inner.database, inner.damaged());
            let claimed =
                claims::claim_all::<D>(database, damaged, session, &claim_requests, &leave, now).await?;
            Ok(ClaimOutcome::Claimed(claimed))
        })
        .await
    }

    async fn adopt(
        &self,
        session: SessionId,
        attempts: &[AttemptId],
        now: Now,
    ) -> Result<Vec<Adoption>, StoreError> {
        let attempts = attempts.to_vec();
        with_link!(self, |inner, link| sessions::adopt(&mut link, session, &attempts, now))
    }

    async fn release(
        &self,
        session: SessionId,
        attempt: AttemptId,
        led: Option<Leadership>,
        _now: Now,
    ) -> Result<(), StoreError> {
        with_link!(self, |inner, link| send(&mut link, D::release(session, attempt, led)))
    }

    async fn renew(&self, renewals: Vec<SessionRenewal>, now: Now) -> Result<(), StoreError> {
        with_link!(self, |inner, link| sessions::renew(&mut link, &renewals, now))
    }

    async fn forgive(&self, now: Now) -> Result<(), StoreError> {
        with_link!(self, |inner, link| send(&mut link, D::forgive(now)))
    }

    async fn held(&self, session: SessionId) -> Result<Vec<Claimed>, StoreError> {
        with_link!(self, |inner, link| sessions::claims(&mut link, D::held(session)))
    }

    async fn to_stop(&self, of: &[SessionId]) -> Result<Vec<Claimed>, StoreError> {
        let of = of.to_vec();
        with_link!(self, |inner, link| sessions::claims(&mut link, D::to_stop(&of)))
    }

    async fn lost(&self, now: Now, limit: usize) -> Result<Vec<Claimed>, StoreError> {
        with_link!(self, |inner, link| sessions::lost(&mut link, now, limit))
    }
}

#[async_trait]
impl<D: Dialect> Queries for RowStore<D> {
    async fn flow(&self, name: &str, version: Option<u32>) -> Result<Option<StoredFlow>, StoreError> {
        let Ok(name) = Name::new(name) else { return Ok(None) };
        let inner = self.inner.clone();
        // One that came with tasks goes with the last of them, so it is looked whether it is there.
        let Some(version) = version.filter(|_| !is_adhoc(name.as_str())) else {
            let newest = self.spawn(async move {
                let Inner { database, flows, newest, .. } = &*inner;
                let ask =
                    |names| async move { retrying!(database, |link| flows.newest(&mut link, &names).await) };
                newest.get(&name, ask).await
            });
            let newest = newest.await?;
            return Ok(newest.filter(|stored| version.is_none_or(|version| version == stored.flow.version)));
        };
        if let Some(known) = inner.flows.cache.get(&name, version) {
            return Ok(Some(known));
        }
        with_link!(self, |inner, link| inner.flows.one(&mut link, &name, version))
    }

    async fn flows(&self) -> Result<Vec<StoredFlow>, StoreError> {
        with_link!(self, |inner, link| inner.flows.all(&mut link))
    }

    async fn tasks(&self, query: &TaskQuery) -> Result<Page<Loaded, TaskId>, StoreError> {
        let query = query.clone();
        with_link!(self, |inner, link| load::page(&mut link, &inner.flows, &query))
    }

    async fn events(&self, task: TaskId, after: u64, limit: usize) -> Result<Vec<(u64, Event)>, StoreError> {
        with_link!(self, |inner, link| query::events(&mut link, task, after, limit))
    }

    async fn logs(&self, task: TaskId, after: u64, limit: usize) -> Result<Vec<(u64, LogLine)>, StoreError> {
        with_link!(self, |inner, link| query::logs(&mut link, task, after, limit))
    }

    async fn alarms_by_id(&self, ids: &[AlarmId]) -> Result<Vec<Option<StoredAlarm>>, StoreError> {
        let ids = ids.to_vec();
        with_link!(self, |inner, link| query::alarms_by_id(&mut link, inner.damaged(), &ids))
    }

    async fn locks_by_name(&self, names: &[LockName]) -> Result<Vec<Lock>, StoreError> {
        let names = names.to_vec();
        with_link!(self, |inner, link| locks::locks_by_name(&mut link, inner.damaged(), &names))
    }

    async fn free_locks(&self, limit: usize) -> Result<Vec<Lock>, StoreError> {
        with_link!(self, |inner, link| locks::free_locks(&mut link, inner.damaged(), limit))
    }

    async fn lock_floor(&self) -> Result<u64, StoreError> {
        with_link!(self, |inner, link| locks::lock_floor(&mut link))
    }

    async fn locks(&self, after: Option<&LockName>, limit: usize) -> Result<Vec<Lock>, StoreError> {
        let after = after.cloned();
        with_link!(self, |inner, link| locks::locks(&mut link, inner.damaged(), after.as_ref(), limit))
    }

    async fn alarms(&self, all: bool, limit: usize) -> Result<Vec<Alarm>, StoreError> {
        with_link!(self, |inner, link| query::alarms(&mut link, inner.damaged(), all, limit))
    }

    async fn records_by_name(
        &self,
        kind: RecordKind,
        names: &[Name],
    ) -> Result<Vec<Option<Record>>, StoreError> {
        let names = names.to_vec();
        with_link!(self, |inner, link| query::records_by_name(&mut link, inner.damaged(), kind, &names))
    }

    async fn records(
        &self,
        kind: RecordKind,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let page = (kind, after.cloned(), limit);
        with_link!(self, |inner, link| query::records(&mut link, inner.damaged(), &page))
    }

    async fn journal(&self, query: &JournalQuery) -> Result<Vec<(u64, JournalEntry)>, StoreError> {
        let query = query.clone();
        with_link!(self, |inner, link| query::journal(&mut link, &query))
    }

    async fn journal_sizes(&self, query: SizeQuery) -> Result<Vec<JournalSize>, StoreError> {
        with_link!(self, |inner, link| query::journal_sizes(&mut link, query))
    }

    async fn queues(&self) -> Result<Vec<QueueState>, StoreError> {
        with_link!(self, |inner, link| claims::queues(&mut link, inner.damaged()))
    }

    async fn sessions(&self, now: Now) -> Result<Vec<SessionState>, StoreError> {
        with_link!(self, |inner, link| sessions::sessions(&mut link, now))
    }

    async fn limits(&self, now: Now) -> Result<Vec<LimitState>, StoreError> {
        let limits = with_link!(self, |inner, link| claims::limits(&mut link, inner.damaged(), now))?;
        Ok(limits.states())
    }

    async fn keeping_back(&self, ready: &Ready, now: Now) -> Result<Vec<LimitState>, StoreError> {
        let limits = with_link!(self, |inner, link| claims::limits(&mut link, inner.damaged(), now))?;
        Ok(limits.keeping_back(ready))
    }

    async fn place(&self, task: TaskId, key: ActKey) -> Result<Option<u64>, StoreError> {
        with_link!(self, |inner, link| claims::place(&mut link, task, key))
    }
}

#[async_trait]
impl<D: Dialect> EnqueuedTasks for RowStore<D> {
    async fn waiting(&self, limit: usize, after: u64) -> Result<Vec<Enqueued>, StoreError> {
        with_link!(self, |inner, link| enqueued::waiting(&mut link, limit, after))
    }

    async fn settle(
        &self,
        settled: Vec<(TaskId, Settlement)>,
        led: Option<Leadership>,
    ) -> Result<usize, StoreError> {
        with_link!(self, |inner, link| link.settle(&settled, led))
    }

    async fn standing(&self, id: TaskId) -> Result<Option<Standing>, StoreError> {
        with_link!(self, |inner, link| enqueued::standing(&mut link, id))
    }

    async fn arrival(&self) {
        self.news.enqueued().await;
    }
}

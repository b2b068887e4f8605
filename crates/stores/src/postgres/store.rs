//! The store port over the database.
use std::{fmt, future::Future, sync::Arc};

use async_trait::async_trait;
use tokio::runtime::Handle;
use uuid::Uuid;
use windlass_core::{ActKey, Alarm, AlarmId, Event, Lock, LockName, Millis, Name, Ready, TaskId, Timestamp};
use windlass_store::{
    Adoption, Ask, AttemptId, Change, ClaimRequest, Claimed, Due, Enqueued, EnqueuedTasks, Envelope, Leave,
    LimitState, Loaded, LogLine, Now, Outcome, Page, Quarantine, QueueState, Retention, ServerId,
    ServerState, Service, ServiceLease, SessionId, SessionRenewal, SessionState, Settlement, Standing, Store,
    StoreError, StoredAlarm, StoredFlow, TaskQuery, Unannounced,
};

use super::{
    claim,
    commit::{Asked, Committer},
    connection::{Database, retrying},
    due, enqueued,
    flows::Flows,
    limits, list, load,
    news::News,
    open::{OpenError, Opened, PostgresOptions, open, random_bytes},
    query, queues, servers, sessions, sweep,
};
use crate::rows::Newest;

/// Tasks in a PostgreSQL database, on which other servers may work as well.
///
/// Whatever is begun is done to its end on the runtime on which the store was opened, even when nobody waits for it any
/// more: no transaction is left open by whoever goes away.
pub struct PostgresStore {
    inner: Arc<Inner>,
    news: News,
    runtime: Handle,
    token_key: [u8; 32],
}

struct Inner {
    database: Arc<Database>,
    flows: Arc<Flows>,
    newest: Newest,
    committer: Committer,
}

impl PostgresStore {
    /// Opens the database and brings its tables to today's version. Must be called on a Tokio runtime, which the store
    /// works on from then on.
    ///
    /// # Errors
    /// When it cannot be reached, does not let us in, takes no writes, or has tables of a newer version.
    pub async fn open(options: &PostgresOptions) -> Result<Self, OpenError> {
        let Opened { database, token_key } = open(options).await?;
        let id = Uuid::from_bytes(random_bytes()?).to_string();
        let news = News::listen(options.clone(), id.clone());
        Ok(Self { inner: Inner::new(database, id), news, runtime: Handle::current(), token_key })
    }

    /// One that only reads, out of a snapshot, and hears of nothing. Must be called on a Tokio runtime.
    pub(super) fn reading(snapshot: Database, token_key: [u8; 32]) -> Self {
        let inner = Inner::new(snapshot, String::new());
        Self { inner, news: News::none(), runtime: Handle::current(), token_key }
    }

    pub(super) fn database(&self) -> &Database {
        &self.inner.database
    }

    /// Does something to its end on the store's runtime.
    async fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let ended = |error| StoreError::Unavailable(format!("what the store did has ended: {error}"));
        self.runtime.spawn(work).await.unwrap_or_else(|error| Err(ended(error)))
    }
}

impl Inner {
    fn new(database: Database, id: String) -> Arc<Self> {
        let (database, flows, newest) = (Arc::new(database), Arc::default(), Newest::default());
        Arc::new(Self { database, flows, newest, committer: Committer::new(id) })
    }

    fn damaged(&self) -> &Quarantine {
        &self.flows.quarantine
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.inner.database.close();
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").finish_non_exhaustive()
    }
}

/// Does something with a connection, to its end.
macro_rules! with_connection {
    ($store:expr, |$inner:ident, $connection:ident| $work:expr) => {{
        let $inner = $store.inner.clone();
        $store
            .spawn(async move {
                let database = &$inner.database;
                retrying!(database, |$connection| $work.await)
            })
            .await
    }};
}

#[async_trait]
impl Store for PostgresStore {
    fn token_key(&self) -> [u8; 32] {
        self.token_key
    }

    fn next_wake(&self, _now: Now) -> Option<Millis> {
        None
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn quarantine(&self) -> &Quarantine {
        self.inner.damaged()
    }

    fn round_trips(&self) -> Option<u64> {
        Some(self.inner.database.trips())
    }

    fn connected(&self) -> u64 {
        self.inner.database.connected()
    }

    async fn news(&self) {
        self.news.next().await;
    }

    fn enqueued(&self) -> Option<&dyn EnqueuedTasks> {
        Some(self)
    }

    async fn time(&self) -> Result<Option<Timestamp>, StoreError> {
        with_connection!(self, |inner, connection| servers::time(&mut connection))
    }

    async fn load(&self, ids: &[TaskId]) -> Result<Vec<Option<Loaded>>, StoreError> {
        let ids = ids.to_vec();
        with_connection!(self, |inner, connection| load::load(&mut connection, &inner.flows, &ids))
    }

    async fn versions(&self, ids: &[TaskId]) -> Result<Vec<Option<u64>>, StoreError> {
        let ids = ids.to_vec();
        with_connection!(self, |inner, connection| query::versions(&mut connection, &ids))
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<Vec<Outcome>, StoreError> {
        let now = Now { wall: Timestamp(0), mono: Millis(0) };
        Ok(self.commit_and_claim(changes, &[], &Leave::default(), now).await?.0)
    }

    async fn commit_and_claim(
        &self,
        changes: Vec<Change>,
        asks: &[Ask],
        leave: &Leave,
        now: Now,
    ) -> Result<(Vec<Outcome>, Vec<Option<Vec<Claimed>>>), StoreError> {
        if changes.is_empty() {
            return Ok((Vec::new(), vec![None; asks.len()]));
        }
        let (inner, asked) = (self.inner.clone(), Asked { asks: asks.to_vec(), leave: leave.clone(), now });
        self.spawn(async move {
            let (outcomes, claimed) =
                inner.committer.commit(&inner.database, &inner.flows, &changes, &asked).await?;
            inner.newest.settle(&changes, &outcomes).await;
            Ok((outcomes, claimed))
        })
        .await
    }

    async fn claim(
        &self,
        session: SessionId,
        claim_requests: &[ClaimRequest],
        now: Now,
    ) -> Result<Vec<Claimed>, StoreError> {
        self.claim_leaving(session, claim_requests, &Leave::default(), now).await
    }

    async fn claim_leaving(
        &self,
        session: SessionId,
        claim_requests: &[ClaimRequest],
        leave: &Leave,
        now: Now,
    ) -> Result<Vec<Claimed>, StoreError> {
        let (inner, claim_requests, leave) = (self.inner.clone(), claim_requests.to_vec(), leave.clone());
        self.spawn(async move {
            claim::claim_all(&inner.database, inner.damaged(), session, &claim_requests, &leave, now).await
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
        with_connection!(self, |inner, connection| sessions::adopt(&mut connection, session, &attempts, now))
    }

    async fn release(&self, session: SessionId, attempt: AttemptId, _now: Now) -> Result<(), StoreError> {
        with_connection!(self, |inner, connection| sessions::release(&mut connection, session, attempt))
    }

    async fn renew(&self, renewals: Vec<SessionRenewal>, now: Now) -> Result<(), StoreError> {
        with_connection!(self, |inner, connection| sessions::renew(&mut connection, &renewals, now))
    }

    async fn forgive(&self, now: Now) -> Result<(), StoreError> {
        with_connection!(self, |inner, connection| sessions::forgive(&mut connection, now))
    }

    async fn held(&self, session: SessionId) -> Result<Vec<Claimed>, StoreError> {
        with_connection!(self, |inner, connection| sessions::held(&mut connection, session))
    }

    async fn to_stop(&self, of: &[SessionId]) -> Result<Vec<Claimed>, StoreError> {
        let of = of.to_vec();
        with_connection!(self, |inner, connection| sessions::to_stop(&mut connection, &of))
    }

    async fn lost(&self, now: Now, limit: usize) -> Result<Vec<Claimed>, StoreError> {
        with_connection!(self, |inner, connection| sessions::lost(&mut connection, now, limit))
    }

    async fn due(&self, now: Now, limit: usize) -> Result<Vec<Due>, StoreError> {
        with_connection!(self, |inner, connection| due::due(&mut connection, now, limit))
    }

    async fn messages(&self, limit: usize) -> Result<Vec<Envelope>, StoreError> {
        with_connection!(self, |inner, connection| due::messages(&mut connection, inner.damaged(), limit))
    }

    async fn unannounced(&self, limit: usize) -> Result<Vec<Unannounced>, StoreError> {
        with_connection!(self, |inner, link| query::unannounced(&mut link, inner.damaged(), limit))
    }

    async fn flow(&self, name: &str, version: Option<u32>) -> Result<Option<StoredFlow>, StoreError> {
        let Ok(name) = Name::new(name) else { return Ok(None) };
        let inner = self.inner.clone();
        // One that came with tasks goes with the last of them, so it is looked whether it is there.
        let Some(version) = version.filter(|_| !windlass_core::is_adhoc(name.as_str())) else {
            let newest = self.spawn(async move {
                let Inner { database, flows, newest, .. } = &*inner;
                let ask = |names| async move {
                    retrying!(database, |connection| flows.newest(&mut connection, &names).await)
                };
                newest.get(&name, ask).await
            });
            let newest = newest.await?;
            return Ok(newest.filter(|stored| version.is_none_or(|version| version == stored.flow.version)));
        };
        if let Some(known) = inner.flows.cache.get(&name, version) {
            return Ok(Some(known));
        }
        with_connection!(self, |inner, connection| async {
            inner.flows.read(&mut connection, std::iter::once((name.clone(), version))).await?;
            Ok(inner.flows.readable(&name, version)?)
        })
    }

    async fn flows(&self) -> Result<Vec<StoredFlow>, StoreError> {
        with_connection!(self, |inner, connection| inner.flows.all(&mut connection))
    }

    async fn tasks(&self, query: &TaskQuery) -> Result<Page<Loaded, TaskId>, StoreError> {
        let query = query.clone();
        with_connection!(self, |inner, connection| list::page(&mut connection, &inner.flows, &query))
    }

    async fn events(&self, task: TaskId, after: u64, limit: usize) -> Result<Vec<(u64, Event)>, StoreError> {
        with_connection!(self, |inner, connection| query::events(&mut connection, task, after, limit))
    }

    async fn logs(&self, task: TaskId, after: u64, limit: usize) -> Result<Vec<(u64, LogLine)>, StoreError> {
        with_connection!(self, |inner, connection| query::logs(&mut connection, task, after, limit))
    }

    async fn alarms_by_id(&self, ids: &[AlarmId]) -> Result<Vec<Option<StoredAlarm>>, StoreError> {
        let ids = ids.to_vec();
        with_connection!(self, |inner, link| query::alarms_by_id(&mut link, inner.damaged(), &ids))
    }

    async fn locks_by_name(&self, names: &[LockName]) -> Result<Vec<Lock>, StoreError> {
        let names = names.to_vec();
        with_connection!(self, |inner, link| query::locks_by_name(&mut link, inner.damaged(), &names))
    }

    async fn free_locks(&self, limit: usize) -> Result<Vec<Lock>, StoreError> {
        with_connection!(self, |inner, connection| query::free_locks(&mut connection, inner.damaged(), limit))
    }

    async fn lock_floor(&self) -> Result<u64, StoreError> {
        with_connection!(self, |inner, connection| query::lock_floor(&mut connection))
    }

    async fn locks(&self, after: Option<&LockName>, limit: usize) -> Result<Vec<Lock>, StoreError> {
        let after = after.cloned();
        with_connection!(self, |inner, link| query::locks(&mut link, inner.damaged(), after.as_ref(), limit))
    }

    async fn alarms(&self, all: bool, limit: usize) -> Result<Vec<Alarm>, StoreError> {
        with_connection!(self, |inner, link| query::alarms(&mut link, inner.damaged(), all, limit))
    }

    async fn queues(&self) -> Result<Vec<QueueState>, StoreError> {
        with_connection!(self, |inner, connection| queues::queues(&mut connection, inner.damaged()))
    }

    async fn sessions(&self, now: Now) -> Result<Vec<SessionState>, StoreError> {
        with_connection!(self, |inner, connection| sessions::sessions(&mut connection, now))
    }

    async fn limits(&self, now: Now) -> Result<Vec<LimitState>, StoreError> {
        let limits = with_connection!(self, |inner, link| limits::limits(&mut link, inner.damaged(), now))?;
        Ok(limits.states())
    }

    async fn keeping_back(&self, ready: &Ready, now: Now) -> Result<Vec<LimitState>, StoreError> {
        let limits = with_connection!(self, |inner, link| limits::limits(&mut link, inner.damaged(), now))?;
        Ok(limits.keeping_back(ready))
    }

    async fn place(&self, task: TaskId, key: ActKey) -> Result<Option<u64>, StoreError> {
        with_connection!(self, |inner, connection| queues::place(&mut connection, task, key))
    }

    async fn register(&self, server: ServerState) -> Result<(), StoreError> {
        with_connection!(self, |inner, connection| servers::register(&mut connection, &server))
    }

    async fn servers(&self) -> Result<Vec<ServerState>, StoreError> {
        with_connection!(self, |inner, connection| servers::servers(&mut connection))
    }

    async fn leave(&self, server: ServerId) -> Result<(), StoreError> {
        with_connection!(self, |inner, connection| servers::leave(&mut connection, server))
    }

    async fn lease(
        &self,
        service: Service,
        server: ServerId,
        length: Millis,
        now: Now,
    ) -> Result<ServiceLease, StoreError> {
        with_connection!(self, |inner, connection| servers::lease(
            &mut connection,
            service,
            server,
            length,
            now
        ))
    }

    async fn sweep(&self, retention: &Retention, now: Now, limit: usize) -> Result<u64, StoreError> {
        let retention = *retention;
        with_connection!(self, |inner, connection| sweep::sweep(&mut connection, &retention, now, limit))
    }
}

#[async_trait]
impl EnqueuedTasks for PostgresStore {
    async fn waiting(&self, limit: usize, after: u64) -> Result<Vec<Enqueued>, StoreError> {
        with_connection!(self, |inner, connection| enqueued::waiting(&mut connection, limit, after))
    }

    async fn settle(&self, settled: Vec<(TaskId, Settlement)>) -> Result<usize, StoreError> {
        with_connection!(self, |inner, connection| enqueued::settle(&mut connection, &settled))
    }

    async fn standing(&self, id: TaskId) -> Result<Option<Standing>, StoreError> {
        with_connection!(self, |inner, connection| enqueued::standing(&mut connection, id))
    }

    async fn arrival(&self) {
        self.news.enqueued().await;
    }
}

//! The store port.

use std::time::Duration;

use async_trait::async_trait;
use windlass_core::{
    ActKey, Alarm, AlarmId, Event, Lock, LockName, Millis, Name, Ready, TaskId, Timestamp, is_adhoc,
};
use windlass_store::{
    Adoption, AttemptId, Change, ClaimRequest, Claimed, Due, Enqueued, EnqueuedTasks, Envelope, LimitState,
    Loaded, LogLine, Now, Outcome, Page, Quarantine, QueueState, Retention, ServerId, ServerState, Service,
    ServiceLease, SessionId, SessionRenewal, SessionState, Settlement, Standing, Store, StoreError,
    StoredAlarm, StoredFlow, TaskQuery, Unannounced,
};

use super::{
    claim,
    columns::Columns as _,
    commit::{Committer, NOW},
    connection::{Database, retrying},
    due, enqueued,
    flows::Flows,
    limits::read_limits,
    list,
    load::load,
    open::{MySqlOptions, OpenError, open},
    query, queues,
    script::Script,
    servers, sessions, sweep,
};
use crate::rows::Newest;

/// How often it is looked whether other servers did something: MySQL tells nobody by itself.
const NEWS_EVERY: Duration = Duration::from_millis(200);

/// Rows in a MySQL or MariaDB database.
pub struct MySqlStore {
    database: Database,
    flows: Flows,
    newest: Newest,
    committer: Committer,
    token_key: [u8; 32],
}

impl MySqlStore {
    /// Opens a database: checks what it is and brings its tables to today's version.
    ///
    /// # Errors
    /// Why it cannot be used, and what to do.
    pub async fn open(options: &MySqlOptions) -> Result<Self, OpenError> {
        let opened = open(options).await?;
        Ok(Self {
            database: opened.database,
            flows: Flows::default(),
            newest: Newest::default(),
            committer: Committer::default(),
            token_key: opened.token_key,
        })
    }

    /// One that only reads, out of a snapshot.
    pub(super) fn reading(snapshot: Database, token_key: [u8; 32]) -> Self {
        let (flows, newest, committer) = (Flows::default(), Newest::default(), Committer::default());
        Self { database: snapshot, flows, newest, committer, token_key }
    }

    pub(super) fn database(&self) -> &Database {
        &self.database
    }

    /// How often something went to the database and was waited for.
    #[must_use]
    pub fn trips(&self) -> u64 {
        self.database.trips()
    }
}

#[async_trait]
impl Store for MySqlStore {
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
        &self.flows.quarantine
    }

    async fn news(&self) {
        self.database.within(async { tokio::time::sleep(NEWS_EVERY).await }).await;
    }

    fn round_trips(&self) -> Option<u64> {
        Some(self.trips())
    }

    fn connected(&self) -> u64 {
        self.database.connected()
    }

    fn enqueued(&self) -> Option<&dyn EnqueuedTasks> {
        Some(self)
    }

    async fn time(&self) -> Result<Option<Timestamp>, StoreError> {
        retrying!(self.database, |connection| {
            let mut script = Script::default();
            script.add(&format!("SELECT {NOW}"), []);
            let sets = connection.run(script).await?;
            sets[0].first().map(|row| Ok(Timestamp(row.number(0)?))).transpose()
        })
    }

    async fn load(&self, ids: &[TaskId]) -> Result<Vec<Option<Loaded>>, StoreError> {
        retrying!(self.database, |connection| load(&mut connection, &self.flows, ids, false).await)
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<Vec<Outcome>, StoreError> {
        let committed = async {
            let outcomes = self.committer.commit(&self.database, &self.flows, &changes).await?;
            self.newest.settle(&changes, &outcomes).await;
            Ok(outcomes)
        };
        self.database.within(committed).await
    }

    async fn claim(
        &self,
        session: SessionId,
        claim_requests: &[ClaimRequest],
        now: Now,
    ) -> Result<Vec<Claimed>, StoreError> {
        let mut claimed = Vec::new();
        for claim_request in claim_requests.iter().filter(|claim_request| claim_request.free > 0) {
            let result: Result<Vec<Claimed>, StoreError> = retrying!(self.database, |connection| {
                claim::claim(&mut connection, &self.flows.quarantine, session, claim_request, now).await
            });
            match result {
                Ok(found) => claimed.extend(found),
                // What was handed out already must reach the worker.
                Err(error) if claimed.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        Ok(claimed)
    }

    async fn adopt(
        &self,
        session: SessionId,
        attempts: &[AttemptId],
        now: Now,
    ) -> Result<Vec<Adoption>, StoreError> {
        retrying!(self.database, |connection| {
            sessions::adopt(&mut connection, session, attempts, now).await
        })
    }

    async fn release(&self, session: SessionId, attempt: AttemptId, _now: Now) -> Result<(), StoreError> {
        retrying!(self.database, |connection| sessions::release(&mut connection, session, attempt).await)
    }

    async fn renew(&self, sessions: Vec<SessionRenewal>, now: Now) -> Result<(), StoreError> {
        retrying!(self.database, |connection| sessions::renew(&mut connection, &sessions, now).await)
    }

    async fn forgive(&self, now: Now) -> Result<(), StoreError> {
        retrying!(self.database, |connection| sessions::forgive(&mut connection, now).await)
    }

    async fn held(&self, session: SessionId) -> Result<Vec<Claimed>, StoreError> {
        retrying!(self.database, |connection| sessions::held(&mut connection, &[session], false).await)
    }

    async fn to_stop(&self, sessions: &[SessionId]) -> Result<Vec<Claimed>, StoreError> {
        retrying!(self.database, |connection| sessions::held(&mut connection, sessions, true).await)
    }

    async fn versions(&self, ids: &[TaskId]) -> Result<Vec<Option<u64>>, StoreError> {
        retrying!(self.database, |connection| query::versions(&mut connection, ids).await)
    }

    async fn lost(&self, now: Now, limit: usize) -> Result<Vec<Claimed>, StoreError> {
        retrying!(self.database, |connection| sessions::lost(&mut connection, now, limit).await)
    }

    async fn due(&self, now: Now, limit: usize) -> Result<Vec<Due>, StoreError> {
        retrying!(self.database, |connection| due::due(&mut connection, now, limit).await)
    }

    async fn messages(&self, limit: usize) -> Result<Vec<Envelope>, StoreError> {
        retrying!(self.database, |connection| due::messages(&mut connection, &self.flows.quarantine, limit)
            .await)
    }

    async fn unannounced(&self, limit: usize) -> Result<Vec<Unannounced>, StoreError> {
        retrying!(self.database, |connection| query::unannounced(
            &mut connection,
            &self.flows.quarantine,
            limit
        )
        .await)
    }

    async fn flow(&self, name: &str, version: Option<u32>) -> Result<Option<StoredFlow>, StoreError> {
        // No flow has a name that is none.
        let Ok(name) = Name::new(name) else { return Ok(None) };
        // One that came with tasks goes with the last of them, so it is looked whether it is there.
        let Some(version) = version.filter(|_| !is_adhoc(name.as_str())) else {
            let ask = |names| async move {
                retrying!(self.database, |connection| self.flows.newest(&mut connection, &names).await)
            };
            let newest = self.newest.get(&name, ask).await?;
            return Ok(newest.filter(|stored| version.is_none_or(|version| version == stored.flow.version)));
        };
        retrying!(self.database, |connection| self.flows.one(&mut connection, &name, version).await)
    }

    async fn flows(&self) -> Result<Vec<StoredFlow>, StoreError> {
        retrying!(self.database, |connection| self.flows.all(&mut connection).await)
    }

    async fn tasks(&self, query: &TaskQuery) -> Result<Page<Loaded, TaskId>, StoreError> {
        retrying!(self.database, |connection| list::page(&mut connection, &self.flows, query).await)
    }

    async fn events(&self, task: TaskId, after: u64, limit: usize) -> Result<Vec<(u64, Event)>, StoreError> {
        retrying!(self.database, |connection| query::events(&mut connection, task, after, limit).await)
    }

    async fn logs(&self, task: TaskId, after: u64, limit: usize) -> Result<Vec<(u64, LogLine)>, StoreError> {
        retrying!(self.database, |connection| query::logs(&mut connection, task, after, limit).await)
    }

    async fn alarms_by_id(&self, ids: &[AlarmId]) -> Result<Vec<Option<StoredAlarm>>, StoreError> {
        retrying!(self.database, |connection| query::alarms_by_id(
            &mut connection,
            &self.flows.quarantine,
            ids
        )
        .await)
    }

    async fn locks_by_name(&self, names: &[LockName]) -> Result<Vec<Lock>, StoreError> {
        retrying!(self.database, |connection| query::locks_by_name(
            &mut connection,
            &self.flows.quarantine,
            names
        )
        .await)
    }

    async fn free_locks(&self, limit: usize) -> Result<Vec<Lock>, StoreError> {
        retrying!(self.database, |connection| query::free_locks(
            &mut connection,
            &self.flows.quarantine,
            limit
        )
        .await)
    }

    async fn lock_floor(&self) -> Result<u64, StoreError> {
        retrying!(self.database, |connection| query::lock_floor(&mut connection).await)
    }

    async fn locks(&self, after: Option<&LockName>, limit: usize) -> Result<Vec<Lock>, StoreError> {
        retrying!(self.database, |connection| query::locks(
            &mut connection,
            &self.flows.quarantine,
            after,
            limit
        )
        .await)
    }

    async fn alarms(&self, all: bool, limit: usize) -> Result<Vec<Alarm>, StoreError> {
        retrying!(self.database, |connection| query::alarms(
            &mut connection,
            &self.flows.quarantine,
            all,
            limit
        )
        .await)
    }

    async fn queues(&self) -> Result<Vec<QueueState>, StoreError> {
        retrying!(self.database, |connection| queues::queues(&mut connection, &self.flows.quarantine).await)
    }

    async fn sessions(&self, now: Now) -> Result<Vec<SessionState>, StoreError> {
        retrying!(self.database, |connection| sessions::sessions(&mut connection, now).await)
    }

    async fn limits(&self, now: Now) -> Result<Vec<LimitState>, StoreError> {
        retrying!(self.database, |connection| Ok(read_limits(&mut connection, &self.flows.quarantine, now)
            .await?
            .states()))
    }

    async fn keeping_back(&self, ready: &Ready, now: Now) -> Result<Vec<LimitState>, StoreError> {
        retrying!(self.database, |connection| Ok(read_limits(&mut connection, &self.flows.quarantine, now)
            .await?
            .keeping_back(ready)))
    }

    async fn place(&self, task: TaskId, key: ActKey) -> Result<Option<u64>, StoreError> {
        retrying!(self.database, |connection| queues::place(&mut connection, task, key).await)
    }

    async fn register(&self, server: ServerState) -> Result<(), StoreError> {
        retrying!(self.database, |connection| servers::register(&mut connection, &server).await)
    }

    async fn servers(&self) -> Result<Vec<ServerState>, StoreError> {
        retrying!(self.database, |connection| servers::servers(&mut connection).await)
    }

    async fn leave(&self, server: ServerId) -> Result<(), StoreError> {
        retrying!(self.database, |connection| servers::leave(&mut connection, server).await)
    }

    async fn lease(
        &self,
        service: Service,
        server: ServerId,
        length: Millis,
        now: Now,
    ) -> Result<ServiceLease, StoreError> {
        retrying!(self.database, |connection| {
            servers::lease(&mut connection, service, server, length, now).await
        })
    }

    async fn sweep(&self, retention: &Retention, now: Now, limit: usize) -> Result<u64, StoreError> {
        retrying!(self.database, |connection| sweep::sweep(&mut connection, retention, now, limit).await)
    }
}

#[async_trait]
impl EnqueuedTasks for MySqlStore {
    async fn waiting(&self, limit: usize, after: u64) -> Result<Vec<Enqueued>, StoreError> {
        retrying!(self.database, |connection| enqueued::waiting(&mut connection, limit, after).await)
    }

    async fn settle(&self, settled: Vec<(TaskId, Settlement)>) -> Result<usize, StoreError> {
        retrying!(self.database, |connection| enqueued::settle(&mut connection, &settled).await)
    }

    async fn standing(&self, id: TaskId) -> Result<Option<Standing>, StoreError> {
        retrying!(self.database, |connection| enqueued::standing(&mut connection, id).await)
    }

    async fn arrival(&self) {
        self.news().await;
    }
}

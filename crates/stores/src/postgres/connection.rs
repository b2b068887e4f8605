//! Connections: a pool of them, each with its settings, and statements that go to the database together.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use deadpool_postgres::{Object, Pool};
use futures_util::future::{BoxFuture, FutureExt as _, join_all};
use tokio::time::{error::Elapsed, timeout};
use tokio_postgres::{Row, types::ToSql};
use uuid::Uuid;
use windlass_store::Leadership;

use super::error::{closed, no_answer};
use crate::rows::{self, Answers, Fault, Link, policy::ANSWER_AFTER, to_integer};

/// What every connection is set to, beside how long a statement may take. A lock or a transaction that takes longer than
/// this is given up: nothing that is held up may hold up others without end. Plans are made once, for any length of
/// arrays, and tables may be empty then: so each statement is to go by an index, in its order.
pub(super) const SETTINGS: &str = "
    SET lock_timeout = '5s';
    SET idle_in_transaction_session_timeout = '10s';
    SET default_transaction_isolation = 'read committed';
    SET plan_cache_mode = 'force_generic_plan';
    SET enable_seqscan = off;
    SET enable_bitmapscan = off;
    SET enable_hashjoin = off;
    SET enable_mergejoin = off;
    SET jit = off;
    SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'";

/// What the one connection of a snapshot is set to behind that: all it reads is as it is now, for as long as it takes. The
/// moment is that of the first statement that reads.
pub(super) const SNAPSHOT: &str = "
    SET idle_in_transaction_session_timeout = 0;
    BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// Fails where the lease is another one by now, and keeps it as it is until the end of the transaction.
const CHECK_LEASE: &str = "SELECT 1 / count(*) FROM (
        SELECT FROM windlass_service WHERE name = $1 AND holder = $2 AND fence = $3 FOR SHARE
    ) AS lease";

/// The pool of connections to the database.
pub(crate) struct Database {
    pool: Pool,
    statement_max: Duration,
    trips: AtomicU64,
    /// Connections made so far.
    connected: Arc<AtomicU64>,
}

impl Database {
    pub(super) fn new(pool: Pool, statement_max: Duration, connected: Arc<AtomicU64>) -> Self {
        Self { pool, statement_max, trips: AtomicU64::new(0), connected }
    }

    /// Waits for an answer for as long as it may take.
    async fn answer<T>(&self, answer: impl Future<Output = T>) -> Result<T, Elapsed> {
        timeout(self.statement_max + ANSWER_AFTER, answer).await
    }
}

impl rows::Database for Database {
    type Link = Connection;

    async fn connection(self: &Arc<Self>) -> Result<Connection, Fault> {
        let object = Some(self.pool.get().await?);
        Ok(Connection { object, in_transaction: false, database: self.clone() })
    }

    fn connected(&self) -> u64 {
        self.connected.load(Ordering::Relaxed)
    }

    fn trips(&self) -> u64 {
        self.trips.load(Ordering::Relaxed)
    }

    fn close(&self) {
        self.pool.close();
    }
}

/// A connection. When it is dropped within a transaction it is closed, which ends that; else it goes back to the pool.
pub struct Connection {
    object: Option<Object>,
    in_transaction: bool,
    database: Arc<Database>,
}

impl Link for Connection {
    const PRODUCT: &'static str = "PostgreSQL";

    type Database = Database;
    type Script<'a> = Batch<'a>;
    type Row = Row;

    async fn send(&mut self, batch: Self::Script<'_>) -> Result<Answers<Self>, Fault> {
        if batch.is_empty() {
            return Ok(batch.steps.iter().map(|_| Vec::new()).collect());
        }
        let Some(object) = &self.object else { return Err(closed()) };
        let (begins, commits) = (batch.begins, batch.commits);
        self.in_transaction |= begins;
        let answer = self.database.answer(send(object, &batch, &self.database.trips)).await;
        let results = self.heard(answer)?;
        if commits && self.object.as_ref().is_some_and(|object| !object.is_closed()) {
            // Where a statement has failed it was rolled back instead.
            self.in_transaction = false;
        }
        let rows = results.into_iter().collect::<Result<Vec<_>, _>>();
        let rows = self.heard(Ok(rows))?;
        let end = rows.len() - usize::from(commits);
        Ok(rows.into_iter().take(end).skip(usize::from(begins)).collect())
    }

    async fn roll_back(&mut self) -> Result<(), Fault> {
        let Some(object) = &self.object else { return Err(closed()) };
        self.database.trips.fetch_add(1, Ordering::Relaxed);
        let answer = self.database.answer(object.batch_execute("ROLLBACK")).await;
        self.heard(answer)?;
        self.in_transaction = false;
        Ok(())
    }
}

impl Connection {
    /// Closes the connection where it cannot be used any more. Where the server did not answer at all, all idle connections
    /// are closed too: they may be as dead.
    fn heard<T>(&mut self, answer: Answer<T>) -> Result<T, Fault> {
        let fault = match answer {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => Fault::from(error),
            Err(_) => {
                self.database.pool.retain(|_, _| false);
                no_answer()
            }
        };
        if fault.is_lost_connection() {
            self.close();
        }
        Err(fault)
    }

    fn close(&mut self) {
        drop(self.object.take().map(Object::take));
    }
}

/// An answer that came in time, or not.
type Answer<T> = Result<Result<T, tokio_postgres::Error>, Elapsed>;

/// What each statement of a batch came to, with its beginning and its end where it has them.
type Results = Vec<Result<Vec<Row>, tokio_postgres::Error>>;

async fn send(
    object: &Object,
    batch: &Batch<'_>,
    trips: &AtomicU64,
) -> Result<Results, tokio_postgres::Error> {
    if let ([step], false, false) = (&batch.steps[..], batch.begins, batch.commits) {
        let statement = object.prepare_cached(step.sql).await?;
        trips.fetch_add(1, Ordering::Relaxed);
        return Ok(vec![object.query(&statement, &step.parameters()).await]);
    }
    let mut statements = Vec::with_capacity(batch.steps.len());
    for step in &batch.steps {
        let statement = if step.is_left_out() { None } else { Some(object.prepare_cached(step.sql).await?) };
        statements.push(statement);
    }
    trips.fetch_add(1, Ordering::Relaxed);
    // Polled in their order the first time, they are sent in this order.
    let begin = batch.begins.then(|| simple(object, "BEGIN"));
    let steps = batch.steps.iter().zip(&statements).map(|(step, statement)| {
        async move {
            let Some(statement) = statement else { return Ok(Vec::new()) };
            object.query(statement, &step.parameters()).await
        }
        .boxed()
    });
    let commit = batch.commits.then(|| simple(object, "COMMIT"));
    Ok(join_all(begin.into_iter().chain(steps).chain(commit)).await)
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.in_transaction {
            self.close();
        }
    }
}

fn simple<'o>(
    object: &'o Object,
    sql: &'static str,
) -> BoxFuture<'o, Result<Vec<Row>, tokio_postgres::Error>> {
    async move {
        object.batch_execute(sql).await?;
        Ok(Vec::new())
    }
    .boxed()
}

/// Statements that go to the database together.
#[derive(Default)]
pub(crate) struct Batch<'a> {
    begins: bool,
    steps: Vec<Step<'a>>,
    commits: bool,
}

struct Step<'a> {
    /// Empty where the statement is left out.
    sql: &'static str,
    parameters: Vec<Box<dyn ToSql + Sync + Send + 'a>>,
}

impl Step<'_> {
    fn is_left_out(&self) -> bool {
        self.sql.is_empty()
    }

    fn parameters(&self) -> Vec<&(dyn ToSql + Sync)> {
        self.parameters.iter().map(|parameter| &**parameter as &(dyn ToSql + Sync)).collect()
    }
}

impl<'a> Batch<'a> {
    /// Statements that begin a transaction.
    pub(super) fn begin() -> Self {
        Self { begins: true, ..Self::default() }
    }

    /// One statement.
    pub(super) fn one(sql: &'static str, parameters: Vec<Box<dyn ToSql + Sync + Send + 'a>>) -> Self {
        let mut batch = Self::default();
        batch.add(sql, parameters);
        batch
    }

    pub(super) fn add(&mut self, sql: &'static str, parameters: Vec<Box<dyn ToSql + Sync + Send + 'a>>) {
        self.steps.push(Step { sql, parameters });
    }

    /// Adds a statement over `rows` rows. Without rows it is not sent, and its answer has no rows.
    pub(super) fn add_for(
        &mut self,
        rows: usize,
        sql: &'static str,
        parameters: Vec<Box<dyn ToSql + Sync + Send + 'a>>,
    ) {
        if rows > 0 {
            self.add(sql, parameters);
        } else {
            self.add("", Vec::new());
        }
    }

    /// As [`Batch::and_commit`], if the lease still stands; otherwise the batch fails with
    /// [`Kind::LeaseLost`](crate::rows::Kind::LeaseLost).
    ///
    /// The check is the last statement, so that the row of the lease is locked only while the database commits: a server
    /// that stands still in the middle of a transaction must not keep others from taking the lease.
    pub(super) fn and_commit_as(mut self, led: Option<Leadership>) -> Self {
        if let Some(Leadership { service, holder, fence }) = led {
            self.add(CHECK_LEASE, parameters![service.name(), Uuid::from_u128(holder.0), to_integer(fence)]);
        }
        self.and_commit()
    }

    /// Makes them a transaction that ends as by [`Batch::and_commit_as`], if there is a lease to check.
    pub(super) fn led(mut self, led: Option<Leadership>) -> Self {
        if led.is_none() {
            return self;
        }
        self.begins = true;
        self.and_commit_as(led)
    }

    /// They end the transaction, and what it did is on disk then.
    pub(super) fn and_commit(mut self) -> Self {
        self.commits = true;
        self
    }

    /// Nothing is to be sent.
    fn is_empty(&self) -> bool {
        !self.begins && !self.commits && self.steps.iter().all(Step::is_left_out)
    }
}

/// Parameters of a statement.
macro_rules! parameters {
    ($($parameter:expr),* $(,)?) => {
        vec![$(Box::new($parameter) as Box<dyn tokio_postgres::types::ToSql + Sync + Send + '_>),*]
    };
}
pub(super) use parameters;

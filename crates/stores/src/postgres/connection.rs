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

use super::error::Fault;

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

/// How long a call waits for a connection while all of them are busy.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(10);

/// How much longer than a statement may take its answer is waited for. A server that stands still says nothing at all.
const ANSWER_AFTER: Duration = Duration::from_secs(5);

/// The database, as this server is connected to it.
pub(super) struct Database {
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

    /// How often it was connected to.
    pub(super) fn connected(&self) -> u64 {
        self.connected.load(Ordering::Relaxed)
    }

    /// A connection for one piece of work.
    pub(super) async fn connection(&self) -> Result<Connection<'_>, Fault> {
        Ok(Connection { object: Some(self.pool.get().await?), in_transaction: false, database: self })
    }

    /// How often something went to the database and was waited for.
    pub(super) fn trips(&self) -> u64 {
        self.trips.load(Ordering::Relaxed)
    }

    /// Waits for an answer for as long as it may take.
    async fn answer<T>(&self, answer: impl Future<Output = T>) -> Result<T, Elapsed> {
        timeout(self.statement_max + ANSWER_AFTER, answer).await
    }

    /// Gives up all connections, at once where nothing is under way.
    pub(super) fn close(&self) {
        self.pool.close();
    }
}

/// A connection. When it is dropped within a transaction it is closed, which ends that; else it goes back to the pool.
pub(super) struct Connection<'d> {
    object: Option<Object>,
    in_transaction: bool,
    database: &'d Database,
}

impl Connection<'_> {
    /// Sends one statement and waits for its rows.
    pub(super) async fn query(
        &mut self,
        sql: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Fault> {
        let Some(object) = &self.object else { return Err(Fault::closed()) };
        let answer = self.database.answer(async {
            let statement = object.prepare_cached(sql).await?;
            self.database.trips.fetch_add(1, Ordering::Relaxed);
            object.query(&statement, parameters).await
        });
        let answer = answer.await;
        self.heard(answer)
    }

    /// Sends all statements at once and waits for the rows of each. The first that fails says why.
    pub(super) async fn send(&mut self, batch: Batch<'_>) -> Result<Vec<Vec<Row>>, Fault> {
        let Some(object) = &self.object else { return Err(Fault::closed()) };
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

    /// Ends the transaction without anything of it.
    pub(super) async fn roll_back(&mut self) -> Result<(), Fault> {
        let Some(object) = &self.object else { return Err(Fault::closed()) };
        self.database.trips.fetch_add(1, Ordering::Relaxed);
        let answer = self.database.answer(object.batch_execute("ROLLBACK")).await;
        self.heard(answer)?;
        self.in_transaction = false;
        Ok(())
    }

    /// Closes the connection where it is of no use any more, and all those that have nothing to do where the server did
    /// not answer at all: they may be as dead.
    fn heard<T>(&mut self, answer: Answer<T>) -> Result<T, Fault> {
        let fault = match answer {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => Fault::from(error),
            Err(_) => Fault::NoAnswer,
        };
        if fault.is_lost_connection() {
            self.close();
        }
        if matches!(fault, Fault::NoAnswer) {
            self.database.pool.retain(|_, _| false);
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
    let mut statements = Vec::with_capacity(batch.steps.len());
    for step in &batch.steps {
        statements.push(object.prepare_cached(step.sql).await?);
    }
    trips.fetch_add(1, Ordering::Relaxed);
    // Polled in their order the first time, they are sent in this order.
    let begin = batch.begins.then(|| simple(object, "BEGIN"));
    let steps = batch.steps.iter().zip(&statements).map(|(step, statement)| {
        async move {
            let parameters: Vec<&(dyn ToSql + Sync)> =
                step.parameters.iter().map(|parameter| &**parameter as &(dyn ToSql + Sync)).collect();
            object.query(statement, &parameters).await
        }
        .boxed()
    });
    let commit = batch.commits.then(|| simple(object, "COMMIT"));
    Ok(join_all(begin.into_iter().chain(steps).chain(commit)).await)
}

impl Drop for Connection<'_> {
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
pub(super) struct Batch<'a> {
    begins: bool,
    steps: Vec<Step<'a>>,
    commits: bool,
}

struct Step<'a> {
    sql: &'static str,
    parameters: Vec<Box<dyn ToSql + Sync + Send + 'a>>,
}

impl<'a> Batch<'a> {
    /// Statements that begin a transaction.
    pub(super) fn begin() -> Self {
        Self { begins: true, ..Self::default() }
    }

    pub(super) fn add(&mut self, sql: &'static str, parameters: Vec<Box<dyn ToSql + Sync + Send + 'a>>) {
        self.steps.push(Step { sql, parameters });
    }

    /// They end the transaction, and what it did is on disk then.
    pub(super) fn and_commit(mut self) -> Self {
        self.commits = true;
        self
    }
}

/// Parameters of a statement.
macro_rules! parameters {
    ($($parameter:expr),* $(,)?) => {
        vec![$(Box::new($parameter) as Box<dyn tokio_postgres::types::ToSql + Sync + Send + '_>),*]
    };
}
pub(super) use parameters;

/// How often something is tried that others are in the way of, or whose connection is lost.
pub(super) const TRIES_MAX: usize = 8;

/// Does something with a connection, and again with another one where the first was lost, or where others were in the
/// way. It must come to the same when it is done twice.
macro_rules! retrying {
    ($database:expr, |$connection:ident| $work:expr) => {{
        let mut tries = 0;
        loop {
            let result: Result<_, crate::postgres::error::Fault> = async {
                #[allow(unused_mut, reason = "some work only reads")]
                let mut $connection = $database.connection().await?;
                $work
            }
            .await;
            match result {
                Ok(done) => break Ok(done),
                Err(fault) => {
                    tries += 1;
                    let again = fault.is_contention() || fault.is_lost_connection();
                    if !again || tries >= crate::postgres::connection::TRIES_MAX {
                        break Err(windlass_store::StoreError::from(fault));
                    }
                    crate::postgres::connection::pause(tries).await;
                }
            }
        }
    }};
}
pub(super) use retrying;

/// Waits a little before the next try: longer each time, and not as long as others that failed at the same time.
pub(super) async fn pause(tries: usize) {
    let mut random = [0; 1];
    // Without random bytes all wait equally long, which is only slower.
    let _ = getrandom::fill(&mut random);
    let most = 2_u64 << tries.min(6);
    tokio::time::sleep(Duration::from_millis(most / 2 + u64::from(random[0]) * most / 512)).await;
}

//! Connections: a few of them, each with its settings, and scripts that go to the database in one trip.
//!
//! The driver's own pool is not used. It takes back connections whose caller stopped listening in the middle of an
//! answer, and the next caller would hear the rest of it; here, such a connection is closed, which also ends its
//! transaction.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use mysql_async::{Conn, Opts, Row, prelude::Queryable as _};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use windlass_store::StoreError;

use super::{
    error::{busy, lost},
    script::{Answer, Packet, Script},
};
use crate::rows::{
    self, Answers, Fault, Link, SNAPSHOT_LOST,
    policy::{ANSWER_AFTER, CONNECT_MAX, CONNECTIONS_MAX, STATEMENT_MAX, WAIT_MAX},
};

/// What every connection is set to. A statement or a lock that takes longer than this is given up: nothing that is held
/// up may hold up others without end. Lists of keys stay conditions on an index, however long they are.
const SETTINGS: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;
    SET SESSION autocommit = 1, sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00',
        innodb_lock_wait_timeout = 5, lock_wait_timeout = 10, foreign_key_checks = 0";

/// What only MariaDB knows.
const MARIADB_SETTINGS: &str = "SET SESSION max_statement_time = 30, idle_write_transaction_timeout = 10,
    in_predicate_conversion_threshold = 0";

/// What only MySQL knows.
const MYSQL_SETTINGS: &str = "SET SESSION max_execution_time = 30000";

/// What the one connection of a snapshot is set to behind that: all it reads is as it is now, for as long as it takes.
const SNAPSHOT: &str = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ;
    START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY";

/// What only MariaDB knows of how long a transaction may be idle.
const MARIADB_SNAPSHOT: &str =
    "SET SESSION idle_transaction_timeout = 0, idle_readonly_transaction_timeout = 0";

/// How long the database may take for a script: longer than a statement may run there.
const ANSWER_MAX: Duration = STATEMENT_MAX.saturating_add(ANSWER_AFTER);

/// The pool of connections to the database.
pub(crate) struct Database {
    options: Opts,
    is_mariadb: bool,
    /// There is one connection, and all of it is read as it was when that was made.
    is_snapshot: bool,
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<Numbered>>,
    trips: AtomicU64,
    /// Connections made so far.
    connected: AtomicU64,
}

/// A connection, with a number that its transactions are known by.
struct Numbered {
    conn: Conn,
    /// Random: no other connection has it.
    id: u128,
    /// Transactions by it that leave a mark.
    commits: i64,
}

impl Database {
    pub(super) fn new(options: Opts, is_mariadb: bool) -> Self {
        let (permits, idle) = (Arc::new(Semaphore::new(CONNECTIONS_MAX)), Mutex::default());
        let (trips, connected) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { options, is_mariadb, is_snapshot: false, permits, idle, trips, connected }
    }

    /// The same database as it is when it is asked the first time. Nothing can be written, and when the connection is lost
    /// so is that moment.
    pub(super) fn snapshot(self) -> Self {
        Self { is_snapshot: true, permits: Arc::new(Semaphore::new(1)), ..self }
    }

    async fn connect(&self) -> Result<Numbered, Fault> {
        let connecting = async {
            let mut conn = Conn::new(self.options.clone()).await?;
            let settings = if self.is_mariadb { MARIADB_SETTINGS } else { MYSQL_SETTINGS };
            conn.query_drop(format!("{SETTINGS};\n{settings}")).await?;
            if self.is_snapshot && self.is_mariadb {
                conn.query_drop(MARIADB_SNAPSHOT).await?;
            }
            if self.is_snapshot {
                conn.query_drop(SNAPSHOT).await?;
            }
            Ok::<_, Fault>(conn)
        };
        let conn = timeout(CONNECT_MAX, connecting).await;
        let conn = conn.map_err(|_| lost("it did not answer within 5 s"))??;
        let mut id = [0; 16];
        getrandom::fill(&mut id)
            .map_err(|error| StoreError::Unavailable(format!("the system gives no random bytes: {error}")))?;
        Ok(Numbered { conn, id: u128::from_be_bytes(id), commits: 0 })
    }

    /// Gives up connections that have nothing to do: they may be as dead as one that was found so.
    fn forget_idle(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl rows::Database for Database {
    type Link = Connection;

    async fn connection(self: &Arc<Self>) -> Result<Connection, Fault> {
        let permit = timeout(WAIT_MAX, self.permits.clone().acquire_owned()).await;
        let permit = permit.map_err(|_| busy())?.map_err(|_| busy())?;
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let link = match idle {
            Some(link) => link,
            None => {
                if self.is_snapshot && self.connected() > 0 {
                    return Err(Fault::Store(StoreError::Unavailable(SNAPSHOT_LOST.to_owned())));
                }
                let link = self.connect().await?;
                self.connected.fetch_add(1, Ordering::Relaxed);
                link
            }
        };
        Ok(Connection { link: Some(link), is_open: false, database: self.clone(), _permit: permit })
    }

    fn connected(&self) -> u64 {
        self.connected.load(Ordering::Relaxed)
    }

    fn trips(&self) -> u64 {
        self.trips.load(Ordering::Relaxed)
    }

    fn close(&self) {
        self.permits.close();
        self.forget_idle();
    }
}

/// A connection. When it is dropped within a transaction or in the middle of an answer it is closed, which ends that.
pub struct Connection {
    /// Nothing while an answer is on its way: a caller that stops waiting then takes the connection along.
    link: Option<Numbered>,
    /// A transaction may be open.
    is_open: bool,
    database: Arc<Database>,
    _permit: OwnedSemaphorePermit,
}

impl Link for Connection {
    const PRODUCT: &'static str = "MySQL";

    type Database = Database;
    type Script<'a> = Script;
    type Row = Row;

    async fn send(&mut self, script: Self::Script<'_>) -> Result<Answers<Self>, Fault> {
        // Within a transaction what was locked is read as it is now.
        let reads_one_moment = script.reads() && !self.is_open && !self.database.is_snapshot;
        let script = if reads_one_moment { script.in_transaction() } else { script };
        let stays_open = (self.is_open || script.begins()) && !script.ends();
        let mut sets = vec![Vec::new(); script.places()];
        self.is_open = true;
        for packet in script.into_packets() {
            if let Err(fault) = self.exchange(packet, &mut sets).await {
                if self.database.is_snapshot {
                    // A rollback would end the moment.
                    self.link = None;
                }
                if self.link.is_some() {
                    self.roll_back().await?;
                }
                return Err(fault);
            }
        }
        self.is_open = stays_open;
        Ok(sets)
    }

    async fn roll_back(&mut self) -> Result<(), Fault> {
        if !self.is_open {
            return Ok(());
        }
        self.exchange(Packet::one("ROLLBACK"), &mut Vec::new()).await?;
        self.is_open = false;
        Ok(())
    }
}

impl Connection {
    /// The connection's number, and that of its next commit.
    pub(super) fn next_mark(&mut self) -> Option<(u128, i64)> {
        let link = self.link.as_mut()?;
        link.commits += 1;
        Some((link.id, link.commits))
    }

    /// Sends a packet and waits for its answers. Unless all of them came, or an error in place of one, which ends the
    /// packet, the connection is closed: what is still to come must not be taken for an answer to something else.
    async fn exchange(&mut self, packet: Packet, sets: &mut Answers<Self>) -> Result<(), Fault> {
        let Some(mut link) = self.link.take() else { return Err(lost("the connection is closed")) };
        self.database.trips.fetch_add(1, Ordering::Relaxed);
        let answer = timeout(ANSWER_MAX, exchange(&mut link.conn, packet, sets)).await;
        let (fault, server_answered) = match answer {
            Ok(Ok(())) => {
                self.link = Some(link);
                return Ok(());
            }
            Ok(Err(Failure::Database(error))) => {
                let server_answered = matches!(error, mysql_async::Error::Server(_));
                (Fault::from(error), server_answered)
            }
            Ok(Err(Failure::OutOfStep(what))) => {
                (lost(&format!("the database's answers are out of step: {what}")), false)
            }
            Err(_) => (lost("it did not answer within 35 s"), false),
        };
        if fault.is_lost_connection() {
            self.database.forget_idle();
        } else if server_answered {
            self.link = Some(link);
        }
        Err(fault)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(link) = self.link.take()
            && !self.is_open
        {
            self.database.idle.lock().unwrap_or_else(PoisonError::into_inner).push(link);
        }
    }
}

/// Why a packet has no answer.
enum Failure {
    Database(mysql_async::Error),
    /// The answers do not fit the statements. None of them counts.
    OutOfStep(&'static str),
}

impl From<mysql_async::Error> for Failure {
    fn from(error: mysql_async::Error) -> Self {
        Self::Database(error)
    }
}

/// Reads exactly one answer for each statement, of its kind.
async fn exchange(conn: &mut Conn, packet: Packet, sets: &mut Answers<Connection>) -> Result<(), Failure> {
    let mut result = conn.query_iter(packet.text).await?;
    for (answer, place) in packet.answers {
        let Some(columns) = result.columns() else {
            // An error came in its place, which this returns; or nothing came.
            result.drop_result().await?;
            return Err(Failure::OutOfStep("an answer is missing"));
        };
        if columns.is_empty() != (answer == Answer::Done) {
            return Err(Failure::OutOfStep("an answer is of another kind than its statement"));
        }
        let rows = result.collect::<Row>().await?;
        if let Some(set) = place.and_then(|place| sets.get_mut(place)) {
            set.extend(rows);
        }
    }
    if result.columns().is_some() || !result.is_empty() {
        return Err(Failure::OutOfStep("there are more answers than statements"));
    }
    Ok(())
}

//! Connections: a few of them, each with its settings, and scripts that go to the database in one trip.
//!
//! The driver's own pool is not used. It takes back connections whose caller stopped listening in the middle of an
//! answer, and the next caller would hear the rest of it; here, such a connection is closed, which also ends its
//! transaction.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use mysql_async::{Conn, Opts, Row, prelude::Queryable as _};
use tokio::{
    runtime::Handle,
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

use windlass_store::StoreError;

use super::{
    error::Fault,
    script::{Answer, Packet, Script},
};
use crate::rows::SNAPSHOT_LOST;

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

/// Connections at once. The engine has a handful of calls under way at any time.
pub(super) const CONNECTIONS_MAX: usize = 16;

/// How long a call waits for a connection while all of them are busy.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// How long connecting may take.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// How long the database may take for a script: longer than a statement may run there.
const ANSWER_MAX: Duration = Duration::from_secs(35);

/// How often something is tried that others are in the way of, or whose connection is lost.
pub(super) const TRIES_MAX: usize = 8;

/// The database, as this server is connected to it.
pub(super) struct Database {
    options: Opts,
    is_mariadb: bool,
    /// There is one connection, and all of it is read as it was when that was made.
    is_snapshot: bool,
    /// Where sockets and timers are: whoever polls a call need not have any.
    runtime: Handle,
    permits: Semaphore,
    idle: Mutex<Vec<Link>>,
    trips: AtomicU64,
    /// Connections made so far.
    connected: AtomicU64,
}

/// A connection, with a number that its transactions are known by.
struct Link {
    conn: Conn,
    /// Random: no other connection has it.
    id: u128,
    /// Transactions by it that leave a mark.
    commits: i64,
}

impl Database {
    /// Must be called within a Tokio runtime, which is the one that is used.
    pub(super) fn new(options: Opts, is_mariadb: bool) -> Self {
        let (permits, idle) = (Semaphore::new(CONNECTIONS_MAX), Mutex::default());
        let (trips, connected) = (AtomicU64::new(0), AtomicU64::new(0));
        let runtime = Handle::current();
        Self { options, is_mariadb, is_snapshot: false, runtime, permits, idle, trips, connected }
    }

    /// The same database as it is when it is asked the first time. Nothing can be written, and when the connection is lost
    /// so is that moment.
    pub(super) fn snapshot(self) -> Self {
        Self { is_snapshot: true, permits: Semaphore::new(1), ..self }
    }

    /// A connection for one piece of work.
    pub(super) async fn connection(&self) -> Result<Connection<'_>, Fault> {
        let busy = || Fault::NoAnswer("all connections to it were busy for too long");
        let permit =
            timeout(WAIT_MAX, self.permits.acquire()).await.map_err(|_| busy())?.map_err(|_| busy())?;
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let link = match idle {
            Some(link) => link,
            None => {
                if self.connected.fetch_add(1, Ordering::Relaxed) > 0 && self.is_snapshot {
                    return Err(Fault::Store(StoreError::Unavailable(SNAPSHOT_LOST.to_owned())));
                }
                self.connect().await?
            }
        };
        Ok(Connection { link: Some(link), is_open: false, database: self, _permit: permit })
    }

    /// Does some work with the runtime's sockets and timers at hand, whoever polls it.
    pub(super) async fn within<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|context| {
            let _entered = self.runtime.enter();
            work.as_mut().poll(context)
        })
        .await
    }

    /// How often it was connected to.
    pub(super) fn connected(&self) -> u64 {
        self.connected.load(Ordering::Relaxed)
    }

    /// How often something went to the database and was waited for.
    pub(super) fn trips(&self) -> u64 {
        self.trips.load(Ordering::Relaxed)
    }

    async fn connect(&self) -> Result<Link, Fault> {
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
        let conn = conn.map_err(|_| Fault::NoAnswer("it did not answer within 5 s"))??;
        let mut id = [0; 16];
        getrandom::fill(&mut id)
            .map_err(|error| StoreError::Unavailable(format!("the system gives no random bytes: {error}")))?;
        Ok(Link { conn, id: u128::from_be_bytes(id), commits: 0 })
    }

    /// Gives up connections that have nothing to do: they may be as dead as one that was found so.
    fn forget_idle(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// A connection. When it is dropped within a transaction or in the middle of an answer it is closed, which ends that.
pub(super) struct Connection<'d> {
    /// Nothing while an answer is on its way: whoever stops listening then takes the connection with them.
    link: Option<Link>,
    /// A transaction may be open.
    is_open: bool,
    database: &'d Database,
    _permit: SemaphorePermit<'d>,
}

/// What each statement of a script gave.
pub(super) type Sets = Vec<Vec<Row>>;

impl Connection<'_> {
    /// The connection's number, and that of its next commit.
    pub(super) fn next_mark(&mut self) -> Option<(u128, i64)> {
        let link = self.link.as_mut()?;
        link.commits += 1;
        Some((link.id, link.commits))
    }

    /// Sends a script that is a transaction by itself, or none, or that ends the one that is open, and waits for the rows
    /// of each of its statements.
    pub(super) async fn run(&mut self, script: Script) -> Result<Sets, Fault> {
        let (script, before) = match script.reads() && !self.database.is_snapshot {
            true => script.in_transaction(),
            false => (script, 0),
        };
        let mut sets = self.send(script).await?;
        self.is_open = false;
        Ok(sets.split_off(before))
    }

    /// Sends a script after which a transaction is open: [`Connection::run`] or [`Connection::roll_back`] ends it.
    pub(super) async fn send(&mut self, script: Script) -> Result<Sets, Fault> {
        self.is_open = true;
        let mut sets = Vec::with_capacity(script.statements());
        for packet in script.into_packets() {
            if let Err(fault) = self.exchange(packet, &mut sets).await {
                if self.database.is_snapshot {
                    // To take something back would end the moment.
                    self.link = None;
                }
                if self.link.is_some() {
                    // What was begun is taken back.
                    self.roll_back().await?;
                }
                return Err(fault);
            }
        }
        Ok(sets)
    }

    /// Ends the transaction without anything of it, where one is open.
    pub(super) async fn roll_back(&mut self) -> Result<(), Fault> {
        if !self.is_open {
            return Ok(());
        }
        self.exchange(Packet::one("ROLLBACK"), &mut Vec::new()).await?;
        self.is_open = false;
        Ok(())
    }

    /// Sends a packet and waits for its answers. Unless all of them came, or an error in place of one, which ends the
    /// packet, the connection is closed: what is still to come must not be taken for an answer to something else.
    async fn exchange(&mut self, packet: Packet, sets: &mut Sets) -> Result<(), Fault> {
        let Some(mut link) = self.link.take() else {
            return Err(Fault::NoAnswer("the connection is closed"));
        };
        self.database.trips.fetch_add(1, Ordering::Relaxed);
        let answer = timeout(ANSWER_MAX, exchange(&mut link.conn, packet, sets)).await;
        let answer = answer.unwrap_or(Err(Fault::NoAnswer("it did not answer within 35 s")));
        match &answer {
            Err(fault) if fault.is_lost_connection() => self.database.forget_idle(),
            Err(fault) if fault.code().is_none() => {}
            _ => self.link = Some(link),
        }
        answer
    }
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        if let Some(link) = self.link.take()
            && !self.is_open
        {
            self.database.idle.lock().unwrap_or_else(PoisonError::into_inner).push(link);
        }
    }
}

/// Reads exactly one answer for each statement, of its kind.
async fn exchange(conn: &mut Conn, packet: Packet, sets: &mut Sets) -> Result<(), Fault> {
    let mut result = conn.query_iter(packet.text).await?;
    for answer in packet.answers {
        let Some(columns) = result.columns() else {
            // An error came in its place, which this gives; or nothing came.
            result.drop_result().await?;
            return Err(Fault::OutOfStep("an answer is missing"));
        };
        if columns.is_empty() != (answer == Answer::Done) {
            return Err(Fault::OutOfStep("an answer is of another kind than its statement"));
        }
        sets.push(result.collect::<Row>().await?);
    }
    if result.columns().is_some() || !result.is_empty() {
        return Err(Fault::OutOfStep("there are more answers than statements"));
    }
    Ok(())
}

/// Does something with a connection, and again with another one where the first was lost, or where others were in the
/// way. It must come to the same when it is done twice.
macro_rules! retrying {
    ($database:expr, |$connection:ident| $work:expr) => {{
        let work = async {
            let mut tries = 0;
            loop {
                let result: Result<_, $crate::mysql::error::Fault> = async {
                    let mut $connection = $database.connection().await?;
                    $work
                }
                .await;
                match result {
                    Ok(done) => break Ok(done),
                    Err(fault) => {
                        tries += 1;
                        let again = fault.is_contention() || fault.is_lost_connection();
                        if !again || tries >= $crate::mysql::connection::TRIES_MAX {
                            break Err(windlass_store::StoreError::from(fault));
                        }
                        $crate::mysql::connection::pause(tries).await;
                    }
                }
            }
        };
        $database.within(work).await
    }};
}
pub(super) use retrying;

/// Waits a little before the next try: longer each time, and not as long as others that failed at the same time.
pub(super) async fn pause(tries: usize) {
    let mut random = [0; 1];
    // Without random bytes all wait equally long, which is only slower.
    let _ = getrandom::fill(&mut random);
    let most = 2_u64 << tries.min(8);
    tokio::time::sleep(Duration::from_millis(most / 2 + u64::from(random[0]) * most / 512)).await;
}

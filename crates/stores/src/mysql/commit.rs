//! Commits batches: what they touch is read and locked in one trip to the database, decided here, and written and
//! committed in another. A batch of new tasks needs only the second.
//!
//! A connection that is lost while it commits does not say whether it did. So each transaction leaves a mark, the
//! connection's number and its own, which only one transaction can leave: whoever asks later tries to leave the same
//! mark. If that succeeds, the transaction has not committed and never will; if the mark is there, it has.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use windlass_core::{Name, TaskId};
use windlass_store::{Change, Outcome, StoreError};

use super::{
    connection::{Connection, Database, TRIES_MAX, pause},
    error::Fault,
    find::find,
    flows::Flows,
    script::{Script, cells},
    write::add_writes,
};
use crate::rows::{Found, Keys, Writes, decide};

/// How long it is asked what became of a transaction whose connection was lost while it committed.
const ASK_MAX: Duration = Duration::from_secs(60);

/// The database's clock.
pub(super) const NOW: &str = "FLOOR(UNIX_TIMESTAMP(SYSDATE(6)) * 1000)";

/// Commits batches.
#[derive(Default)]
pub(super) struct Committer {
    /// Queues that are known to be written down as used.
    queues: Mutex<BTreeSet<Name>>,
}

/// How a try ended.
enum Try {
    Done(Vec<Outcome>),
    /// The connection was lost while it committed.
    Unknown {
        mark: (u128, i64),
        outcomes: Vec<Outcome>,
        fault: Fault,
    },
}

impl Committer {
    pub(super) async fn commit(
        &self,
        database: &Database,
        flows: &Flows,
        changes: &[Change],
    ) -> Result<Vec<Outcome>, StoreError> {
        let keys = Keys::of(changes);
        let (mut tries, mut careful) = (0, false);
        loop {
            tries += 1;
            let fault = match self.attempt(database, flows, changes, &keys, careful).await {
                Ok(Try::Done(outcomes)) => return Ok(outcomes),
                Ok(Try::Unknown { mark, outcomes, fault }) => {
                    if was_committed(database, mark, &fault).await? {
                        return Ok(outcomes);
                    }
                    fault
                }
                Err(fault) => fault,
            };
            careful |= fault.is_taken();
            let again = fault.is_taken() || fault.is_contention() || fault.is_lost_connection();
            if !again || tries >= TRIES_MAX {
                return Err(fault.into());
            }
            tracing::debug!(%fault, tries, "a batch is committed again");
            if !fault.is_taken() {
                pause(tries).await;
            }
        }
    }

    async fn attempt(
        &self,
        database: &Database,
        flows: &Flows,
        changes: &[Change],
        keys: &Keys,
        careful: bool,
    ) -> Result<Try, Fault> {
        let mut connection = database.connection().await?;
        let logged = logged(changes);
        let (found, script) = if keys.is_all_new() && logged.is_empty() && !careful {
            (Found::default(), Script::begin())
        } else {
            (find(&mut connection, flows, keys, &logged, careful).await?, Script::default())
        };
        let decided = decide(changes, found);
        if decided.writes.is_empty() {
            connection.roll_back().await?;
            return Ok(Try::Done(decided.outcomes));
        }
        let Some(mark) = connection.next_mark() else {
            return Err(Fault::NoAnswer("the connection is closed"));
        };
        match self.write(&mut connection, script, mark, &decided.writes).await {
            Ok(()) => Ok(Try::Done(decided.outcomes)),
            Err(fault) if fault.is_lost_connection() => {
                Ok(Try::Unknown { mark, outcomes: decided.outcomes, fault })
            }
            Err(fault) => Err(fault),
        }
    }

    async fn write(
        &self,
        connection: &mut Connection<'_>,
        mut script: Script,
        (id, n): (u128, i64),
        writes: &Writes,
    ) -> Result<(), Fault> {
        let new_queues = self.new_queues(writes);
        let queues = new_queues.iter().map(|name| cells![name, true]);
        script.insert("INSERT INTO windlass_queue (name, used)", queues, "ON DUPLICATE KEY UPDATE used = 1");
        add_writes(&mut script, writes);
        script.add(
            &format!("INSERT INTO windlass_commit (connection, n, at) VALUES (?, ?, {NOW})"),
            cells![id, n],
        );
        script.add("DELETE FROM windlass_commit WHERE connection = ? AND n = ?", cells![id, n - 1]);
        script.end();
        connection.run(script).await?;
        if !new_queues.is_empty() {
            self.queues.lock().unwrap_or_else(PoisonError::into_inner).extend(new_queues);
        }
        Ok(())
    }

    fn new_queues(&self, writes: &Writes) -> BTreeSet<Name> {
        let known = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        writes.modules().into_iter().filter(|module| !known.contains(module)).collect()
    }
}

/// The tasks of log lines that come by themselves.
fn logged(changes: &[Change]) -> BTreeSet<TaskId> {
    let lines =
        changes.iter().filter_map(|change| if let Change::Logs(lines) = change { Some(lines) } else { None });
    lines.flatten().map(|line| line.task).collect()
}

/// Whether a transaction is on disk whose connection was lost while it committed. If not, it never will be.
async fn was_committed(database: &Database, mark: (u128, i64), fault: &Fault) -> Result<bool, StoreError> {
    let began = Instant::now();
    let mut tries = 0;
    loop {
        let result = leave_mark(database, mark).await;
        match result {
            Ok(()) => return Ok(false),
            Err(other) if other.is_taken() => return Ok(true),
            Err(other) if began.elapsed() >= ASK_MAX => {
                let message = format!("MySQL: {fault}; it cannot be told whether it was committed: {other}");
                return Err(StoreError::Unavailable(message));
            }
            Err(_) => {}
        }
        tries += 1;
        pause(tries).await;
    }
}

/// Waits for the transaction that may have left it too, if that one is under way.
async fn leave_mark(database: &Database, (id, n): (u128, i64)) -> Result<(), Fault> {
    let mut connection = database.connection().await?;
    let mut script = Script::default();
    let sql = format!("INSERT INTO windlass_commit (connection, n, at) VALUES (?, ?, {NOW})");
    script.add(&sql, cells![id, n]);
    connection.run(script).await?;
    Ok(())
}

//! Commits batches: what they touch is read and locked in one trip to the database, decided here, and written and
//! committed in another. A batch of new tasks needs only the second.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use uuid::Uuid;
use windlass_core::Name;
use windlass_store::{Ask, Change, Claimed, Leave, Now, Outcome, Quarantine, StoreError};

use super::{
    claim::{CLAIM_STATEMENTS, add_claim, claimed},
    connection::{Batch, Connection, Database, TRIES_MAX, parameters, pause},
    error::Fault,
    find::find,
    flows::Flows,
    write::add_writes,
};
use crate::rows::{Found, Keys, Writes, decide};

const USE_QUEUES: &str = "INSERT INTO windlass_queue (name, used)
    SELECT name, true FROM unnest($1::text[]) AS n (name) ORDER BY name
    ON CONFLICT (name) DO UPDATE SET used = true WHERE NOT windlass_queue.used";
/// Tells other servers, if there are any, that there is something in a queue where nothing was: as much as once for a
/// batch. What they find is up to them.
const TELL: &str = "SELECT pg_notify('windlass', $2)
    WHERE (SELECT count(*) FROM windlass_server) > 1
      AND EXISTS (SELECT FROM unnest($1::text[]) AS n (name) WHERE NOT EXISTS (
          SELECT FROM windlass_wait w WHERE w.module = n.name AND w.session IS NULL AND w.free = 0))";
const STATUS: &str = "SELECT pg_xact_status($1::text::xid8)";
const IS_THERE: &str = "SELECT true FROM windlass_task WHERE id = $1::uuid";

/// So long after others were told they are not told again: those who hear of something look twice.
const TELL_EVERY: Duration = Duration::from_millis(10);

/// How long it is asked what became of a transaction whose connection was lost while it committed.
const ASK_MAX: Duration = Duration::from_secs(20);

/// Commits batches.
pub(super) struct Committer {
    /// What it calls itself when it tells others of news.
    id: String,
    /// Queues that are known to be written down as used.
    queues: Mutex<BTreeSet<Name>>,
    /// When others were told last.
    told: Mutex<Option<Instant>>,
}

/// How a transaction is found again whose connection was lost while it committed.
enum Trace {
    /// By its number.
    Number(String),
    /// By a task that only it can have written.
    Task(Uuid),
}

/// What is claimed with a commit.
pub(super) struct Asked {
    pub(super) asks: Vec<Ask>,
    pub(super) leave: Leave,
    pub(super) now: Now,
}

/// What was claimed for each who was asked for; nothing = it is to be claimed by itself.
type Answers = Vec<Option<Vec<Claimed>>>;

/// How a try ended.
enum Try {
    Done(Vec<Outcome>, Answers),
    /// The connection was lost while it committed.
    Unknown(Trace, Vec<Outcome>, Fault),
}

impl Committer {
    pub(super) fn new(id: String) -> Self {
        Self { id, queues: Mutex::default(), told: Mutex::default() }
    }

    pub(super) async fn commit(
        &self,
        database: &Database,
        flows: &Flows,
        changes: &[Change],
        asked: &Asked,
    ) -> Result<(Vec<Outcome>, Answers), StoreError> {
        let keys = Keys::of(changes);
        let none = vec![None; asked.asks.len()];
        // Only the first try claims: what is handed out later must not be dated before the wait for it, and where it is the
        // claims that take too long, what was decided goes without them.
        let nothing = Asked { asks: Vec::new(), leave: asked.leave.clone(), now: asked.now };
        let (mut tries, mut careful, mut lost) = (0, false, None);
        loop {
            tries += 1;
            let claims = tries == 1 && !asked.asks.is_empty();
            let asked = if claims { asked } else { &nothing };
            let fault = match self.attempt(database, flows, changes, asked, &keys, careful).await {
                Ok(Try::Done(outcomes, answers)) => {
                    return Ok((outcomes, if claims { answers } else { none }));
                }
                Ok(Try::Unknown(trace, outcomes, fault)) => {
                    if was_committed(database, &trace, &fault).await? {
                        // Sessions hear of what was claimed when they say what they have.
                        return Ok((outcomes, none));
                    }
                    lost = Some((trace, outcomes));
                    fault
                }
                Err(fault) => fault,
            };
            // What was lost may have been on its way when it was asked for, and be what is in the way now.
            if fault.is_taken()
                && let Some((trace, outcomes)) = lost.take()
                && was_committed(database, &trace, &fault).await?
            {
                return Ok((outcomes, none));
            }
            careful |= fault.is_taken();
            let again = claims || fault.is_taken() || fault.is_contention() || fault.is_lost_connection();
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
        asked: &Asked,
        keys: &Keys,
        careful: bool,
    ) -> Result<Try, Fault> {
        let mut connection = database.connection().await?;
        let first = keys.new_tasks.first().map(|id| Uuid::from_u128(id.0));
        let (decided, trace, batch) = match first {
            Some(first) if keys.is_all_new() && !careful => {
                (decide(changes, Found::default()), Trace::Task(first), Batch::begin())
            }
            _ => {
                let (found, number) = find(&mut connection, flows, keys, careful).await?;
                (decide(changes, found), Trace::Number(number), Batch::default())
            }
        };
        match self.write(&mut connection, &flows.quarantine, batch, &decided.writes, asked).await {
            Ok(answers) => Ok(Try::Done(decided.outcomes, answers)),
            Err(fault) if fault.is_lost_connection() => Ok(Try::Unknown(trace, decided.outcomes, fault)),
            Err(fault) => Err(fault),
        }
    }

    async fn write<'w>(
        &self,
        connection: &mut Connection<'_>,
        quarantine: &Quarantine,
        mut batch: Batch<'w>,
        writes: &'w Writes,
        Asked { asks, leave, now }: &'w Asked,
    ) -> Result<Answers, Fault> {
        if writes.is_empty() {
            connection.roll_back().await?;
            return Ok(vec![None; asks.len()]);
        }
        let modules = writes.modules();
        let new_queues = self.new_queues(&modules);
        let tells = !modules.is_empty() && !self.told_lately();
        if tells {
            let names: Vec<String> = modules.iter().map(ToString::to_string).collect();
            batch.add(TELL, parameters![names, self.id.clone()]);
        }
        if !new_queues.is_empty() {
            let names: Vec<String> = new_queues.iter().map(ToString::to_string).collect();
            batch.add(USE_QUEUES, parameters![names]);
        }
        add_writes(&mut batch, writes);
        for Ask { session, claim_request } in asks {
            add_claim(&mut batch, quarantine, *session, claim_request, leave, *now);
        }
        let results = connection.send(batch.and_commit()).await?;
        if tells && results.first().is_some_and(|told| !told.is_empty()) {
            *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
        if !new_queues.is_empty() {
            self.queues.lock().unwrap_or_else(PoisonError::into_inner).extend(new_queues);
        }
        let answers = results[results.len() - asks.len() * CLAIM_STATEMENTS..].chunks(CLAIM_STATEMENTS);
        let answers =
            answers.zip(asks).map(|(rows, ask)| claimed(rows, ask.session, &ask.claim_request, *now));
        // It is on disk, whatever the answers are.
        Ok(answers.map(Result::unwrap_or_default).collect())
    }

    fn told_lately(&self) -> bool {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.is_some_and(|at| at.elapsed() < TELL_EVERY)
    }

    fn new_queues(&self, modules: &BTreeSet<Name>) -> BTreeSet<Name> {
        let known = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        modules.difference(&known).cloned().collect()
    }
}

/// Whether a transaction is on disk whose connection was lost while it committed.
async fn was_committed(database: &Database, trace: &Trace, fault: &Fault) -> Result<bool, StoreError> {
    let began = Instant::now();
    let mut tries = 0;
    loop {
        match ask(database, trace).await {
            Ok(Some(committed)) => return Ok(committed),
            Ok(None) => {}
            Err(error) if began.elapsed() >= ASK_MAX => {
                let message = format!("{fault}; it cannot be told whether it was committed: {error}");
                return Err(StoreError::Unavailable(message));
            }
            Err(_) => {}
        }
        if began.elapsed() >= ASK_MAX {
            let message = format!("{fault}; the database has not settled what became of it");
            return Err(StoreError::Unavailable(message));
        }
        tries += 1;
        pause(tries).await;
    }
}

/// What became of a transaction: on disk, or not; nothing while it is not settled.
async fn ask(database: &Database, trace: &Trace) -> Result<Option<bool>, Fault> {
    let mut connection = database.connection().await?;
    match trace {
        Trace::Number(number) => {
            let rows = connection.query(STATUS, &[number]).await?;
            let status: Option<String> = rows.first().map(|row| row.try_get(0)).transpose()?.flatten();
            Ok(match status.as_deref() {
                Some("committed") => Some(true),
                Some("in progress") => None,
                _ => Some(false),
            })
        }
        Trace::Task(task) => {
            let rows = connection.query(IS_THERE, &[task]).await?;
            Ok(Some(!rows.is_empty()))
        }
    }
}

//! Writes and commits batches, and finds out what became of a commit whose connection was lost.

use tokio_postgres::Row;
use uuid::Uuid;
use windlass_store::Ask;

use super::{
    claim::{CLAIM_STATEMENTS, add_claim, claimed},
    connection::{Batch, Connection, parameters},
    uuid,
    write::add_writes,
};
use crate::rows::{
    Columns as _, Fault, Keys, LastNotified, Link as _,
    claims::ruled::Claiming,
    commit::{Asked, CommitSql, Fate, Granted, Write},
    damaged, left_out,
};

const USE_QUEUES: &str = "INSERT INTO windlass_queue (name, used)
    SELECT name, true FROM unnest($1::text[]) AS n (name) ORDER BY name
    ON CONFLICT (name) DO UPDATE SET used = true WHERE NOT windlass_queue.used";
/// Notifies other servers, if there are any, that there is something in a queue where nothing was: as much as once for a
/// batch. What they find is up to them. `CASE` has PostgreSQL count the servers first: to find a ready attempt it reads index entries
/// of attempts that were claimed a moment ago.
const TELL: &str = "SELECT pg_notify('windlass', $2)
    WHERE CASE WHEN (SELECT count(*) FROM windlass_server) > 1
        THEN EXISTS (SELECT FROM unnest($1::text[]) AS n (name) WHERE NOT EXISTS (
            SELECT FROM windlass_wait w WHERE w.module = n.name AND w.session IS NULL AND w.free = 0))
        ELSE false END";
const STATUS: &str = "SELECT pg_xact_status($1::text::xid8)";
const IS_THERE: &str = "SELECT true FROM windlass_task WHERE id = $1::uuid";

/// What a store remembers from one commit to the next.
#[derive(Default)]
pub(crate) struct Memory {
    /// What it calls itself when it notifies other servers.
    id: String,
    notified: LastNotified,
}

impl Memory {
    pub(super) fn new(id: String) -> Self {
        Self { id, notified: LastNotified::default() }
    }
}

/// How a transaction is found again whose connection was lost while it committed.
pub(crate) enum Trace {
    /// By its number.
    Number(String),
    /// By a task that only it can have written.
    Task(Uuid),
}

impl CommitSql for Connection {
    type Trace = Trace;
    type Memory = Memory;

    const COMMITS_CLAIM: bool = true;

    fn is_recognised(keys: &Keys) -> bool {
        !keys.new_tasks.is_empty()
    }

    fn trace(&mut self, keys: &Keys, found: &[Row]) -> Result<Trace, Fault> {
        match (found.first(), keys.new_tasks.first()) {
            (Some(row), _) => Ok(Trace::Number(row.text(0)?.to_owned())),
            (None, Some(task)) => Ok(Trace::Task(uuid(*task))),
            (None, None) => Err(damaged("a transaction has no number")),
        }
    }

    async fn write(&mut self, memory: &Memory, _: &Trace, write: Write<'_>) -> Result<Granted, Fault> {
        let Write { begins, writes, led, new_queues, asked, quarantine } = write;
        let Asked { asks, leave, now } = asked;
        let damaged = if asks.is_empty() { Vec::new() } else { left_out(quarantine) };
        let mut batch = if begins { Batch::begin() } else { Batch::default() };
        let modules = writes.modules();
        let notifies = !modules.is_empty() && memory.notified.is_past();
        if notifies {
            let names: Vec<String> = modules.iter().map(ToString::to_string).collect();
            batch.add(TELL, parameters![names, &*memory.id]);
        }
        let names: Vec<&str> = new_queues.iter().map(|name| name.as_str()).collect();
        batch.add_for(names.len(), USE_QUEUES, parameters![names]);
        add_writes(&mut batch, writes);
        for Ask { session, claim_request } in asks {
            let (session, now, most) = (*session, *now, claim_request.free as usize);
            add_claim(&mut batch, Claiming { session, claim_request, most, now, damaged: &damaged }, leave);
        }
        let mut results = self.send(batch.and_commit_as(led)).await?;
        // The answers to the claims are the last ones.
        results.truncate(results.len() - usize::from(led.is_some()));
        if notifies && results.first().is_some_and(|rows| !rows.is_empty()) {
            memory.notified.set();
        }
        let granted = results[results.len() - asks.len() * CLAIM_STATEMENTS..].chunks(CLAIM_STATEMENTS);
        let granted =
            granted.zip(asks).map(|(rows, ask)| claimed(rows, ask.session, &ask.claim_request, *now));
        // It is on disk, whatever the answers are.
        Ok(granted.map(Result::unwrap_or_default).collect())
    }

    async fn fate(&mut self, trace: &Trace) -> Result<Option<Fate>, Fault> {
        let is_committed = match trace {
            Trace::Number(number) => {
                let rows = self.rows(Batch::one(STATUS, parameters![number])).await?;
                let status = rows.first().map(|row| row.any_text(0)).unwrap_or_default();
                if status == "in progress" {
                    return Ok(None);
                }
                status == "committed"
            }
            Trace::Task(task) => !self.rows(Batch::one(IS_THERE, parameters![task])).await?.is_empty(),
        };
        Ok(Some(if is_committed { Fate::Committed } else { Fate::Missing }))
    }
}

//! Reads and locks what a batch touches.

use std::sync::Arc;

use tokio_postgres::Row;
use uuid::Uuid;
use windlass_core::{AlarmId, Millis, TaskId};
use windlass_store::{MessageId, SessionId, StoreError, UniqueKey};

use super::{
    connection::{Batch, Connection, parameters},
    error::Fault,
    flows::Flows,
    load::load,
};
use crate::rows::{Found, FoundWait, Keys, from_integer, name, sender, sender_bytes, small, to_integer};

const TRANSACTION: &str = "SELECT pg_current_xact_id()::text";
const TASKS: &str = "SELECT id, events FROM windlass_task WHERE id = ANY($1::uuid[]) ORDER BY id FOR UPDATE";
const WAITS: &str = "SELECT w.task, w.act, w.attempt, w.claim, w.session, w.handed_out
    FROM unnest($1::uuid[], $2::int8[]) AS k (task, act)
    JOIN windlass_wait w ON w.task = k.task AND w.act = k.act ORDER BY w.task, w.act FOR UPDATE OF w";
const SESSIONS: &str =
    "SELECT id, lease_until FROM windlass_session WHERE id = ANY($1::uuid[]) ORDER BY id FOR UPDATE";
const LOCKS: &str =
    "SELECT name, version FROM windlass_lock WHERE name = ANY($1::text[]) ORDER BY name FOR UPDATE";
const LOCK_FLOOR: &str = "SELECT version FROM windlass_lock_floor FOR SHARE";
const LOCK_FLOOR_TO_RAISE: &str = "SELECT version FROM windlass_lock_floor FOR UPDATE";
const ALARMS: &str =
    "SELECT id, version FROM windlass_alarm WHERE id = ANY($1::text[]) ORDER BY id FOR UPDATE";
const MESSAGES: &str = "SELECT m.sender, m.n FROM unnest($1::bytea[], $2::int8[]) AS k (sender, n)
    JOIN windlass_message m ON m.sender = k.sender AND m.n = k.n ORDER BY m.sender, m.n FOR UPDATE OF m";
const SUBMIT_KEYS: &str =
    "SELECT scope, task, fingerprint FROM windlass_submit_key WHERE scope = ANY($1::bytea[])";
const UNIQUE: &str = "SELECT u.flow, u.key, u.task FROM unnest($1::text[], $2::bytea[]) AS k (flow, key)
    JOIN windlass_unique_task u ON u.flow = k.flow AND u.key = k.key
    ORDER BY u.flow, u.key FOR UPDATE OF u";
const FLOWS: &str = "SELECT name, max(version) FROM windlass_flow WHERE name = ANY($1::text[]) GROUP BY name";

/// Takes in a row of what was asked for.
type Read = fn(&mut Found, Row) -> Result<(), Fault>;

/// Begins a transaction and reads and locks what `keys` name, kind after kind. Tells also which transaction it is. With
/// `careful` it is looked whether what is new is there already.
pub(super) async fn find(
    connection: &mut Connection<'_>,
    flows: &Flows,
    keys: &Keys,
    careful: bool,
) -> Result<(Found, String), Fault> {
    let mut found = Found::default();
    let mut transaction = String::new();
    let mut reads: Vec<Read> = Vec::new();
    let mut batch = Batch::begin();
    batch.add(TRANSACTION, Vec::new());
    let new_tasks = keys.new_tasks.iter().filter(|_| careful);
    let tasks: Vec<Uuid> = keys.tasks.iter().chain(new_tasks).map(|id| Uuid::from_u128(id.0)).collect();
    if !tasks.is_empty() {
        batch.add(TASKS, parameters![tasks]);
        reads.push(task);
    }
    if !keys.waits.is_empty() {
        let tasks: Vec<Uuid> = keys.waits.iter().map(|(task, _)| Uuid::from_u128(task.0)).collect();
        let acts: Vec<i64> = keys.waits.iter().map(|(_, act)| *act).collect();
        batch.add(WAITS, parameters![tasks, acts]);
        reads.push(wait);
    }
    if !keys.sessions.is_empty() {
        let sessions: Vec<Uuid> = keys.sessions.iter().map(|session| Uuid::from_u128(session.0)).collect();
        batch.add(SESSIONS, parameters![sessions]);
        reads.push(session);
    }
    if !keys.locks.is_empty() {
        let names: Vec<&str> = keys.locks.iter().map(|name| name.as_str()).collect();
        batch.add(LOCKS, parameters![names]);
        reads.push(lock);
        batch.add(if keys.raises_lock_floor { LOCK_FLOOR_TO_RAISE } else { LOCK_FLOOR }, Vec::new());
        reads.push(lock_floor);
    }
    if !keys.alarms.is_empty() {
        let ids: Vec<&str> = keys.alarms.iter().map(|id| &*id.0).collect();
        batch.add(ALARMS, parameters![ids]);
        reads.push(alarm);
    }
    if !keys.messages.is_empty() {
        let senders: Vec<Vec<u8>> =
            keys.messages.iter().map(|message| sender_bytes(&message.sender)).collect();
        let numbers: Vec<i64> = keys.messages.iter().map(|message| to_integer(message.n)).collect();
        batch.add(MESSAGES, parameters![senders, numbers]);
        reads.push(message);
    }
    if keys.reads_scopes(careful) {
        let scopes: Vec<&[u8]> = keys.scopes.iter().map(|scope| &scope[..]).collect();
        batch.add(SUBMIT_KEYS, parameters![scopes]);
        reads.push(submit_key);
    }
    if !keys.unique.is_empty() {
        let flows: Vec<&str> = keys.unique.iter().map(|key| key.flow.as_str()).collect();
        let values: Vec<&[u8]> = keys.unique.iter().map(|key| key.key.as_bytes()).collect();
        batch.add(UNIQUE, parameters![flows, values]);
        reads.push(unique);
    }
    if !keys.flows.is_empty() {
        let names: Vec<&str> = keys.flows.iter().map(|name| name.as_str()).collect();
        batch.add(FLOWS, parameters![names]);
        reads.push(flow);
    }
    let mut results = connection.send(batch).await?.into_iter();
    for row in results.next().into_iter().flatten() {
        transaction = row.try_get(0)?;
    }
    for (read, rows) in reads.into_iter().zip(results) {
        for row in rows {
            read(&mut found, row)?;
        }
    }
    // What unique keys stand for is looked at as it is now.
    let firsts: Vec<TaskId> = found.unique.values().copied().collect();
    if !firsts.is_empty() {
        let tasks = load(connection, flows, &firsts).await?;
        let tasks = tasks.into_iter().flatten();
        found.firsts = tasks
            .map(|loaded| (loaded.task.id, (Arc::clone(&loaded.task), !loaded.claims.is_empty())))
            .collect();
    }
    Ok((found, transaction))
}

fn task(found: &mut Found, row: Row) -> Result<(), Fault> {
    let id: Uuid = row.try_get(0)?;
    found.tasks.insert(TaskId(id.as_u128()), from_integer(row.try_get(1)?));
    Ok(())
}

fn wait(found: &mut Found, row: Row) -> Result<(), Fault> {
    let task: Uuid = row.try_get(0)?;
    let (claim, session): (Option<i64>, Option<Uuid>) = (row.try_get(3)?, row.try_get(4)?);
    let claim = claim.zip(session);
    let wait = FoundWait {
        attempt: small(row.try_get(2)?),
        claim: claim.map(|(number, session)| (from_integer(number), SessionId(session.as_u128()))),
        handed_out: row.try_get::<_, Option<i64>>(5)?.map(small),
    };
    found.waits.insert((TaskId(task.as_u128()), row.try_get(1)?), wait);
    Ok(())
}

fn session(found: &mut Found, row: Row) -> Result<(), Fault> {
    let id: Uuid = row.try_get(0)?;
    found.sessions.insert(SessionId(id.as_u128()), Millis(from_integer(row.try_get(1)?)));
    Ok(())
}

fn lock(found: &mut Found, row: Row) -> Result<(), Fault> {
    found.locks.insert(name(row.try_get(0)?)?, from_integer(row.try_get(1)?));
    Ok(())
}

fn lock_floor(found: &mut Found, row: Row) -> Result<(), Fault> {
    found.lock_floor = from_integer(row.try_get(0)?);
    Ok(())
}

fn alarm(found: &mut Found, row: Row) -> Result<(), Fault> {
    let id: &str = row.try_get(0)?;
    found.alarms.insert(AlarmId(id.into()), from_integer(row.try_get(1)?));
    Ok(())
}

fn message(found: &mut Found, row: Row) -> Result<(), Fault> {
    found.messages.insert(MessageId { sender: sender(row.try_get(0)?)?, n: from_integer(row.try_get(1)?) });
    Ok(())
}

fn submit_key(found: &mut Found, row: Row) -> Result<(), Fault> {
    let damaged = |_| StoreError::Damaged("an idempotency key has not 32 bytes".to_owned());
    let scope: [u8; 32] = row.try_get::<_, &[u8]>(0)?.try_into().map_err(damaged)?;
    let task: Uuid = row.try_get(1)?;
    let fingerprint: [u8; 32] = row.try_get::<_, &[u8]>(2)?.try_into().map_err(damaged)?;
    found.submit_keys.insert(scope, (TaskId(task.as_u128()), fingerprint));
    Ok(())
}

fn unique(found: &mut Found, row: Row) -> Result<(), Fault> {
    let key: &[u8] = row.try_get(1)?;
    let key = UniqueKey { flow: name(row.try_get(0)?)?, key: String::from_utf8_lossy(key).into() };
    let task: Uuid = row.try_get(2)?;
    found.unique.insert(key, TaskId(task.as_u128()));
    Ok(())
}

fn flow(found: &mut Found, row: Row) -> Result<(), Fault> {
    found.flows.insert(name(row.try_get(0)?)?, small(row.try_get(1)?));
    Ok(())
}

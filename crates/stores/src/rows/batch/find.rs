//! Reads and locks the rows that a batch touches.

use std::sync::Arc;

use windlass_core::{AlarmId, LockHolder, TaskId};
use windlass_store::{MessageId, RecordKind, SessionId, UniqueKey, stored};

use crate::rows::{
    Columns, Fault, Flows, Found, FoundLock, FoundWait, Keys, from_integer,
    load::{LoadSql, load},
    sender, small,
};

/// Statements that read and lock.
pub(crate) trait FindSql: LoadSql {
    /// Begins a transaction, and reads and locks what `keys` name, kind after kind, each in the order of its keys. With
    /// `careful` it reads too what is expected to be new. Answers, one for each kind even where nothing is read of it:
    ///
    /// | kind | columns |
    /// |---|---|
    /// | tasks | `id, events` |
    /// | waits | `task, act, attempt, claim, session, handed_out, ready_at` |
    /// | sessions | `id, lease_until` |
    /// | locks | `name, version, holder` |
    /// | the floor of locks | `version` |
    /// | alarms | `id, version` |
    /// | messages | `sender, n` |
    /// | idempotency keys | `scope, task, fingerprint` |
    /// | unique keys | `flow, key, task` |
    /// | flows | `name, version` |
    /// | records | `kind, name, version` |
    /// | the transaction | what the product recognises it by, if anything |
    fn find(keys: &Keys, careful: bool) -> Self::Script<'_>;
}

/// Reads a row of its kind.
type Read<R> = fn(&mut Found, &R) -> Result<(), Fault>;

/// Begins a transaction and reads and locks what `keys` name. Returns also what recognises the transaction.
pub(crate) async fn find<D: FindSql>(
    link: &mut D,
    flows: &Flows,
    keys: &Keys,
    careful: bool,
) -> Result<(Found, Vec<D::Row>), Fault> {
    let kinds: [Read<D::Row>; 11] =
        [task, wait, session, lock, lock_floor, alarm, message, submit_key, unique, flow, record];
    let mut answers = link.send(D::find(keys, careful)).await?.into_iter();
    let mut found = Found::default();
    for read in kinds {
        for row in answers.next().iter().flatten() {
            read(&mut found, row)?;
        }
    }
    // The tasks of unique keys are read as they are now, within the transaction that has locked them.
    let firsts: Vec<TaskId> = found.unique.values().copied().collect();
    if !firsts.is_empty() {
        let tasks = load(link, flows, &firsts).await?.into_iter().flatten();
        found.firsts = tasks
            .map(|loaded| (loaded.task.id, (Arc::clone(&loaded.task), !loaded.claims.is_empty())))
            .collect();
    }
    Ok((found, answers.next().unwrap_or_default()))
}

fn task(found: &mut Found, row: &impl Columns) -> Result<(), Fault> {
    found.tasks.insert(row.task(0)?, from_integer(row.number(1)?));
    Ok(())
}

fn wait(found: &mut Found, row: &impl Columns) -> Result<(), Fault> {
    let claim = row.optional_number(3)?.zip(row.optional_id(4)?);
    let wait = FoundWait {
        is_stored: true,
        attempt: small(row.number(2)?),
        claim: claim.map(|(number, session)| (from_integer(number), SessionId(session))),
        handed_out: row.optional_number(5)?.map(small),
        is_ready: row.optional_number(6)?.is_some(),
    };
    found.waits.insert((row.task(0)?, row.number(1)?), wait);
    Ok(())
}

fn session(found: &mut Found, row: &impl Columns) -> Result<(), Fault> {
    found.sessions.insert(SessionId(row.id(0)?), row.millis(1)?);
    Ok(())
}

fn lock(found: &mut Found, row: &impl Columns) -> Result<(), Fault> {
    let version = from_integer(row.number(1)?);
    // A lock whose holder cannot be read is closed when it is loaded.
    let tenure = stored::read_tenure(row.bytes(2)?);
    let holder = tenure.map_or_else(|_| Some(LockHolder::unknown(version)), |tenure| tenure.holder());
    found.locks.insert(row.name(0)?, FoundLock { version, holder });
    Ok(())
}

fn lock_floor(found: &mut Found, row: &impl Columns) -> Result<(), Fault> {
    found.lock_floor = from_integer(row.number(0)?);
    Ok(())
}

fn alarm(found: &mut Found, row: &impl Columns) -> Result<(), Fault> {
    found.alarms.insert(AlarmId(row.text(0)?.into()), from_integer(row.number(1)?));
    Ok(())
}

fn message(found: &mut Found, row: &impl Columns) -> Result<(), Fault> {
    found.messages.insert(MessageId { sender: sender(row.bytes(0)?)?, n: from_integer(row.number(1)?) });
    Ok(())
}

fn submit_key(found: &mut Found, row: &impl Columns) -> Result<(), Fault> {
    found.submit_keys.insert(row.hash(0)?, (row.task(1)?, row.hash(2)?));
    Ok(())
}

fn unique(found: &mut Found, row: &impl Columns) -> Result<(), Fault> {
    found.unique.insert(UniqueKey { flow: row.name(0)?, key: row.any_text(1).into() }, row.task(2)?);
    Ok(())
}

fn flow(found: &mut Found, row: &impl Columns) -> Result<(), Fault> {
    found.flows.insert(row.name(0)?, small(row.number(1)?));
    Ok(())
}

fn record(found: &mut Found, row: &impl Columns) -> Result<(), Fault> {
    // A kind that is unknown here was not asked for.
    if let Some(kind) = RecordKind::from_code(row.number(0)?) {
        found.records.insert((kind, row.name(1)?), from_integer(row.number(2)?));
    }
    Ok(())
}

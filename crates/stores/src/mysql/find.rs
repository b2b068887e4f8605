//! Reads and locks what a batch touches.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use mysql_async::Row;
use windlass_core::{AlarmId, Millis, TaskId};
use windlass_store::{MessageId, SessionId, UniqueKey};

use super::{
    columns::Columns as _,
    connection::Connection,
    error::Fault,
    flows::Flows,
    load::load,
    script::{Cell, Script},
};
use crate::rows::{Found, FoundWait, Keys, from_integer, sender, sender_bytes, small, to_integer};

/// How the rows of some of a script's statements are taken in.
type Reader = fn(&mut Found, &Row) -> Result<(), Fault>;

/// Begins a transaction and reads and locks what `keys` name, kind after kind. With `careful` it is looked whether what is
/// new is there already. The tasks in `logged` are only locked: their lines are numbered as they are written, and must
/// be seen in this order.
pub(super) async fn find(
    connection: &mut Connection<'_>,
    flows: &Flows,
    keys: &Keys,
    logged: &BTreeSet<TaskId>,
    careful: bool,
) -> Result<Found, Fault> {
    let mut script = Script::begin();
    let mut readers: Vec<(usize, Reader)> = vec![(1, |_, _| Ok(()))];
    let new_tasks = keys.new_tasks.iter().filter(|_| careful);
    let tasks: BTreeSet<&TaskId> = keys.tasks.iter().chain(new_tasks).chain(logged).collect();
    let tasks = tasks.into_iter().map(|id| Cell::from(*id));
    let count = script.for_keys(
        "SELECT task, events FROM windlass_state FORCE INDEX (PRIMARY) WHERE task",
        tasks,
        "ORDER BY task FOR UPDATE",
    );
    readers.push((count, task));
    let waits = keys.waits.iter().map(|(task, act)| (Cell::from(*task), Cell::from(*act)));
    let count = script.for_pairs(
        "SELECT task, act, attempt, claim, session, handed_out FROM windlass_wait FORCE INDEX (PRIMARY) WHERE",
        ("task", "act"),
        waits,
        "ORDER BY task, act FOR UPDATE",
    );
    readers.push((count, wait));
    let count = script.for_keys(
        "SELECT id, lease_until FROM windlass_session FORCE INDEX (PRIMARY) WHERE id",
        keys.sessions.iter().map(|session| Cell::from(session.0)),
        "ORDER BY id FOR UPDATE",
    );
    readers.push((count, session));
    let count = script.for_keys(
        "SELECT name, version FROM windlass_lock FORCE INDEX (PRIMARY) WHERE name",
        keys.locks.iter().map(Cell::from),
        "ORDER BY name FOR UPDATE",
    );
    readers.push((count, lock));
    if !keys.locks.is_empty() {
        let mode = if keys.raises_lock_floor { "FOR UPDATE" } else { "LOCK IN SHARE MODE" };
        script.add(&format!("SELECT version FROM windlass_lock_floor WHERE one = 1 {mode}"), []);
        readers.push((1, lock_floor));
    }
    let count = script.for_keys(
        "SELECT id, version FROM windlass_alarm FORCE INDEX (PRIMARY) WHERE id",
        keys.alarms.iter().map(|id| Cell::from(&*id.0)),
        "ORDER BY id FOR UPDATE",
    );
    readers.push((count, alarm));
    let messages = keys.messages.iter();
    let count = script.for_pairs(
        "SELECT sender, n FROM windlass_message FORCE INDEX (PRIMARY) WHERE",
        ("sender", "n"),
        messages.map(|message| (sender_bytes(&message.sender).into(), to_integer(message.n).into())),
        "ORDER BY sender, n FOR UPDATE",
    );
    readers.push((count, message));
    let count = script.for_keys(
        "SELECT scope, task, fingerprint FROM windlass_submit_key WHERE scope",
        keys.scopes.iter().filter(|_| keys.reads_scopes(careful)).map(Cell::from),
        "",
    );
    readers.push((count, submit_key));
    let unique = keys.unique.iter();
    let count = script.for_pairs(
        "SELECT flow, value, task FROM windlass_unique_task FORCE INDEX (PRIMARY) WHERE",
        ("flow", "value"),
        unique.map(|key| (Cell::from(&key.flow), Cell::from(&*key.key))),
        "ORDER BY flow, value FOR UPDATE",
    );
    readers.push((count, self::unique));
    let count = script.for_keys(
        "SELECT name, max(version) FROM windlass_flow WHERE name",
        keys.flows.iter().map(Cell::from),
        "GROUP BY name",
    );
    readers.push((count, flow));

    let mut sets = connection.send(script).await?.into_iter();
    let mut found = Found::default();
    for (count, read) in readers {
        for row in sets.by_ref().take(count).flatten() {
            read(&mut found, &row)?;
        }
    }
    // What unique keys stand for is looked at as it is now, within the transaction that has locked them.
    let firsts: Vec<TaskId> = found.unique.values().copied().collect();
    if !firsts.is_empty() {
        let tasks = load(connection, flows, &firsts, true).await?.into_iter().flatten();
        found.firsts = tasks
            .map(|loaded| (loaded.task.id, (Arc::clone(&loaded.task), !loaded.claims.is_empty())))
            .collect::<HashMap<_, _>>();
    }
    Ok(found)
}

fn task(found: &mut Found, row: &Row) -> Result<(), Fault> {
    found.tasks.insert(row.task(0)?, from_integer(row.number(1)?));
    Ok(())
}

fn wait(found: &mut Found, row: &Row) -> Result<(), Fault> {
    let claim = row.optional_number(3)?.zip(row.optional_id(4)?);
    let wait = FoundWait {
        attempt: small(row.number(2)?),
        claim: claim.map(|(number, session)| (from_integer(number), SessionId(session))),
        handed_out: row.optional_number(5)?.map(small),
    };
    found.waits.insert((row.task(0)?, row.number(1)?), wait);
    Ok(())
}

fn session(found: &mut Found, row: &Row) -> Result<(), Fault> {
    found.sessions.insert(SessionId(row.id(0)?), Millis(from_integer(row.number(1)?)));
    Ok(())
}

fn lock(found: &mut Found, row: &Row) -> Result<(), Fault> {
    found.locks.insert(row.name(0)?, from_integer(row.number(1)?));
    Ok(())
}

fn lock_floor(found: &mut Found, row: &Row) -> Result<(), Fault> {
    found.lock_floor = from_integer(row.number(0)?);
    Ok(())
}

fn alarm(found: &mut Found, row: &Row) -> Result<(), Fault> {
    found.alarms.insert(AlarmId(row.text(0)?.into()), from_integer(row.number(1)?));
    Ok(())
}

fn message(found: &mut Found, row: &Row) -> Result<(), Fault> {
    found.messages.insert(MessageId { sender: sender(row.bytes(0)?)?, n: from_integer(row.number(1)?) });
    Ok(())
}

fn submit_key(found: &mut Found, row: &Row) -> Result<(), Fault> {
    found.submit_keys.insert(row.hash(0)?, (row.task(1)?, row.hash(2)?));
    Ok(())
}

fn unique(found: &mut Found, row: &Row) -> Result<(), Fault> {
    found.unique.insert(UniqueKey { flow: row.name(0)?, key: row.text(1)?.into() }, row.task(2)?);
    Ok(())
}

fn flow(found: &mut Found, row: &Row) -> Result<(), Fault> {
    found.flows.insert(row.name(0)?, small(row.number(1)?));
    Ok(())
}

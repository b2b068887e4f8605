//! Sessions, what they have, and what is lost.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{Millis, TaskId, Timestamp};
use windlass_store::{
    Adoption, AttemptId, Claimed, EXTENSIONS_MAX, Now, SessionId, SessionRenewal, SessionState, WorkerState,
};

use super::{
    claim::{ATTACHED, grace},
    columns::Columns as _,
    connection::Connection,
    error::Fault,
    limits::{CLAIMED, claimed},
    script::{Cell, Script, cells},
};
use crate::rows::{act_code, from_integer, is_poll_open, name, poll_code, small, to_integer};

/// Sessions were heard of. Whatever is told of polls, the greatest number counts; what is not said of a worker stands.
pub(super) async fn renew(
    connection: &mut Connection<'_>,
    sessions: &[SessionRenewal],
    now: Now,
) -> Result<(), Fault> {
    let mono = to_integer(now.mono.0);
    let mut sessions: Vec<&SessionRenewal> = sessions.iter().collect();
    sessions.sort_unstable_by_key(|renewal| renewal.session);
    let rows = sessions.into_iter().map(|renewal| {
        let (lease, unpolled) = (to_integer(renewal.lease.0), to_integer(renewal.lease_unpolled.0));
        let (poll, worker) = (poll_code(renewal.poll), renewal.worker.as_deref());
        let modules = |worker: &WorkerState| {
            let names: Vec<&str> = worker.modules.iter().map(|module| module.as_str()).collect();
            names.join(" ").into_bytes()
        };
        cells![
            renewal.session.0,
            mono.saturating_add(if is_poll_open(poll) { lease } else { unpolled }),
            lease,
            unpolled,
            poll,
            now.wall.0,
            worker.map(|worker| worker.attached),
            worker.map(|worker| &*worker.name),
            worker.map(|worker| &*worker.host),
            worker.map(|worker| &*worker.version),
            worker.map(modules),
        ]
    });
    let mut script = Script::default();
    script.insert(
        "INSERT INTO windlass_session (id, lease_until, lease, lease_unpolled, poll, last_seen_at, attached, name,
         host, program, modules)",
        rows,
        // Assignments are made in their order: the poll is the greatest when the lease is made of it.
        &format!(
            "ON DUPLICATE KEY UPDATE poll = greatest(poll, VALUES(poll)),
             lease_until = {mono} + IF(poll % 2 = 0, VALUES(lease), VALUES(lease_unpolled)),
             lease = VALUES(lease), lease_unpolled = VALUES(lease_unpolled), extensions = 0,
             last_seen_at = VALUES(last_seen_at), attached = coalesce(VALUES(attached), attached),
             name = coalesce(VALUES(name), name), host = coalesce(VALUES(host), host),
             program = coalesce(VALUES(program), program), modules = coalesce(VALUES(modules), modules)"
        ),
    );
    connection.run(script).await?;
    Ok(())
}

/// Gives every session a full new lease that did not get too many in a row.
pub(super) async fn forgive(connection: &mut Connection<'_>, now: Now) -> Result<(), Fault> {
    let mut script = Script::default();
    let sql = "UPDATE windlass_session
        SET lease_until = greatest(lease_until, ? + lease), extensions = extensions + 1 WHERE extensions < ?";
    script.add(sql, cells![to_integer(now.mono.0), i64::from(EXTENSIONS_MAX)]);
    connection.run(script).await?;
    Ok(())
}

/// The sessions whose lease has not ended.
pub(super) async fn sessions(connection: &mut Connection<'_>, now: Now) -> Result<Vec<SessionState>, Fault> {
    let mut script = Script::default();
    script.add(
        "SELECT s.id, s.last_seen_at, s.attached, s.name, s.host, s.program, s.modules,
             (SELECT count(*) FROM windlass_wait w WHERE w.session = s.id)
         FROM windlass_session s WHERE s.lease_until > ? ORDER BY s.id",
        cells![to_integer(now.mono.0)],
    );
    let sets = connection.run(script).await?;
    let mut states = Vec::new();
    for row in &sets[0] {
        let text = |column: usize| -> Result<Box<str>, Fault> {
            Ok(String::from_utf8_lossy(row.optional_bytes(column)?.unwrap_or_default()).into())
        };
        let modules = text(6)?;
        let worker = WorkerState {
            name: text(3)?,
            host: text(4)?,
            version: text(5)?,
            attached: row.optional_number(2)? == Some(1),
            modules: modules.split_whitespace().map(name).collect::<Result<_, _>>()?,
        };
        states.push(SessionState {
            session: SessionId(row.id(0)?),
            worker,
            running: small(row.number(7)?),
            last_seen_at: Timestamp(row.number(1)?),
        });
    }
    Ok(states)
}

/// What these sessions have; with `to_stop` only what is to stop.
pub(super) async fn held(
    connection: &mut Connection<'_>,
    sessions: &[SessionId],
    to_stop: bool,
) -> Result<Vec<Claimed>, Fault> {
    let and = if to_stop { "AND free = 2 ORDER BY task, act" } else { "ORDER BY task, act" };
    let mut script = Script::default();
    let head = format!("{CLAIMED} FROM windlass_wait FORCE INDEX (by_session) WHERE session");
    script.for_keys(&head, sessions.iter().map(|session| session.0.into()), and);
    let sets = connection.run(script).await?;
    sets.iter().flatten().map(claimed).collect()
}

/// What sessions have whose lease has ended. Those that have nothing are forgotten.
pub(super) async fn lost(
    connection: &mut Connection<'_>,
    now: Now,
    limit: usize,
) -> Result<Vec<Claimed>, Fault> {
    let mono = to_integer(now.mono.0);
    let mut script = Script::default();
    let lost = format!(
        "SELECT w.task, w.act, w.attempt, w.claim, w.session, w.claimed_at, w.module
         FROM windlass_wait w FORCE INDEX (by_session) LEFT JOIN windlass_session s ON s.id = w.session
         WHERE w.session IS NOT NULL AND (s.id IS NULL OR s.lease_until <= ?) LIMIT {limit}"
    );
    let lost = script.add(&lost, cells![mono]);
    let forgotten = "SELECT s.id FROM windlass_session s WHERE s.lease_until <= ?
        AND NOT EXISTS (SELECT 1 FROM windlass_wait w WHERE w.session = s.id)";
    let forgotten = script.add(forgotten, cells![mono]);
    let sets = connection.run(script).await?;
    let forgotten = sets[forgotten].iter().map(|row| Ok(row.id(0)?.into()));
    let forgotten = forgotten.collect::<Result<Vec<Cell<'_>>, Fault>>()?;
    if !forgotten.is_empty() {
        let mut script = Script::default();
        // One that was heard of meanwhile stays.
        script.for_keys(
            &format!("DELETE FROM windlass_session WHERE lease_until <= {mono} AND id"),
            forgotten,
            "",
        );
        connection.run(script).await?;
    }
    sets[lost].iter().map(claimed).collect()
}

/// A session says that it has these attempts.
pub(super) async fn adopt(
    connection: &mut Connection<'_>,
    session: SessionId,
    attempts: &[AttemptId],
    now: Now,
) -> Result<Vec<Adoption>, Fault> {
    if attempts.is_empty() {
        return Ok(Vec::new());
    }
    let keys: BTreeSet<(TaskId, i64)> = attempts.iter().map(|id| (id.task, act_code(id.key))).collect();
    let mut script = Script::begin();
    let attached = script.add(ATTACHED, cells![session.0]);
    let wanted = script.statements();
    script.for_pairs(
        "SELECT task, act, attempt, claim, session, timeout FROM windlass_wait FORCE INDEX (PRIMARY)
         WHERE module IS NOT NULL AND",
        ("task", "act"),
        keys.into_iter().map(|(task, act)| (task.into(), act.into())),
        "ORDER BY task, act FOR UPDATE",
    );
    let sets = connection.send(script).await?;
    let grace = grace(session, &sets[attached])?.unwrap_or(Millis(0));
    let mut ready = BTreeMap::new();
    for row in sets[wanted..].iter().flatten() {
        let claim = row.optional_number(3)?.map(from_integer).zip(row.optional_id(4)?);
        let timeout = row.optional_number(5)?.unwrap_or(0);
        ready.insert((row.task(0)?, row.number(1)?), (small(row.number(2)?), claim, timeout));
    }
    let mut taken = Vec::new();
    let mut adoptions = Vec::with_capacity(attempts.len());
    for attempt in attempts {
        let key = (attempt.task, act_code(attempt.key));
        let current = ready.get_mut(&key).filter(|(number, ..)| *number == attempt.attempt);
        adoptions.push(match current {
            Some((_, Some(claim), _)) if *claim == (attempt.claim, session.0) => Adoption::Held,
            Some((_, claim, timeout))
                if claim.is_none_or(|(_, holder)| session.takes_from(SessionId(holder))) =>
            {
                *claim = Some((attempt.claim, session.0));
                let runs_until = to_integer(now.mono.0.saturating_add(grace.0)).saturating_add(*timeout);
                let claim = to_integer(attempt.claim);
                taken.push(cells![key.0, key.1, attempt.attempt, session.0, claim, now.wall.0, runs_until]);
                Adoption::Held
            }
            _ => Adoption::Gone,
        });
    }
    if taken.is_empty() {
        connection.roll_back().await?;
        return Ok(adoptions);
    }
    let mut script = Script::default();
    script.insert(
        "INSERT INTO windlass_wait (task, act, attempt, session, claim, claimed_at, timeout_at)",
        taken,
        super::claim::TAKE,
    );
    script.end();
    connection.run(script).await?;
    Ok(adoptions)
}

/// A session gives an attempt back that it did not begin.
pub(super) async fn release(
    connection: &mut Connection<'_>,
    session: SessionId,
    attempt: AttemptId,
) -> Result<(), Fault> {
    let (act, claim) = (act_code(attempt.key), to_integer(attempt.claim));
    let mut script = Script::begin();
    script.add(
        "UPDATE windlass_wait SET session = NULL, claim = NULL, claimed_at = NULL, timeout_at = NULL,
             queue = IF(free = 0, module, NULL), kept_back = IF(free > 0, 1, NULL)
         WHERE task = ? AND act = ? AND session = ? AND claim = ?",
        cells![attempt.task, act, session.0, claim],
    );
    script.add("SET @released = ROW_COUNT()", []);
    script.add("DELETE FROM windlass_begun WHERE claim = ? AND @released > 0", cells![claim]);
    script.end();
    connection.run(script).await?;
    Ok(())
}

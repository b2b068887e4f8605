//! Sessions, what they have, and what is lost.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;
use windlass_core::Timestamp;
use windlass_store::{
    Adoption, AttemptId, Claimed, EXTENSIONS_MAX, Now, SessionId, SessionRenewal, SessionState, WorkerState,
};

use super::{
    connection::{Batch, Connection, parameters},
    error::Fault,
    limits::claimed,
};
use crate::rows::{act_code, from_integer, is_poll_open, name, poll_code, small, to_integer};

/// Whatever is told of polls, the greatest number counts; what is not said of a worker stands. It waits for no disk: what
/// is lost with the database's memory is a moment of a lease.
const RENEW: &str = "INSERT INTO windlass_session AS s
    (id, lease_until, lease, lease_unpolled, poll, last_seen_at, attached, name, host, program, modules)
    SELECT n.id, n.lease_until, n.lease, n.lease_unpolled, n.poll, $12, n.attached, n.name, n.host, n.program,
           n.modules
    FROM unnest($1::uuid[], $2::int8[], $3::int8[], $4::int8[], $5::int8[], $6::bool[], $7::bytea[],
                $8::bytea[], $9::bytea[], $10::text[])
         AS n (id, lease_until, lease, lease_unpolled, poll, attached, name, host, program, modules)
    WHERE set_config('synchronous_commit', 'off', true) IS NOT NULL ORDER BY n.id
    ON CONFLICT (id) DO UPDATE
    SET poll = greatest(s.poll, excluded.poll),
        lease_until = $11::int8 + CASE WHEN greatest(s.poll, excluded.poll) % 2 = 0
                                       THEN excluded.lease ELSE excluded.lease_unpolled END,
        lease = excluded.lease, lease_unpolled = excluded.lease_unpolled, extensions = 0,
        last_seen_at = excluded.last_seen_at, attached = coalesce(excluded.attached, s.attached),
        name = coalesce(excluded.name, s.name), host = coalesce(excluded.host, s.host),
        program = coalesce(excluded.program, s.program), modules = coalesce(excluded.modules, s.modules)";
const FORGIVE: &str = "UPDATE windlass_session
    SET lease_until = greatest(lease_until, $1 + lease), extensions = extensions + 1 WHERE extensions < $2";
const ALL: &str = "SELECT s.id, s.last_seen_at, s.attached, s.name, s.host, s.program, s.modules,
        (SELECT count(*) FROM windlass_wait w WHERE w.session = s.id)
    FROM windlass_session s WHERE s.lease_until > $1 ORDER BY s.id";
const HELD: &str = "SELECT task, act, attempt, claim, session, claimed_at, module FROM windlass_wait
    WHERE session = $1 ORDER BY task, act";
const TO_STOP: &str = "SELECT task, act, attempt, claim, session, claimed_at, module FROM windlass_wait
    WHERE session IS NOT NULL AND session = ANY($1::uuid[]) AND free = 2 ORDER BY task, act";
const FORGET: &str = "DELETE FROM windlass_session s WHERE s.lease_until <= $1
    AND NOT EXISTS (SELECT FROM windlass_wait w WHERE w.session = s.id)";
const LOST: &str = "SELECT w.task, w.act, w.attempt, w.claim, w.session, w.claimed_at, w.module
    FROM windlass_wait w LEFT JOIN windlass_session s ON s.id = w.session
    WHERE w.session IS NOT NULL AND (s.id IS NULL OR s.lease_until <= $1) LIMIT $2";
const NAMED: &str = "SELECT w.task, w.act, w.attempt, w.claim, w.session
    FROM unnest($1::uuid[], $2::int8[]) AS k (task, act)
    JOIN windlass_wait w ON w.task = k.task AND w.act = k.act
    WHERE w.module IS NOT NULL ORDER BY w.task, w.act FOR UPDATE OF w";
const GRACE: &str = "SELECT coalesce(attached, false) FROM windlass_session WHERE id = $1";
const ADOPT: &str = "UPDATE windlass_wait w
    SET session = $4, claim = n.claim, claimed_at = $5, handed_out = w.attempt,
        timeout_at = $6::int8 + w.timeout + $7::int8
    FROM unnest($1::uuid[], $2::int8[], $3::int8[]) AS n (task, act, claim)
    WHERE w.task = n.task AND w.act = n.act";
const RELEASE: &str = "WITH released AS (
        UPDATE windlass_wait SET session = NULL, claim = NULL, claimed_at = NULL, timeout_at = NULL
        WHERE task = $1 AND act = $2 AND session = $3 AND claim = $4 RETURNING task
    )
    DELETE FROM windlass_begun WHERE claim = $4 AND EXISTS (SELECT FROM released)";

/// Sessions were heard of.
pub(super) async fn renew(
    connection: &mut Connection<'_>,
    sessions: &[SessionRenewal],
    now: Now,
) -> Result<(), Fault> {
    let ids: Vec<Uuid> = sessions.iter().map(|renewal| Uuid::from_u128(renewal.session.0)).collect();
    let polls: Vec<i64> = sessions.iter().map(|renewal| poll_code(renewal.poll)).collect();
    let leases: Vec<i64> = sessions.iter().map(|renewal| to_integer(renewal.lease.0)).collect();
    let unpolled: Vec<i64> = sessions.iter().map(|renewal| to_integer(renewal.lease_unpolled.0)).collect();
    let mono = to_integer(now.mono.0);
    let until = |(poll, (lease, unpolled)): (&i64, (&i64, &i64))| {
        mono.saturating_add(if is_poll_open(*poll) { *lease } else { *unpolled })
    };
    let until: Vec<i64> = polls.iter().zip(leases.iter().zip(&unpolled)).map(until).collect();
    let workers = || sessions.iter().map(|renewal| renewal.worker.as_deref());
    let attached: Vec<Option<bool>> = workers().map(|worker| Some(worker?.attached)).collect();
    let names: Vec<Option<&[u8]>> = workers().map(|worker| Some(worker?.name.as_bytes())).collect();
    let hosts: Vec<Option<&[u8]>> = workers().map(|worker| Some(worker?.host.as_bytes())).collect();
    let versions: Vec<Option<&[u8]>> = workers().map(|worker| Some(worker?.version.as_bytes())).collect();
    let modules = |worker: Option<&WorkerState>| {
        let names: Vec<&str> = worker?.modules.iter().map(|module| module.as_str()).collect();
        Some(names.join(" "))
    };
    let modules: Vec<Option<String>> = workers().map(modules).collect();
    connection
        .query(
            RENEW,
            &[
                &ids,
                &until,
                &leases,
                &unpolled,
                &polls,
                &attached,
                &names,
                &hosts,
                &versions,
                &modules,
                &mono,
                &now.wall.0,
            ],
        )
        .await?;
    Ok(())
}

/// Gives every session a full new lease that did not get too many in a row.
pub(super) async fn forgive(connection: &mut Connection<'_>, now: Now) -> Result<(), Fault> {
    connection.query(FORGIVE, &[&to_integer(now.mono.0), &i32::from(EXTENSIONS_MAX)]).await?;
    Ok(())
}

/// The sessions whose lease has not ended.
pub(super) async fn sessions(connection: &mut Connection<'_>, now: Now) -> Result<Vec<SessionState>, Fault> {
    let rows = connection.query(ALL, &[&to_integer(now.mono.0)]).await?;
    let mut states = Vec::with_capacity(rows.len());
    for row in &rows {
        let id: Uuid = row.try_get(0)?;
        let text = |column: usize| -> Result<Box<str>, Fault> {
            let bytes = row.try_get::<_, Option<&[u8]>>(column)?.unwrap_or_default();
            Ok(String::from_utf8_lossy(bytes).into())
        };
        let modules = row.try_get::<_, Option<&str>>(6)?.unwrap_or_default();
        let worker = WorkerState {
            name: text(3)?,
            host: text(4)?,
            version: text(5)?,
            attached: row.try_get::<_, Option<bool>>(2)?.unwrap_or_default(),
            modules: modules.split_whitespace().map(name).collect::<Result<_, _>>()?,
        };
        states.push(SessionState {
            session: SessionId(id.as_u128()),
            worker,
            running: small(row.try_get(7)?),
            last_seen_at: Timestamp(row.try_get(1)?),
        });
    }
    Ok(states)
}

/// What a session has.
pub(super) async fn held(connection: &mut Connection<'_>, session: SessionId) -> Result<Vec<Claimed>, Fault> {
    let rows = connection.query(HELD, &[&Uuid::from_u128(session.0)]).await?;
    rows.iter().map(claimed).collect()
}

/// What these sessions have and are to stop.
pub(super) async fn to_stop(
    connection: &mut Connection<'_>,
    sessions: &[SessionId],
) -> Result<Vec<Claimed>, Fault> {
    let ids: Vec<Uuid> = sessions.iter().map(|session| Uuid::from_u128(session.0)).collect();
    let rows = connection.query(TO_STOP, &[&ids]).await?;
    rows.iter().map(claimed).collect()
}

/// What sessions have whose lease has ended. Those that have nothing are forgotten.
pub(super) async fn lost(
    connection: &mut Connection<'_>,
    now: Now,
    limit: usize,
) -> Result<Vec<Claimed>, Fault> {
    let mono = to_integer(now.mono.0);
    let mut batch = Batch::default();
    batch.add(LOST, parameters![mono, to_integer(limit as u64)]);
    batch.add(FORGET, parameters![mono]);
    let results = connection.send(batch).await?;
    results[0].iter().map(claimed).collect()
}

/// Number of a ready attempt, and the claim and session of who has it.
type ReadyAttempt = (u32, Option<(u64, Uuid)>);

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
    let id = Uuid::from_u128(session.0);
    let keys: HashSet<(Uuid, i64)> =
        attempts.iter().map(|id| (Uuid::from_u128(id.task.0), act_code(id.key))).collect();
    let (tasks, acts): (Vec<Uuid>, Vec<i64>) = keys.into_iter().unzip();
    let mut batch = Batch::begin();
    batch.add(NAMED, parameters![tasks, acts]);
    batch.add(GRACE, parameters![id]);
    let results = connection.send(batch).await?;
    let attached: Option<bool> = results[1].first().map(|row| row.try_get(0)).transpose()?;
    let grace = session.timeout_grace(attached == Some(true));
    let mut ready: HashMap<(Uuid, i64), ReadyAttempt> = HashMap::new();
    for row in &results[0] {
        let claim = row.try_get::<_, Option<i64>>(3)?.map(from_integer);
        let claim = claim.zip(row.try_get(4)?);
        ready.insert((row.try_get(0)?, row.try_get(1)?), (small(row.try_get(2)?), claim));
    }
    let (mut tasks, mut acts, mut claims) = (Vec::new(), Vec::new(), Vec::new());
    let mut adoptions = Vec::with_capacity(attempts.len());
    for attempt in attempts {
        let key = (Uuid::from_u128(attempt.task.0), act_code(attempt.key));
        let current = ready.get_mut(&key).filter(|(number, _)| *number == attempt.attempt);
        adoptions.push(match current {
            Some((_, Some(claim))) if *claim == (attempt.claim, id) => Adoption::Held,
            Some((_, claim)) if claim.is_none_or(|(_, holder)| takes_from(session, holder)) => {
                *claim = Some((attempt.claim, id));
                tasks.push(key.0);
                acts.push(key.1);
                claims.push(to_integer(attempt.claim));
                Adoption::Held
            }
            _ => Adoption::Gone,
        });
    }
    if tasks.is_empty() {
        connection.roll_back().await?;
        return Ok(adoptions);
    }
    let mut batch = Batch::default();
    let (mono, grace) = (to_integer(now.mono.0), to_integer(grace.0));
    batch.add(ADOPT, parameters![tasks, acts, claims, id, now.wall.0, mono, grace]);
    connection.send(batch.and_commit()).await?;
    Ok(adoptions)
}

fn takes_from(session: SessionId, holder: Uuid) -> bool {
    session.takes_from(SessionId(holder.as_u128()))
}

/// A session gives an attempt back that it did not begin.
pub(super) async fn release(
    connection: &mut Connection<'_>,
    session: SessionId,
    attempt: AttemptId,
) -> Result<(), Fault> {
    let (task, session) = (Uuid::from_u128(attempt.task.0), Uuid::from_u128(session.0));
    let (act, claim) = (act_code(attempt.key), to_integer(attempt.claim));
    connection.query(RELEASE, &[&task, &act, &session, &claim]).await?;
    Ok(())
}

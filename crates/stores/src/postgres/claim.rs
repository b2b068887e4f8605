//! Hands ready attempts to sessions.
//!
//! Where no limit is and no keys take turns, one statement takes the first in line that nobody else is about to take.
//! Else claims of a queue go one after the other: what is in hands is counted, the first attempts of each key are read,
//! and which of them are handed out is decided in `crate::rows`.

use tokio_postgres::Row;
use uuid::Uuid;
use windlass_core::{Millis, Name, TaskId};
use windlass_store::{AttemptId, ClaimRequest, Claimed, Leave, Now, Quarantine, SessionId, StoreError};

use super::{
    connection::{Batch, Connection, Database, parameters, retrying},
    error::Fault,
    limits::{Counted, READ_LIMITS, read_limits},
};
use crate::rows::{
    Candidate, Hands, KeysInTurn, Turn, act_key, any_name, choose, from_integer, left_out, small, to_integer,
};

const CLAIM: &str = "WITH next AS (
        SELECT w.task, w.act FROM windlass_wait w
        WHERE w.module = $1 AND w.session IS NULL AND w.free = 0
          AND ($2::text[] IS NULL OR w.command = ANY($2))
          AND ($9::int8 IS NULL OR w.ready_at < $9 OR w.task = ANY($10::uuid[]))
          AND w.task <> ALL($11::uuid[])
          AND NOT EXISTS (SELECT FROM windlass_queue q WHERE q.name = $1 AND q.paused_at IS NOT NULL)
          AND NOT EXISTS (SELECT FROM windlass_limit l WHERE l.queue = $1)
          AND NOT EXISTS (SELECT FROM windlass_wait k
                          WHERE k.module = $1 AND k.session IS NULL AND k.free = 0 AND k.fairness <> '')
          AND EXISTS (SELECT FROM windlass_session s WHERE s.id = $4)
        ORDER BY w.rank, w.task, w.act LIMIT $3 FOR UPDATE OF w SKIP LOCKED
    )
    UPDATE windlass_wait w
    SET session = s.id, claim = nextval('windlass_claim'), claimed_at = $5, handed_out = w.attempt,
        timeout_at = $6 + w.timeout + CASE WHEN s.attached THEN $7::int8 ELSE $8::int8 END
    FROM next, windlass_session s
    WHERE w.task = next.task AND w.act = next.act AND s.id = $4 AND w.session IS NULL AND w.free = 0
    RETURNING w.task, w.act, w.attempt, w.claim, w.rank";

/// Whether what is handed out of a queue is to be decided with limits and turns in mind.
const IS_RULED: &str = "SELECT EXISTS (SELECT FROM windlass_limit l WHERE l.queue = $1)
    OR EXISTS (SELECT FROM windlass_wait k
               WHERE k.module = $1 AND k.session IS NULL AND k.free = 0 AND k.fairness <> '')";

/// One after the other: the row of the queue is held until the end.
const QUEUE: &str = "SELECT paused_at IS NOT NULL, turn FROM windlass_queue WHERE name = $1 FOR UPDATE";
const SESSION: &str = "SELECT coalesce(attached, false) FROM windlass_session WHERE id = $1";
const RUNNING: &str = "SELECT command, fairness FROM windlass_wait WHERE session IS NOT NULL AND module = $1";
const BEGUN: &str = "SELECT b.name, b.key, b.at FROM windlass_begun b
    JOIN windlass_limit l ON l.name = b.name WHERE l.queue = $1 AND b.at > $2 - l.per";
const FORGET_BEGUN: &str = "DELETE FROM windlass_begun b USING windlass_limit l
    WHERE l.queue = $1 AND l.name = b.name AND b.at <= $2 - l.per";

/// The keys behind the cursor that had something ready when the round began, and the first of all, each up to a number;
/// and of each of them the first attempts that no limit holds back.
const CANDIDATES: &str = "WITH RECURSIVE rest AS (
        (SELECT w.fairness, 1 AS n FROM windlass_wait w
         WHERE w.module = $1 AND w.session IS NULL AND w.free = 0 AND w.fairness <> '' AND w.fairness > $2
           AND w.ready_at <= $8 AND ($4::text[] IS NULL OR w.command = ANY($4))
         ORDER BY w.fairness LIMIT 1)
        UNION ALL
        SELECT (SELECT w.fairness FROM windlass_wait w
                WHERE w.module = $1 AND w.session IS NULL AND w.free = 0 AND w.fairness <> ''
                  AND w.fairness > b.fairness AND w.ready_at <= $8
                  AND ($4::text[] IS NULL OR w.command = ANY($4))
                ORDER BY w.fairness LIMIT 1), b.n + 1
        FROM rest b WHERE b.fairness IS NOT NULL AND b.n < $3
    ), all_keys AS (
        (SELECT w.fairness, 1 AS n FROM windlass_wait w
         WHERE w.module = $1 AND w.session IS NULL AND w.free = 0 AND w.fairness <> ''
           AND ($4::text[] IS NULL OR w.command = ANY($4))
         ORDER BY w.fairness LIMIT 1)
        UNION ALL
        SELECT (SELECT w.fairness FROM windlass_wait w
                WHERE w.module = $1 AND w.session IS NULL AND w.free = 0 AND w.fairness <> ''
                  AND w.fairness > b.fairness AND ($4::text[] IS NULL OR w.command = ANY($4))
                ORDER BY w.fairness LIMIT 1), b.n + 1
        FROM all_keys b WHERE b.fairness IS NOT NULL AND b.n < $3
    ), keys AS (
        SELECT fairness, bool_or(is_rest) AS in_rest, bool_or(NOT is_rest) AS in_next FROM (
            SELECT fairness, true AS is_rest FROM rest WHERE fairness IS NOT NULL
            UNION ALL SELECT fairness, false FROM all_keys WHERE fairness IS NOT NULL
            UNION ALL SELECT ''::bytea, false
        ) k GROUP BY fairness
    )
    SELECT c.task, c.act, c.attempt, c.rank, c.command, c.fairness, keys.in_rest, keys.in_next
    FROM keys CROSS JOIN LATERAL (
        SELECT w.* FROM windlass_wait w
        WHERE w.module = $1 AND w.session IS NULL AND w.free = 0 AND w.fairness = keys.fairness
          AND ($4::text[] IS NULL OR w.command = ANY($4)) AND w.task <> ALL($9::uuid[])
          AND NOT EXISTS (SELECT FROM unnest($5::text[], $6::bytea[]) AS b (command, key)
                          WHERE (b.command IS NULL OR b.command = w.command)
                            AND (b.key IS NULL OR b.key = w.fairness))
        ORDER BY w.rank, w.task, w.act LIMIT $7
    ) c";
const HAND_OUT: &str = "UPDATE windlass_wait w
    SET session = $4, claim = nextval('windlass_claim'), claimed_at = $5, handed_out = w.attempt,
        timeout_at = $6::int8 + w.timeout + $7::int8
    FROM unnest($1::uuid[], $2::int8[], $3::int8[]) AS n (task, act, attempt)
    WHERE w.task = n.task AND w.act = n.act AND w.attempt = n.attempt AND w.session IS NULL AND w.free = 0
    RETURNING w.task, w.act, w.attempt, w.claim, w.rank";
const BEGIN_STARTS: &str = "INSERT INTO windlass_begun (name, key, at, claim)
    SELECT n.name, n.key, $5, w.claim
    FROM unnest($1::text[], $2::bytea[], $3::uuid[], $4::int8[]) AS n (name, key, task, act)
    JOIN windlass_wait w ON w.task = n.task AND w.act = n.act WHERE w.session IS NOT NULL";
const SET_TURN: &str = "UPDATE windlass_queue SET turn = $2 WHERE name = $1";

/// Looks at one queue with limits or turns so often, each time behind what was found to be held back.
const ROUNDS_MAX: usize = 16;

/// Hands attempts to a session as its claim requests say. What was claimed for one reaches the worker also where the next one fails.
pub(super) async fn claim_all(
    database: &Database,
    quarantine: &Quarantine,
    session: SessionId,
    claim_requests: &[ClaimRequest],
    leave: &Leave,
    now: Now,
) -> Result<Vec<Claimed>, StoreError> {
    let mut claimed = Vec::new();
    for claim_request in claim_requests {
        let found: Result<Vec<Claimed>, StoreError> = retrying!(database, |connection| {
            claim(&mut connection, quarantine, session, claim_request, leave, now).await
        });
        match found {
            Ok(found) => claimed.extend(found),
            Err(error) if claimed.is_empty() => return Err(error),
            Err(_) => break,
        }
    }
    Ok(claimed)
}

/// Hands attempts to a session as one of its claim requests says. What others have just made ready is left to them where nothing
/// else rules the queue.
async fn claim(
    connection: &mut Connection<'_>,
    quarantine: &Quarantine,
    session: SessionId,
    claim_request: &ClaimRequest,
    leave: &Leave,
    now: Now,
) -> Result<Vec<Claimed>, Fault> {
    let mut batch = Batch::default();
    add_claim(&mut batch, quarantine, session, claim_request, leave, now);
    let results = connection.send(batch).await.map_err(not_again)?;
    match claimed(&results, session, claim_request, now)? {
        Some(claimed) => Ok(claimed),
        None => claim_ruled(connection, quarantine, session, claim_request, now).await,
    }
}

/// A claim whose connection was lost may have been committed. It is not tried again: that would claim other attempts as
/// well.
fn not_again(fault: Fault) -> Fault {
    if fault.is_lost_connection() { Fault::Store(StoreError::from(fault)) } else { fault }
}

/// Adds statements that claim as a claim request says.
pub(super) fn add_claim<'w>(
    batch: &mut Batch<'w>,
    quarantine: &Quarantine,
    session: SessionId,
    claim_request: &'w ClaimRequest,
    leave: &Leave,
    now: Now,
) {
    batch.add(
        CLAIM,
        parameters![
            claim_request.module.as_str(),
            commands(claim_request),
            i64::from(claim_request.free),
            Uuid::from_u128(session.0),
            now.wall.0,
            to_integer(now.mono.0),
            to_integer(session.timeout_grace(true).0),
            to_integer(session.timeout_grace(false).0),
            leave.since.map(|since| since.0),
            leave.but.iter().map(|task| Uuid::from_u128(task.0)).collect::<Vec<_>>(),
            damaged(quarantine)
        ],
    );
    batch.add(IS_RULED, parameters![claim_request.module.as_str()]);
}

/// The tasks of which nothing is claimed.
fn damaged(quarantine: &Quarantine) -> Vec<Uuid> {
    left_out(quarantine).into_iter().map(|task| Uuid::from_u128(task.0)).collect()
}

/// How many statements [`add_claim`] adds.
pub(super) const CLAIM_STATEMENTS: usize = 2;

/// What the statements of [`add_claim`] came to; nothing = limits or turns rule the queue.
pub(super) fn claimed(
    results: &[Vec<Row>],
    session: SessionId,
    claim_request: &ClaimRequest,
    now: Now,
) -> Result<Option<Vec<Claimed>>, Fault> {
    let [claimed, is_ruled] = results else { return Ok(None) };
    let is_ruled: bool = is_ruled.first().map(|row| row.try_get(0)).transpose()?.unwrap_or(false);
    if claimed.is_empty() && is_ruled {
        return Ok(None);
    }
    in_order(claimed, session, &claim_request.module, now).map(Some)
}

fn commands(claim_request: &ClaimRequest) -> Option<Vec<&str>> {
    claim_request.commands.as_ref().map(|commands| commands.iter().map(|command| command.as_str()).collect())
}

/// What was claimed, in the order of the queue.
fn in_order(rows: &[Row], session: SessionId, module: &Name, now: Now) -> Result<Vec<Claimed>, Fault> {
    let mut claimed = Vec::with_capacity(rows.len());
    for row in rows {
        let task: Uuid = row.try_get(0)?;
        let id = AttemptId {
            task: TaskId(task.as_u128()),
            key: act_key(row.try_get(1)?),
            attempt: small(row.try_get(2)?),
            claim: from_integer(row.try_get(3)?),
        };
        let rank: i64 = row.try_get(4)?;
        claimed.push((rank, Claimed { id, session, at: now.wall, module: module.clone() }));
    }
    claimed.sort_by_key(|(rank, claimed)| (*rank, claimed.id));
    Ok(claimed.into_iter().map(|(_, claimed)| claimed).collect())
}

/// A queue while nobody else claims of it.
struct Queue {
    is_paused: bool,
    turn: Option<Turn>,
    /// The session's grace; nothing = nobody knows the session.
    grace: Option<Millis>,
    hands: Hands,
}

async fn claim_ruled(
    connection: &mut Connection<'_>,
    quarantine: &Quarantine,
    session: SessionId,
    claim_request: &ClaimRequest,
    now: Now,
) -> Result<Vec<Claimed>, Fault> {
    let queue = hold_queue(connection, quarantine, session, claim_request, now).await?;
    let Queue { is_paused: false, mut turn, grace: Some(grace), mut hands } = queue else {
        connection.roll_back().await?;
        return Ok(Vec::new());
    };
    let module = claim_request.module.as_str();
    let (most, mut chosen) = (claim_request.free as usize, Vec::<Candidate>::new());
    for _ in 0..ROUNDS_MAX {
        let missing = most - chosen.len();
        if missing == 0 {
            break;
        }
        let blocked = hands.blocked();
        let blocked_commands: Vec<Option<&str>> =
            blocked.iter().map(|(command, _)| command.as_ref().map(|command| command.as_str())).collect();
        let blocked_keys: Vec<Option<&[u8]>> = blocked.iter().map(|(_, key)| key.as_deref()).collect();
        let keys = i32::try_from(most + blocked.len()).unwrap_or(i32::MAX);
        let rows = connection
            .query(
                CANDIDATES,
                &[
                    &module,
                    &turn.as_ref().map_or(&[][..], |turn| &turn.key),
                    &keys,
                    &commands(claim_request),
                    &blocked_commands,
                    &blocked_keys,
                    &to_integer(most as u64),
                    // Nothing was ready before all time: there is no round.
                    &turn.as_ref().map_or(i64::MIN, |turn| turn.began),
                    &damaged(quarantine),
                ],
            )
            .await?;
        let (mut candidates, mut in_turn) = (Vec::with_capacity(rows.len()), KeysInTurn::default());
        for row in &rows {
            let candidate = candidate(row)?;
            if row.try_get(6)? {
                in_turn.rest.insert(candidate.fairness.clone());
            }
            if row.try_get(7)? {
                in_turn.next.insert(candidate.fairness.clone());
            }
            candidates.push(candidate);
        }
        candidates.retain(|new| chosen.iter().all(|old| (old.task, old.act) != (new.task, new.act)));
        let round = choose(candidates, in_turn, &mut hands, turn, now.wall.0, missing);
        turn = round.turn;
        let is_done = round.attempts.is_empty() || !round.held_back;
        chosen.extend(round.attempts);
        if is_done {
            break;
        }
    }
    hand_out(connection, session, claim_request, chosen, (turn, grace), &hands, now).await
}

/// Waits until nobody else claims of the queue, and reads what counts under its limits.
async fn hold_queue(
    connection: &mut Connection<'_>,
    quarantine: &Quarantine,
    session: SessionId,
    claim_request: &ClaimRequest,
    now: Now,
) -> Result<Queue, Fault> {
    let (module, mono) = (claim_request.module.as_str(), to_integer(now.mono.0));
    let mut batch = Batch::begin();
    batch.add(QUEUE, parameters![module]);
    batch.add(SESSION, parameters![Uuid::from_u128(session.0)]);
    batch.add(READ_LIMITS, parameters![Some(module)]);
    batch.add(RUNNING, parameters![module]);
    batch.add(BEGUN, parameters![module, mono]);
    batch.add(FORGET_BEGUN, parameters![module, mono]);
    let results = connection.send(batch).await?;
    let (mut is_paused, mut turn) = (false, None);
    for row in &results[0] {
        (is_paused, turn) = (row.try_get(0)?, Turn::read(row.try_get(1)?, now.wall.0));
    }
    let attached: Option<bool> = results[1].first().map(|row| row.try_get(0)).transpose()?;
    let grace = attached.map(|attached| session.timeout_grace(attached));
    let mut hands = Hands::new(read_limits(&results[2], quarantine)?);
    for row in &results[3] {
        hands.hold(&any_name(row.try_get(0)?), row.try_get(1)?);
    }
    for row in &results[4] {
        let Counted { limit, key, at } = Counted::read(row)?;
        hands.begin(limit, key, at, now.mono);
    }
    Ok(Queue { is_paused, turn, grace, hands })
}

fn candidate(row: &Row) -> Result<Candidate, Fault> {
    let task: Uuid = row.try_get(0)?;
    Ok(Candidate {
        task: task.as_u128(),
        act: row.try_get(1)?,
        attempt: row.try_get(2)?,
        rank: row.try_get(3)?,
        command: any_name(row.try_get(4)?),
        fairness: row.try_get(5)?,
    })
}

async fn hand_out(
    connection: &mut Connection<'_>,
    session: SessionId,
    claim_request: &ClaimRequest,
    chosen: Vec<Candidate>,
    (turn, grace): (Option<Turn>, Millis),
    hands: &Hands,
    now: Now,
) -> Result<Vec<Claimed>, Fault> {
    if chosen.is_empty() {
        connection.roll_back().await?;
        return Ok(Vec::new());
    }
    let mut rows: Vec<(Uuid, i64, i64)> = chosen
        .iter()
        .map(|candidate| (Uuid::from_u128(candidate.task), candidate.act, candidate.attempt))
        .collect();
    // In the order in which commits lock them.
    rows.sort_unstable();
    let tasks: Vec<Uuid> = rows.iter().map(|row| row.0).collect();
    let acts: Vec<i64> = rows.iter().map(|row| row.1).collect();
    let attempts: Vec<i64> = rows.iter().map(|row| row.2).collect();
    let (id, mono) = (Uuid::from_u128(session.0), to_integer(now.mono.0));
    let mut batch = Batch::default();
    batch.add(HAND_OUT, parameters![tasks, acts, attempts, id, now.wall.0, mono, to_integer(grace.0)]);
    let (mut names, mut keys, mut tasks, mut acts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for candidate in &chosen {
        for (limit, key) in hands.starts(candidate) {
            names.push(limit.to_string());
            keys.push(key);
            tasks.push(Uuid::from_u128(candidate.task));
            acts.push(candidate.act);
        }
    }
    if !names.is_empty() {
        batch.add(BEGIN_STARTS, parameters![names, keys, tasks, acts, mono]);
    }
    batch.add(SET_TURN, parameters![claim_request.module.as_str(), turn.map(|turn| turn.write())]);
    let results = connection.send(batch.and_commit()).await.map_err(not_again)?;
    let mut claimed = in_order(&results[0], session, &claim_request.module, now)?;
    // In the order of their turns.
    let place = |claimed: &Claimed| {
        chosen.iter().position(|candidate| {
            candidate.task == claimed.id.task.0 && act_key(candidate.act) == claimed.id.key
        })
    };
    claimed.sort_by_key(place);
    Ok(claimed)
}

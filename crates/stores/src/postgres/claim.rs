//! Claims attempts.
//!
//! Where no limit is and no keys take turns, one statement claims the first attempts of the queue that no other transaction
//! is about to claim. It goes alone or with a commit. Else claims of a queue go one after the other, see `RuledSql`.

use tokio_postgres::Row;
use uuid::Uuid;
use windlass_core::{Name, TaskId};
use windlass_store::{AttemptId, ClaimRequest, Claimed, Leave, Now, SessionId};

use super::{
    connection::{Batch, Connection, parameters},
    queues::{self, LINE, QUEUES, READ_LIMITS},
    uuid, uuids,
};
use crate::rows::{
    Blocked, Candidate, Columns as _, Fault, KeyTurn, KeysInTurn, Link as _, act_key,
    claims::{
        ClaimSql,
        ruled::{Choice, Claiming, RuledSql, candidate},
    },
    from_integer, small, to_integer, write_turn,
};

// If the statistics say that few rows are ready or claimed, PostgreSQL considers a partial index of them as cheap as the primary key,
// and then reads that whole index to find one row. `free + 0`, `num_nulls` and `IS NOT DISTINCT FROM` exclude these indexes here and
// in other modules.

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
        timeout_at = $6 + greatest(w.ready_at - $5, 0) + w.timeout + CASE WHEN s.attached THEN $7::int8 ELSE $8::int8 END
    FROM next, windlass_session s
    WHERE w.task = next.task AND w.act = next.act AND s.id = $4 AND w.session IS NULL AND w.free + 0 = 0
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
    SELECT c.task, c.act, c.attempt, c.rank, c.command, c.fairness, c.timeout, keys.in_rest, keys.in_next
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
        timeout_at = $6::int8 + greatest(w.ready_at - $5, 0) + w.timeout + $7::int8
    FROM unnest($1::uuid[], $2::int8[], $3::int8[]) AS n (task, act, attempt)
    WHERE w.task = n.task AND w.act = n.act AND w.attempt = n.attempt AND w.session IS NULL AND w.free + 0 = 0
    RETURNING w.task, w.act, w.attempt, w.claim, w.rank";
const BEGIN_STARTS: &str = "INSERT INTO windlass_begun (name, key, at, claim)
    SELECT n.name, n.key, $5, w.claim
    FROM unnest($1::text[], $2::bytea[], $3::uuid[], $4::int8[]) AS n (name, key, task, act)
    JOIN windlass_wait w ON w.task = n.task AND w.act = n.act WHERE num_nulls(w.session) = 0";
const SET_TURN: &str = "UPDATE windlass_queue SET turn = $2 WHERE name = $1";

impl ClaimSql for Connection {
    const CLAIMS_MAX: usize = usize::MAX;

    async fn claim(&mut self, claiming: Claiming<'_>, leave: &Leave) -> Result<Option<Vec<Claimed>>, Fault> {
        let mut batch = Batch::default();
        add_claim(&mut batch, claiming, leave);
        let results = self.send(batch).await.map_err(Fault::of_claim)?;
        claimed(&results, claiming.session, claiming.claim_request, claiming.now)
    }

    fn limits(now: Now) -> Batch<'static> {
        let mut batch = Batch::one(READ_LIMITS, parameters![None::<&str>]);
        batch.add(queues::HELD, Vec::new());
        batch.add(queues::BEGUN, parameters![to_integer(now.mono.0)]);
        batch
    }

    fn queues() -> Batch<'static> {
        Batch::one(QUEUES, Vec::new())
    }

    fn line(task: TaskId, act: i64) -> Batch<'static> {
        Batch::one(LINE, parameters![uuid(task), act])
    }
}

/// Adds statements that claim as a claim request asks.
pub(super) fn add_claim<'w>(batch: &mut Batch<'w>, claiming: Claiming<'w>, leave: &Leave) {
    let Claiming { session, claim_request, most, now, damaged } = claiming;
    let parameters = parameters![
        claim_request.module.as_str(),
        commands(claim_request),
        to_integer(most as u64),
        Uuid::from_u128(session.0),
        now.wall.0,
        to_integer(now.mono.0),
        to_integer(session.timeout_grace(true).0),
        to_integer(session.timeout_grace(false).0),
        leave.since.map(|since| since.0),
        leave.but.iter().map(|task| uuid(*task)).collect::<Vec<_>>(),
        uuids(damaged)
    ];
    batch.add(CLAIM, parameters);
    batch.add(IS_RULED, parameters![claim_request.module.as_str()]);
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
    let is_ruled = is_ruled.first().map(|row| row.flag(0)).transpose()?.unwrap_or(false);
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
        let (key, attempt) = (act_key(row.number(1)?), small(row.number(2)?));
        let id = AttemptId { task: row.task(0)?, key, attempt, claim: from_integer(row.number(3)?) };
        let rank = row.number(4)?;
        claimed.push((rank, Claimed { id, session, at: now.wall, module: module.clone() }));
    }
    claimed.sort_by_key(|(rank, claimed)| (*rank, claimed.id));
    Ok(claimed.into_iter().map(|(_, claimed)| claimed).collect())
}

impl RuledSql for Connection {
    fn lock_queue(claiming: Claiming<'_>) -> Batch<'_> {
        let (module, mono) = (claiming.claim_request.module.as_str(), to_integer(claiming.now.mono.0));
        let mut batch = Batch::begin();
        batch.add(QUEUE, parameters![module]);
        batch.add(SESSION, parameters![Uuid::from_u128(claiming.session.0)]);
        batch.add(READ_LIMITS, parameters![Some(module)]);
        batch.add(RUNNING, parameters![module]);
        batch.add(BEGUN, parameters![module, mono]);
        batch.add(FORGET_BEGUN, parameters![module, mono]);
        batch
    }

    async fn candidates(
        &mut self,
        claiming: Claiming<'_>,
        turn: Option<&KeyTurn>,
        blocked: &[Blocked],
    ) -> Result<(Vec<Candidate>, KeysInTurn), Fault> {
        let Claiming { claim_request, most, damaged, .. } = claiming;
        let blocked_commands: Vec<Option<&str>> =
            blocked.iter().map(|(command, _)| command.as_ref().map(|command| command.as_str())).collect();
        let blocked_keys: Vec<Option<&[u8]>> = blocked.iter().map(|(_, key)| key.as_deref()).collect();
        let parameters = parameters![
            claim_request.module.as_str(),
            turn.map_or(&[][..], |turn| &turn.key),
            i32::try_from(most + blocked.len()).unwrap_or(i32::MAX),
            commands(claim_request),
            blocked_commands,
            blocked_keys,
            to_integer(most as u64),
            // Nothing was ready before all time: there is no round.
            turn.map_or(i64::MIN, |turn| turn.began.0),
            uuids(damaged),
        ];
        let rows = self.rows(Batch::one(CANDIDATES, parameters)).await?;
        let (mut candidates, mut in_turn) = (Vec::with_capacity(rows.len()), KeysInTurn::default());
        for row in &rows {
            let candidate = candidate(row)?;
            if row.flag(7)? {
                in_turn.rest.insert(candidate.fairness.clone());
            }
            if row.flag(8)? {
                in_turn.next.insert(candidate.fairness.clone());
            }
            candidates.push(candidate);
        }
        Ok((candidates, in_turn))
    }

    async fn hand_out(&mut self, claiming: Claiming<'_>, choice: Choice<'_>) -> Result<Vec<Claimed>, Fault> {
        let Claiming { session, claim_request, now, .. } = claiming;
        let mut rows: Vec<(Uuid, i64, i64)> = choice
            .candidates
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
        batch.add(
            HAND_OUT,
            parameters![tasks, acts, attempts, id, now.wall.0, mono, to_integer(choice.grace.0)],
        );
        let (mut names, mut keys, mut tasks, mut acts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for candidate in choice.candidates {
            for (limit, key) in choice.hands.starts(candidate) {
                names.push(limit.to_string());
                keys.push(key);
                tasks.push(Uuid::from_u128(candidate.task));
                acts.push(candidate.act);
            }
        }
        if !names.is_empty() {
            batch.add(BEGIN_STARTS, parameters![names, keys, tasks, acts, mono]);
        }
        batch.add(SET_TURN, parameters![claim_request.module.as_str(), choice.turn.map(write_turn)]);
        let results = self.send(batch.and_commit()).await.map_err(Fault::of_claim)?;
        let mut claimed = in_order(&results[0], session, &claim_request.module, now)?;
        // In the order of their turns.
        let place = |claimed: &Claimed| {
            choice.candidates.iter().position(|candidate| {
                candidate.task == claimed.id.task.0 && act_key(candidate.act) == claimed.id.key
            })
        };
        claimed.sort_by_key(place);
        Ok(claimed)
    }
}

//! Reads tasks: all that belongs to each in one statement, so that all of it is as of the same moment.

use std::collections::BTreeSet;

use tokio_postgres::Row;
use uuid::Uuid;
use windlass_core::TaskId;

use super::{
    connection::{Batch, Connection, parameters},
    uuid, uuids,
};
use crate::rows::{
    Answers, Columns as _, Fault, Flows, Link as _, TaskParts,
    load::{Heads, LoadSql, Piece},
    small, to_integer,
};

const LOAD: &str = "
    SELECT t.id, t.flow, t.version, t.head, t.params, t.state,
           w.acts, w.attempts, w.claims, w.sessions, w.since, w.handed_out,
           r.acts, r.contents, m.steps, m.numbers, m.states
    FROM windlass_task t
    LEFT JOIN LATERAL (
        SELECT array_agg(act) AS acts, array_agg(attempt) AS attempts, array_agg(claim) AS claims,
               array_agg(session) AS sessions, array_agg(claimed_at) AS since,
               array_agg(handed_out) AS handed_out
        FROM windlass_wait WHERE task = t.id AND (session IS NOT NULL OR handed_out IS NOT NULL)
    ) w ON true
    LEFT JOIN LATERAL (
        SELECT array_agg(act) AS acts, array_agg(value) AS contents FROM windlass_result WHERE task = t.id
    ) r ON true
    LEFT JOIN LATERAL (
        SELECT array_agg(step ORDER BY step, number) AS steps, array_agg(number ORDER BY step, number) AS numbers,
               array_agg(state ORDER BY step, number) AS states
        FROM windlass_member WHERE task = t.id
    ) m ON true
    WHERE t.id = ANY($1::uuid[])";

/// Tasks older than one, with what is claimed of them; with `$6` with their parameters.
const PAGE: &str = "
    SELECT t.id, t.flow, t.version, t.head, CASE WHEN $6::bool THEN t.params ELSE '{}' END, t.state,
           w.acts, w.attempts, w.claims, w.sessions, w.since, w.handed_out
    FROM windlass_task t
    LEFT JOIN LATERAL (
        SELECT array_agg(act) AS acts, array_agg(attempt) AS attempts, array_agg(claim) AS claims,
               array_agg(session) AS sessions, array_agg(claimed_at) AS since,
               array_agg(handed_out) AS handed_out
        FROM windlass_wait WHERE task = t.id AND (session IS NOT NULL OR handed_out IS NOT NULL)
    ) w ON true
    WHERE t.id < $1 AND ($3::text IS NULL OR t.flow = $3) AND ($4::int8 IS NULL OR t.created_at >= $4)
      AND ($5::int8 IS NULL OR t.created_at < $5)
    ORDER BY t.id DESC LIMIT $2";
/// The newest of each ending are read from its part of an index, and the newest of all of them are the page. It is asked
/// for in the words of that index: with `ending = …` the database may read all tasks from the newest on instead.
const PAGE_OF_ENDED: &str = "
    SELECT t.id, t.flow, t.version, t.head, CASE WHEN $6::bool THEN t.params ELSE '{}' END, t.state,
           NULL::int8[], NULL::int8[], NULL::int8[], NULL::uuid[], NULL::int8[], NULL::int8[]
    FROM unnest($7::int2[]) AS e (ending)
    CROSS JOIN LATERAL (
        SELECT * FROM windlass_task t
        WHERE t.ending IS NOT NULL AND t.ending >= e.ending AND (t.ending, t.id) < (e.ending, $1::uuid)
          AND ($3::text IS NULL OR t.flow = $3) AND ($4::int8 IS NULL OR t.created_at >= $4)
          AND ($5::int8 IS NULL OR t.created_at < $5)
        ORDER BY t.ending DESC, t.id DESC LIMIT $2
    ) t
    ORDER BY t.id DESC LIMIT $2";
/// The tasks that were submitted under idempotency keys.
const BY_SCOPE: &str = "SELECT task FROM windlass_submit_key WHERE scope = ANY($1::bytea[])";

impl LoadSql for Connection {
    fn tasks(ids: &[TaskId]) -> Batch<'_> {
        Batch::one(LOAD, parameters![uuids(ids)])
    }

    fn read_tasks(answers: Answers<Self>, flows: &Flows) -> Result<Vec<TaskParts>, Fault> {
        let mut parts = Vec::new();
        for row in answers.iter().flatten() {
            parts.extend(flows.readable(row.task(0)?, task_parts(row))?);
        }
        Ok(parts)
    }

    async fn heads(&mut self, flows: &Flows, piece: Piece<'_>) -> Result<Heads, Fault> {
        let Piece { query, endings, before, wanted } = piece;
        let (since, until) = (query.since.map(|at| at.0), query.until.map(|at| at.0));
        let flow = query.flow.as_ref().map(|flow| flow.as_str());
        let (id, limit, reads) = (uuid(before), to_integer(wanted as u64), query.reads_params());
        let batch = match endings {
            Some(endings) => {
                let codes = |codes: &BTreeSet<i64>| -> Vec<i16> {
                    codes.iter().filter_map(|code| i16::try_from(*code).ok()).collect()
                };
                let parameters = parameters![id, limit, flow, since, until, reads, codes(endings)];
                Batch::one(PAGE_OF_ENDED, parameters)
            }
            None => Batch::one(PAGE, parameters![id, limit, flow, since, until, reads]),
        };
        let rows = self.rows(batch).await?;
        let mut parts = Vec::with_capacity(rows.len());
        for row in &rows {
            parts.extend(flows.readable(row.task(0)?, task_head(row))?);
        }
        let end = rows.last().map(|row| row.task(0)).transpose()?;
        Ok(Heads { parts, end, is_last: rows.len() < wanted })
    }

    fn by_scope(scopes: &[[u8; 32]]) -> Batch<'_> {
        let scopes: Vec<&[u8]> = scopes.iter().map(|scope| &scope[..]).collect();
        Batch::one(BY_SCOPE, parameters![scopes])
    }
}

/// A task from a row that begins with the columns of it and of what is claimed of it.
fn task_head(row: &Row) -> Result<TaskParts, Fault> {
    let acts: Vec<i64> = list(row, 6)?;
    let attempts: Vec<i64> = list(row, 7)?;
    let numbers: Vec<Option<i64>> = list(row, 8)?;
    let sessions: Vec<Option<Uuid>> = list(row, 9)?;
    let since: Vec<Option<i64>> = list(row, 10)?;
    let last: Vec<Option<i64>> = list(row, 11)?;
    let mut claims = Vec::new();
    for (index, act) in acts.iter().enumerate() {
        if let (Some(number), Some(session), Some(since)) = (numbers[index], sessions[index], since[index]) {
            claims.push((*act, attempts[index], number, session.as_u128(), since));
        }
    }
    let handed_out = acts.into_iter().zip(last).filter_map(|(act, last)| Some((act, last?))).collect();
    Ok(TaskParts {
        id: row.task(0)?,
        flow: row.name(1)?,
        version: small(row.number(2)?),
        head: row.bytes(3)?.to_vec(),
        params: row.text(4)?.to_owned(),
        state: row.bytes(5)?.to_vec(),
        members: Vec::new(),
        results: Vec::new(),
        claims,
        handed_out,
    })
}

fn task_parts(row: &Row) -> Result<TaskParts, Fault> {
    let acts: Vec<i64> = list(row, 12)?;
    let results: Vec<String> = list(row, 13)?;
    let steps: Vec<i64> = list(row, 14)?;
    let numbers: Vec<i64> = list(row, 15)?;
    let states: Vec<Vec<u8>> = list(row, 16)?;
    let members = steps.into_iter().zip(numbers).zip(states);
    Ok(TaskParts {
        members: members.map(|((step, number), state)| (step, number, state)).collect(),
        results: acts.into_iter().zip(results).collect(),
        ..task_head(row)?
    })
}

/// An array. NULL is empty.
fn list<'r, T: tokio_postgres::types::FromSql<'r>>(row: &'r Row, column: usize) -> Result<Vec<T>, Fault> {
    Ok(row.try_get::<_, Option<Vec<T>>>(column)?.unwrap_or_default())
}

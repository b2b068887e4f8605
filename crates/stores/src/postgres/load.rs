//! Reads tasks: all that belongs to each in one statement, so that all of it is of the same moment.

use std::collections::HashMap;

use tokio_postgres::Row;
use uuid::Uuid;
use windlass_core::TaskId;
use windlass_store::Loaded;

use super::{connection::Connection, error::Fault, flows::Flows};
use crate::rows::{TaskParts, name, of_task, small};

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

/// The tasks with these ids, in their order.
pub(super) async fn load(
    connection: &mut Connection<'_>,
    flows: &Flows,
    ids: &[TaskId],
) -> Result<Vec<Option<Loaded>>, Fault> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let keys: Vec<Uuid> = ids.iter().map(|id| Uuid::from_u128(id.0)).collect();
    let rows = connection.query(LOAD, &[&keys]).await?;
    let mut parts = Vec::with_capacity(rows.len());
    for row in &rows {
        parts.extend(readable(flows, task_id(row)?, task_parts(row))?);
    }
    let loaded = with_flows(connection, flows, parts).await?;
    let found: HashMap<TaskId, Loaded> = loaded.into_iter().map(|loaded| (loaded.task.id, loaded)).collect();
    // One may be asked for twice.
    Ok(ids.iter().map(|id| found.get(id).cloned()).collect())
}

/// Puts tasks together with their flows; without those whose rows are damaged.
pub(super) async fn with_flows(
    connection: &mut Connection<'_>,
    flows: &Flows,
    parts: Vec<TaskParts>,
) -> Result<Vec<Loaded>, Fault> {
    let wanted = parts.iter().map(|parts| (parts.flow.clone(), parts.version));
    flows.read(connection, wanted).await?;
    let mut loaded = Vec::with_capacity(parts.len());
    for parts in parts {
        let (id, flow) = (parts.id, flows.cache.of_task(parts.id, &parts.flow, parts.version));
        loaded.extend(flows.quarantine.readable(id, flow.and_then(|flow| parts.into_loaded(flow)))?);
    }
    Ok(loaded)
}

/// The columns of a task as they were read, where they can be understood.
pub(super) fn readable(
    flows: &Flows,
    id: TaskId,
    read: Result<TaskParts, Fault>,
) -> Result<Option<TaskParts>, Fault> {
    match read {
        Ok(parts) => Ok(Some(parts)),
        Err(Fault::Store(error)) => Ok(flows.quarantine.readable(id, Err(of_task(id, &error)))?),
        Err(fault) => Err(fault),
    }
}

/// A task from a row that begins with the columns of it and of what is claimed of it.
pub(super) fn task_head(row: &Row) -> Result<TaskParts, Fault> {
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
        id: task_id(row)?,
        flow: name(row.try_get(1)?)?,
        version: small(row.try_get(2)?),
        head: row.try_get(3)?,
        params: row.try_get(4)?,
        state: row.try_get(5)?,
        members: Vec::new(),
        results: Vec::new(),
        claims,
        handed_out,
    })
}

/// The id in the first column.
pub(super) fn task_id(row: &Row) -> Result<TaskId, Fault> {
    let id: Uuid = row.try_get(0)?;
    Ok(TaskId(id.as_u128()))
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

/// An array; nothing of nothing.
fn list<'r, T: tokio_postgres::types::FromSql<'r>>(row: &'r Row, column: usize) -> Result<Vec<T>, Fault> {
    Ok(row.try_get::<_, Option<Vec<T>>>(column)?.unwrap_or_default())
}

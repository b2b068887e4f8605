//! Reads tasks: all that belongs to them as of one moment, in one trip.

use std::collections::HashMap;

use mysql_async::Row;
use windlass_core::TaskId;
use windlass_store::Loaded;

use super::{
    columns::Columns as _,
    connection::{Connection, Sets},
    error::{Fault, damaged},
    flows::Flows,
    script::{Cell, Script},
};
use crate::rows::{TaskParts, of_task, small};

/// The columns of a task, from `t` and its state `s`.
pub(super) const TASK: &str = "SELECT t.id, t.flow, t.version, t.head, t.params, s.state
    FROM windlass_task t JOIN windlass_state s ON s.task = t.id";
/// The same with `{}` in place of the parameters, which may be large.
pub(super) const TASK_WITHOUT_PARAMS: &str = "SELECT t.id, t.flow, t.version, t.head, '{}', s.state
    FROM windlass_task t JOIN windlass_state s ON s.task = t.id";

/// The tasks with these ids, in their order. With `within` the connection has a transaction open, which sees what it has
/// locked as it is; else all is read as of one moment.
pub(super) async fn load(
    connection: &mut Connection<'_>,
    flows: &Flows,
    ids: &[TaskId],
    within: bool,
) -> Result<Vec<Option<Loaded>>, Fault> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut script = if within { Script::default() } else { Script::reading() };
    let keys = || ids.iter().map(|id| Cell::from(*id));
    let heads = script.for_keys(&format!("{TASK} WHERE t.id"), keys(), "");
    add_waits(&mut script, ids);
    script.for_keys("SELECT task, act, value FROM windlass_result WHERE task", keys(), "");
    script.for_keys(
        "SELECT task, step, number, state FROM windlass_member WHERE task",
        keys(),
        "ORDER BY task, step, number",
    );
    let sets = if within { connection.send(script).await? } else { connection.run(script).await? };
    let mut sets = sets.into_iter();
    let mut parts = HashMap::new();
    for row in sets.by_ref().take(heads).flatten() {
        let head = readable(flows, row.task(0)?, task_head(&row))?;
        parts.extend(head.map(|head| (head.id, head)));
    }
    read_waits(&mut parts, &sets.by_ref().take(heads).collect())?;
    for row in sets.by_ref().take(heads).flatten() {
        if let Some(of) = parts.get_mut(&row.task(0)?) {
            of.results.push((row.number(1)?, text(&row, 2)?));
        }
    }
    for row in sets.take(heads).flatten() {
        if let Some(of) = parts.get_mut(&row.task(0)?) {
            of.members.push((row.number(1)?, row.number(2)?, row.bytes(3)?.to_vec()));
        }
    }
    let loaded = with_flows(connection, flows, parts.into_values().collect(), within).await?;
    let found: HashMap<TaskId, Loaded> = loaded.into_iter().map(|loaded| (loaded.task.id, loaded)).collect();
    Ok(ids.iter().map(|id| found.get(id).cloned()).collect())
}

/// Puts tasks together with their flows; without those whose rows are damaged.
pub(super) async fn with_flows(
    connection: &mut Connection<'_>,
    flows: &Flows,
    parts: Vec<TaskParts>,
    within: bool,
) -> Result<Vec<Loaded>, Fault> {
    let wanted = parts.iter().map(|parts| (parts.flow.clone(), parts.version));
    flows.read(connection, wanted, within).await?;
    let mut loaded = Vec::with_capacity(parts.len());
    for parts in parts {
        let (id, flow) = (parts.id, flows.cache.of_task(parts.id, &parts.flow, parts.version));
        loaded.extend(flows.quarantine.readable(id, flow.and_then(|flow| parts.into_loaded(flow)))?);
    }
    Ok(loaded)
}

/// Adds statements that read what sessions have or had of these tasks, one for each five hundred of them.
pub(super) fn add_waits(script: &mut Script, ids: &[TaskId]) {
    script.for_keys(
        "SELECT task, act, attempt, claim, session, claimed_at, handed_out FROM windlass_wait
         WHERE (session IS NOT NULL OR handed_out IS NOT NULL) AND task",
        ids.iter().map(|id| Cell::from(*id)),
        "",
    );
}

/// Reads what [`add_waits`] asked for.
pub(super) fn read_waits(parts: &mut HashMap<TaskId, TaskParts>, sets: &Sets) -> Result<(), Fault> {
    for row in sets.iter().flatten() {
        let Some(of) = parts.get_mut(&row.task(0)?) else { continue };
        let act = row.number(1)?;
        let claim = (row.optional_number(3)?, row.optional_id(4)?, row.optional_number(5)?);
        if let (Some(number), Some(session), Some(since)) = claim {
            of.claims.push((act, row.number(2)?, number, session, since));
        }
        of.handed_out.extend(row.optional_number(6)?.map(|last| (act, last)));
    }
    Ok(())
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

/// A task from the columns of [`TASK`], without what belongs to it.
pub(super) fn task_head(row: &Row) -> Result<TaskParts, Fault> {
    Ok(TaskParts {
        id: row.task(0)?,
        flow: row.name(1)?,
        version: small(row.number(2)?),
        head: row.bytes(3)?.to_vec(),
        params: text(row, 4)?,
        state: row.bytes(5)?.to_vec(),
        members: Vec::new(),
        results: Vec::new(),
        claims: Vec::new(),
        handed_out: Vec::new(),
    })
}

fn text(row: &Row, column: usize) -> Result<String, Fault> {
    let text = row.text(column).map_err(|_| damaged("what was written as JSON is no text"))?;
    Ok(text.to_owned())
}

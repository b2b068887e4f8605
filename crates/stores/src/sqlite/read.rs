//! From rows to tasks: what recovery, queries and the doctor read alike.

use rusqlite::{Connection, OptionalExtension, Row};
use windlass_core::{ActKey, ActState, Json, Name, State, TaskId};
use windlass_engine::{ports::StoredFlow, resident::TaskRow, stored};

use super::{
    encoding::{act_key, task_id},
    error::{Fault, of_task},
};

/// The columns of `task` that [`task_row`] reads, in its order.
pub(super) const TASK_COLUMNS: &str = "task.id, task.flow, task.version, task.head, task.params";

/// Reads a task from a row that begins with [`TASK_COLUMNS`] and goes on with its state.
pub(super) fn task_row(row: &Row<'_>) -> Result<TaskRow, Fault> {
    let id = task_id(row, 0)?;
    let state = row.get_ref(5)?.as_blob().map_err(|error| of_task(id, from_sql(error)))?;
    let state = stored::read_state(state).map_err(|error| of_task(id, error))?;
    task_row_with(row, id, state)
}

/// Reads a task from a row of [`TASK_COLUMNS`], with its state from elsewhere.
pub(super) fn task_row_with(row: &Row<'_>, id: TaskId, state: State) -> Result<TaskRow, Fault> {
    let read = || -> Result<TaskRow, Fault> {
        let flow = name(row, 1)?;
        let head = row.get_ref(3)?.as_blob().map_err(from_sql)?;
        let params = row.get_ref(4)?.as_str().map_err(from_sql)?;
        let input = stored::read_input(head, params)?;
        Ok(TaskRow { id, flow, version: row.get(2)?, input, state, never_handed_out: false })
    };
    read().map_err(|fault| of_task(id, fault))
}

/// Reads a flow from name, version, time and data.
pub(super) fn stored_flow(row: &Row<'_>) -> Result<StoredFlow, Fault> {
    let (name, version): (String, u32) = (row.get(0)?, row.get(1)?);
    let data = row.get_ref(3)?.as_blob().map_err(from_sql)?;
    let flow = stored::read_flow(data)
        .map_err(|error| Fault::damaged(format!("flow {name} version {version}: {error}")))?;
    if flow.name.as_str() != name || flow.version != version {
        return Err(Fault::damaged(format!("flow {name} version {version} is not what its row says")));
    }
    Ok(StoredFlow { flow: flow.into(), created_at: windlass_core::Timestamp(row.get(2)?) })
}

/// Reads a name.
pub(super) fn name(row: &Row<'_>, column: usize) -> Result<Name, Fault> {
    let text = row.get_ref(column)?.as_str().map_err(from_sql)?;
    Name::new(text).map_err(|error| Fault::damaged(error.to_string()))
}

/// A column that holds another type than was written.
pub(super) fn from_sql(error: rusqlite::types::FromSqlError) -> Fault {
    Fault::damaged(format!("a column holds what was not written there: {error}"))
}

/// One row of a task's history, without its payloads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    /// The row before it.
    pub(super) previous: Option<i64>,
    /// Number of its first event.
    pub(super) first: i64,
    /// The act whose result it holds.
    act: Option<i64>,
}

/// Reads the row `seq` of the history of the task with number `task`.
pub(super) fn link(connection: &Connection, task: i64, seq: i64) -> Result<Link, Fault> {
    let mut statement =
        connection.prepare_cached("SELECT previous, first, act, task FROM history WHERE seq = ?1")?;
    let found = statement
        .query_row([seq], |row| {
            let link = Link { previous: row.get(0)?, first: row.get(1)?, act: row.get(2)? };
            Ok((link, row.get::<_, i64>(3)?))
        })
        .optional()?;
    match found {
        // Rows lead back only, so a walk ends whatever is written there.
        Some((link, owner)) if owner == task && link.previous.is_none_or(|previous| previous < seq) => {
            Ok(link)
        }
        Some(_) => {
            Err(Fault::damaged(format!("row {seq} of the history is not of the task that leads to it")))
        }
        None => Err(Fault::damaged(format!("row {seq} of the history is missing"))),
    }
}

/// Puts the results into `row`, whose newest row of history is `last`.
pub(super) fn read_results(
    connection: &Connection,
    row: &mut TaskRow,
    task: i64,
    last: i64,
) -> Result<(), Fault> {
    // An act that did not succeed has no result, whatever it had before a person had it tried again.
    let mut open: Vec<ActKey> = Vec::new();
    for (index, step) in row.state.steps.iter().enumerate() {
        for (key, act) in [(ActKey::forward(index), &step.forward), (ActKey::rollback(index), &step.undo)] {
            if act.state == ActState::Succeeded {
                open.push(key);
            }
        }
    }
    let id = row.id;
    let mut next = Some(last);
    while let Some(seq) = next.filter(|_| !open.is_empty()) {
        let link = link(connection, task, seq).map_err(|fault| of_task(id, fault))?;
        next = link.previous;
        let Some(key) = link.act.map(act_key) else { continue };
        // From the newest back: the first result found for an act is the one that counts.
        if let Some(place) = open.iter().position(|open| *open == key) {
            open.swap_remove(place);
            row.set_result(key, result(connection, seq).map_err(|fault| of_task(id, fault))?);
        }
    }
    Ok(())
}

fn result(connection: &Connection, seq: i64) -> Result<Json, Fault> {
    let mut statement = connection.prepare_cached("SELECT result FROM history WHERE seq = ?1")?;
    Ok(statement.query_row([seq], |row| Ok(Json::from_stored(row.get_ref(0)?.as_str()?)))?)
}

//! From rows to tasks: what recovery, queries and the doctor read alike.

use std::{collections::BTreeSet, sync::LazyLock};

use rusqlite::{Connection, Row, Statement};
use windlass_core::{ActKey, ActState, Json, Name, State, TaskId};
use windlass_store::{StoredFlow, resident::TaskRow, stored};

use super::{
    checksum::Table,
    directory::Place,
    encoding::{act_key, task_id},
    error::{Fault, of_task},
    member_rows::read_members,
};

/// Reads a task from a row that begins with the columns of [`Table::Task`] and goes on with those of `home`, where
/// its state is. Returns also where its rows are.
pub(super) fn task_row(row: &Row<'_>, home: Table) -> Result<(TaskRow, Place), Fault> {
    let id = task_id(row, 1)?;
    let from = Table::Task.width();
    let (task, last, state) = match home {
        Table::Final => (from + 2, from + 3, from + 5),
        Table::Resting => (from + 1, from + 2, from + 8),
        _ => (from, from + 1, from + 2),
    };
    let read = || -> Result<(State, Place), Fault> {
        home.check(row, from)?;
        let state = stored::read_state(row.get_ref(state)?.as_blob().map_err(from_sql)?)?;
        Ok((state, Place { task: row.get(task)?, last: row.get(last)? }))
    };
    let (state, place) = read().map_err(|fault| of_task(id, fault))?;
    Ok((task_row_with(row, id, state)?, place))
}

/// Reads a task from a row of [`Table::Task`], with its state from elsewhere. `id` is whose state it is.
pub(super) fn task_row_with(row: &Row<'_>, id: TaskId, state: State) -> Result<TaskRow, Fault> {
    let read = || -> Result<TaskRow, Fault> {
        Table::Task.check(row, 0)?;
        if task_id(row, 1)? != id {
            return Err(Fault::damaged("what was submitted is of another task"));
        }
        let flow = name(row, 2)?;
        let head = row.get_ref(5)?.as_blob().map_err(from_sql)?;
        let params = row.get_ref(6)?.as_str().map_err(from_sql)?;
        let input = stored::read_input(head, params)?;
        let version = row.get(3)?;
        Ok(TaskRow { id, flow, version, input, state, never_handed_out: false, is_body_away: false })
    };
    read().map_err(|fault| of_task(id, fault))
}

/// Reads a flow from a row of [`Table::Flow`].
pub(super) fn stored_flow(row: &Row<'_>) -> Result<StoredFlow, Fault> {
    let (name, version): (String, u32) = (row.get(0)?, row.get(1)?);
    Table::Flow
        .check(row, 0)
        .map_err(|fault| Fault::damaged(format!("flow {name} version {version}: {fault}")))?;
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

/// A text of any bytes, for people.
pub(super) fn any_text(row: &Row<'_>, column: usize) -> String {
    let bytes = row.get_ref(column).ok().and_then(|value| value.as_bytes().ok());
    String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
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

/// A row of the history by its number.
pub(super) static SELECT_HISTORY: LazyLock<String> =
    LazyLock::new(|| format!("SELECT {} FROM history WHERE seq = ?1", Table::History.select()));

/// Reads the row `seq` of the history with [`SELECT_HISTORY`]. It must be of the task with number `task`. Returns also what
/// `payload` reads.
pub(super) fn history_row<T>(
    select: &mut Statement<'_>,
    task: i64,
    seq: i64,
    payload: impl FnOnce(&Row<'_>, Link) -> Result<T, Fault>,
) -> Result<(Link, T), Fault> {
    let mut rows = select.query([seq])?;
    let Some(row) = rows.next()? else {
        return Err(Fault::damaged(format!("row {seq} of the history is missing")));
    };
    Table::History.check(row, 0)?;
    let link = Link { previous: row.get(2)?, first: row.get(3)?, act: row.get(5)? };
    // Rows lead back only, so a walk ends whatever is written there.
    if row.get::<_, i64>(1)? != task || link.previous.is_some_and(|previous| previous >= seq) {
        return Err(Fault::damaged(format!("row {seq} of the history is not of the task that leads to it")));
    }
    Ok((link, payload(row, link)?))
}

/// Puts members and results into `row`, whose rows are at `place`.
pub(super) fn complete(connection: &Connection, row: &mut TaskRow, place: Place) -> Result<(), Fault> {
    read_members(connection, row, place)?;
    // An act that did not succeed has no result, whatever it had before an operator had it tried again.
    let mut open: BTreeSet<ActKey> = BTreeSet::new();
    let acts = row.state.steps.iter().enumerate().flat_map(|(index, step)| {
        let keys = [ActKey::forward(index), ActKey::rollback(index)];
        let members = step.members.iter().flat_map(|members| members.iter());
        let of_members = members.flat_map(move |(number, member)| {
            keys.map(|key| (key.of_member(number), member.act(key.direction)))
        });
        keys.into_iter().map(|key| (key, step.act(key.direction))).chain(of_members)
    });
    open.extend(acts.filter(|(_, act)| act.state == ActState::Succeeded).map(|(key, _)| key));
    let id = row.id;
    let mut select = connection.prepare_cached(&SELECT_HISTORY)?;
    let mut next = Some(place.last);
    while let Some(seq) = next.filter(|_| !open.is_empty()) {
        let read = history_row(&mut select, place.task, seq, |history, link| {
            // From the newest back: the first result found for an act is the one that counts.
            let found = link.act.map(act_key).filter(|key| open.contains(key));
            found
                .map(|key| Ok((key, Json::from_stored(history.get_ref(7)?.as_str().map_err(from_sql)?))))
                .transpose()
        });
        let (link, result) = read.map_err(|fault| of_task(id, fault))?;
        next = link.previous;
        if let Some((key, result)) = result {
            open.remove(&key);
            row.set_result(key, result);
        }
    }
    Ok(())
}

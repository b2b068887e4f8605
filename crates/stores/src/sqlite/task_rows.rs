//! The rows of a task, each with its checksum.

use rusqlite::{OptionalExtension, Statement, params};
use windlass_core::{Ending, TaskId, Timestamp};
use windlass_store::{SubmitKey, TaskChange, resident::Rest, stored};

use super::{
    checksum::{Checksum, Table},
    directory::Place,
    encoding::ending_code,
    error::Fault,
    touched::Home,
};

/// Writes the state of a task that is active.
pub(super) fn write_active(write: &mut Statement<'_>, place: Place, state: &[u8]) -> Result<(), Fault> {
    let checksum = Checksum::of(Table::Active).number(place.task).number(place.last).blob(state).finish();
    write.execute(params![place.task, place.last, state, checksum])?;
    Ok(())
}

/// Writes a task that has ended.
pub(super) fn insert_final(
    insert: &mut Statement<'_>,
    id: TaskId,
    place: Place,
    ending: Ending,
    ended_at: Timestamp,
    state: &[u8],
) -> Result<(), Fault> {
    let (status, id) = (ending_code(ending), id.to_bytes());
    let checksum = Checksum::of(Table::Final)
        .number(status)
        .blob(&id)
        .number(place.task)
        .number(place.last)
        .number(ended_at.0)
        .blob(state)
        .finish();
    insert.execute(params![status, id, place.task, place.last, ended_at.0, state, checksum])?;
    Ok(())
}

/// Where the rows of a task are that rests, or has ended and goes on.
pub(super) fn place_at_rest<'c>(
    resting: &mut Statement<'c>,
    ended: &mut Statement<'c>,
    id: TaskId,
) -> Result<(Place, Home), Fault> {
    let read = |row: &rusqlite::Row<'_>| Ok(Place { task: row.get(0)?, last: row.get(1)? });
    for (select, home) in [(resting, Home::Resting), (ended, Home::Final)] {
        if let Some(place) = select.query_row([id.to_bytes()], read).optional()? {
            return Ok((place, home));
        }
    }
    Err(Fault::damaged(format!("task {id} changed, and is not there")))
}

/// Writes what was submitted, and its key.
pub(super) fn insert_task(
    insert_task: &mut Statement<'_>,
    insert_submit_key: &mut Statement<'_>,
    n: i64,
    change: &TaskChange,
) -> Result<(), Fault> {
    let task = &*change.task;
    let input = &*task.input;
    let (id, flow, version) = (task.id.to_bytes(), task.flow.name.as_str(), task.flow.version);
    let (created_at, head, parameters) =
        (input.created_at.0, stored::write_input(input), input.params.as_str());
    let scope = change.submit_key.as_ref().map(|key| key.scope);
    let checksum = Checksum::of(Table::Task)
        .number(n)
        .blob(&id)
        .text(flow)
        .number(version.into())
        .number(created_at)
        .blob(&head)
        .text(parameters)
        .optional_blob(scope.as_ref().map(|scope| &scope[..]))
        .finish();
    insert_task.execute(params![n, id, flow, version, created_at, head, parameters, scope, checksum])?;
    if let Some(key) = &change.submit_key {
        self::insert_submit_key(insert_submit_key, key, task.id, input.created_at, false)?;
    }
    Ok(())
}

/// Writes an idempotency key. One with which another task was submitted, for which this one stands, is kept as those
/// are whose tasks were deleted.
pub(super) fn insert_submit_key(
    insert: &mut Statement<'_>,
    key: &SubmitKey,
    task: TaskId,
    created_at: Timestamp,
    is_other: bool,
) -> Result<(), Fault> {
    let (task, created_at) = (task.to_bytes(), created_at.0);
    let checksum = Checksum::of(Table::SubmitKey)
        .blob(&key.scope)
        .blob(&key.fingerprint)
        .blob(&task)
        .number(created_at)
        .finish();
    insert.execute(params![key.scope, key.fingerprint, task, created_at, is_other, checksum])?;
    Ok(())
}

/// Writes a task that rests.
pub(super) fn write_resting(
    upsert: &mut Statement<'_>,
    id: TaskId,
    place: Place,
    rest: &Rest,
    state: &[u8],
) -> Result<(), Fault> {
    let (id, wake_at) = (id.to_bytes(), rest.wake_at.map(|at| at.0));
    let module = rest.line.as_ref().map(|(line, _)| line.module.as_str());
    let command = rest.line.as_ref().map(|(line, _)| line.command.as_str());
    let rank = rest.line.as_ref().map(|(_, place)| place.rank);
    let checksum = Checksum::of(Table::Resting)
        .blob(&id)
        .number(place.task)
        .number(place.last)
        .optional_number(wake_at)
        .number(rest.never_handed_out.into())
        .optional_text(module)
        .optional_text(command)
        .optional_number(rank)
        .blob(state)
        .finish();
    upsert.execute(params![
        id,
        place.task,
        place.last,
        wake_at,
        rest.never_handed_out,
        module,
        command,
        rank,
        state,
        checksum
    ])?;
    Ok(())
}

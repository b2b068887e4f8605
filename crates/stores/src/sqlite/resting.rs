//! Tasks at rest: found by id, newest first, in the order in which they are to be woken, and in their lines.

use std::sync::LazyLock;

use rusqlite::{Connection, Row, params};
use windlass_core::{Phase, TaskId, Timestamp};
use windlass_store::{
    DamagedTask,
    resident::{LimitedLine, Line, LinePlace, Params, ReadTask, Room, TaskRow, WakePlace},
    stored,
};

use super::{
    checksum::Table,
    directory::Place,
    encoding::{from_integer, task_id, to_integer},
    error::{Fault, of_task, or_damaged, or_reason},
    read::{any_text, complete, from_sql, name, task_row},
    recover::select_all,
};

/// What [`resting_row`] reads, and where from.
fn select(condition: &str) -> String {
    select_with(&Table::Task.select(), condition)
}

fn select_with(task: &str, condition: &str) -> String {
    format!(
        "SELECT {task}, {} FROM resting CROSS JOIN task ON task.n = resting.task {condition}",
        Table::Resting.select()
    )
}

/// The columns of a task without its parameters and all that stands behind them in the row, which SQLite would read
/// them for. The checksum is of all columns, so the row is checked when it is read whole.
const TASK_WITHOUT_PARAMS: &str =
    "task.n, task.id, task.flow, task.version, task.created_at, task.head, '{}', NULL, NULL";

/// The task with this id.
pub(super) static SELECT_ONE: LazyLock<String> = LazyLock::new(|| select("WHERE resting.id = ?1"));

/// Tasks older than `?1`, newest first.
pub(super) fn select_page() -> String {
    select(OLDER)
}

/// As [`select_page`], without parameters.
pub(super) fn select_page_without_params() -> String {
    select_with(TASK_WITHOUT_PARAMS, OLDER)
}

const OLDER: &str = "WHERE resting.id < ?1 ORDER BY resting.id DESC LIMIT ?2";

/// Tasks to be woken after the place (`?1`, `?2`) and at `?3` at the latest, in this order.
pub(super) fn select_waking() -> String {
    select(
        "WHERE (resting.wake_at, resting.id) > (?1, ?2) AND resting.wake_at <= ?3
         ORDER BY resting.wake_at, resting.id LIMIT ?4",
    )
}

/// Tasks in a line behind a place, in their order.
pub(super) fn select_line() -> String {
    select(
        "WHERE resting.module = ?1 AND resting.command = ?2 AND (resting.rank, resting.id) > (?3, ?4)
         ORDER BY resting.rank, resting.id LIMIT ?5",
    )
}

/// Tasks in a line up to a place, in their order.
pub(super) fn select_up_to_limit() -> String {
    select(
        "WHERE resting.module = ?1 AND resting.command = ?2 AND (resting.rank, resting.id) <= (?3, ?4)
         ORDER BY resting.rank, resting.id",
    )
}

pub(super) const COUNT_LINE: &str = "SELECT count(*) FROM resting
    WHERE module = ?1 AND command = ?2 AND (rank, id) > (?3, ?4) AND (rank, id) < (?5, ?6)";

// Where these columns are in such a row.
const WAKE_AT: usize = 12;
const NEVER_HANDED_OUT: usize = 13;
const RANK: usize = 16;

fn resting_row(row: &Row<'_>) -> Result<(TaskRow, Place), Fault> {
    let (task, place) = task_row(row, Table::Resting)?;
    if task_id(row, Table::Task.width())? != task.id {
        return Err(of_task(task.id, Fault::damaged("what rests is of another task")));
    }
    Ok((TaskRow { never_handed_out: row.get(NEVER_HANDED_OUT)?, ..task }, place))
}

fn completed(connection: &Connection, row: &Row<'_>) -> Result<TaskRow, Fault> {
    let (mut task, place) = resting_row(row)?;
    complete(connection, &mut task, place)?;
    Ok(task)
}

/// As [`completed`]; damage is the task's.
fn read(connection: &Connection, row: &Row<'_>) -> Result<ReadTask, Fault> {
    or_damaged(resting_id(row), completed(connection, row))
}

/// The id under which a task rests.
fn resting_id(row: &Row<'_>) -> TaskId {
    task_id(row, Table::Task.width()).unwrap_or(TaskId::NONE)
}

/// The task with this id, with its results.
pub(super) fn resting(connection: &Connection, id: TaskId) -> Result<Option<ReadTask>, Fault> {
    let mut statement = connection.prepare_cached(&SELECT_ONE)?;
    let mut rows = statement.query([id.to_bytes()])?;
    rows.next()?.map(|row| or_damaged(id, completed(connection, row))).transpose()
}

/// At most `limit` tasks older than `before`, newest first, without their results.
pub(super) fn resting_page(
    connection: &Connection,
    before: TaskId,
    limit: usize,
    params: Params,
) -> Result<Vec<ReadTask>, Fault> {
    let sql = match params {
        Params::Read => select_page(),
        Params::LeftOut => select_page_without_params(),
    };
    let mut statement = connection.prepare_cached(&sql)?;
    let parameters = params![before.to_bytes(), to_integer(limit as u64)];
    let read = |row: &Row<'_>| or_damaged(resting_id(row), resting_row(row).map(|(task, _)| task));
    statement.query_and_then(parameters, read)?.collect()
}

/// At most `limit` tasks that are to be woken after the place `after` and at `until` at the latest.
pub(super) fn waking(
    connection: &Connection,
    after: WakePlace,
    until: Timestamp,
    limit: usize,
    mut room: Room,
) -> Result<Vec<(WakePlace, ReadTask)>, Fault> {
    let mut statement = connection.prepare_cached(&select_waking())?;
    let parameters = params![after.at.0, after.task.to_bytes(), until.0, to_integer(limit as u64)];
    let rows = statement.query_and_then(parameters, |row| {
        // What a damaged row says about its place may be anything: the order of the index holds nevertheless.
        let at = row.get(WAKE_AT).unwrap_or(after.at.0).clamp(after.at.0, until.0);
        let mut task = read(connection, row)?;
        room.admit_read(&mut task);
        Ok((WakePlace { at: Timestamp(at), task: resting_id(row) }, task))
    })?;
    rows.collect()
}

/// At most `limit` tasks in a line behind the place `after`.
pub(super) fn line_page(
    connection: &Connection,
    line: &Line,
    after: LinePlace,
    limit: usize,
    mut room: Room,
) -> Result<Vec<(LinePlace, ReadTask)>, Fault> {
    let mut statement = connection.prepare_cached(&select_line())?;
    let (module, command) = (line.module.as_str(), line.command.as_str());
    let limit = to_integer(limit as u64);
    let rows = statement.query_and_then(
        params![module, command, after.rank, after.task.to_bytes(), limit],
        |row| {
            let rank = row.get(RANK).unwrap_or(after.rank).max(after.rank);
            let mut task = read(connection, row)?;
            room.admit_read(&mut task);
            Ok((LinePlace { rank, task: resting_id(row) }, task))
        },
    )?;
    rows.collect()
}

/// How many tasks rest in a line between two places.
pub(super) fn line_count(
    connection: &Connection,
    line: &Line,
    after: LinePlace,
    before: LinePlace,
) -> Result<u64, Fault> {
    let mut statement = connection.prepare_cached(COUNT_LINE)?;
    let count = statement.query_row(
        params![
            line.module.as_str(),
            line.command.as_str(),
            after.rank,
            after.task.to_bytes(),
            before.rank,
            before.task.to_bytes()
        ],
        |row| row.get(0),
    )?;
    Ok(from_integer(count))
}

/// The lines of which tasks rest, and what of them may have been handed out.
pub(super) fn lines(
    connection: &Connection,
    room: &mut Room,
) -> Result<(Vec<LimitedLine>, Vec<ReadTask>), Fault> {
    let mut statement = connection.prepare(&select_all(Table::Line))?;
    let limits = statement.query_and_then([], |row| {
        Table::Line.check(row, 0)?;
        let line = Line { module: name(row, 0)?, command: name(row, 1)? };
        Ok::<_, Fault>((line, LinePlace { rank: row.get(2)?, task: task_id(row, 3)? }))
    })?;
    let (mut lines, mut tasks) = (Vec::new(), Vec::new());
    for limited in limits {
        let (line, limit) = limited?;
        let mut statement = connection.prepare(&select_up_to_limit())?;
        let (module, command) = (line.module.as_str(), line.command.as_str());
        let rows = statement
            .query_and_then(params![module, command, limit.rank, limit.task.to_bytes()], |row| {
                read(connection, row)
            })?;
        for row in rows {
            let mut task = row?;
            room.admit_read(&mut task);
            tasks.push(task);
        }
        let resting = line_count(connection, &line, limit, LinePlace::LAST)?;
        lines.push(LimitedLine { line, limit, resting });
    }
    Ok((lines, tasks))
}

/// Writes damaged rows of lines again from the tasks that rest in them: all of those may have been handed out. What was
/// damaged is added to `mended`.
pub(super) fn mend_lines(connection: &Connection, mended: &mut Vec<DamagedTask>) -> Result<(), Fault> {
    let mut statement = connection.prepare(&select_all(Table::Line))?;
    let mut rows = statement.query([])?;
    let mut damaged = Vec::new();
    while let Some(row) = rows.next()? {
        let read =
            Table::Line.check(row, 0).and_then(|()| Ok((name(row, 0)?, name(row, 1)?, task_id(row, 3)?)));
        if let Err(fault) = or_reason(read)? {
            damaged.push((bytes(row, 0)?, bytes(row, 1)?));
            mended.push(DamagedTask::line(&format!("{}.{}", any_text(row, 0), any_text(row, 1)), fault));
        }
    }
    drop(rows);
    if damaged.is_empty() {
        return Ok(());
    }
    for (module, command) in damaged {
        connection
            .execute("DELETE FROM line WHERE module = ?1 AND command = ?2", params![module, command])?;
    }
    connection.execute(
        "INSERT INTO line (module, command, rank, id)
         SELECT module, command, rank, id FROM (
             SELECT module, command, rank, id,
                    row_number() OVER (PARTITION BY module, command ORDER BY rank DESC, id DESC) AS place
             FROM resting WHERE module IS NOT NULL)
         WHERE place = 1
         ON CONFLICT DO NOTHING",
        [],
    )?;
    let unsealed = "SELECT module, command FROM line WHERE checksum IS NULL";
    let written: Vec<(String, String)> = connection
        .prepare(unsealed)?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    for (module, command) in written {
        Table::Line.seal(connection, "module = ?1 AND command = ?2", &[&module, &command])?;
    }
    Ok(())
}

fn bytes(row: &Row<'_>, column: usize) -> Result<Vec<u8>, Fault> {
    Ok(row.get_ref(column)?.as_bytes().map_err(from_sql)?.to_vec())
}

/// How many rows are looked at in one go when a file of the first format is brought to the second.
const LOOK_AT: i64 = 1_000;

/// From format 1 to 2: tasks that wait for their start rest. All others do with their next change.
pub(super) fn lay_down_scheduled(connection: &Connection) -> rusqlite::Result<()> {
    let latest_at: i64 = connection.query_row("SELECT latest_at FROM meta", [], |row| row.get(0))?;
    let mut select = connection.prepare(
        "SELECT active.task, active.state, task.head FROM active CROSS JOIN task ON task.n = active.task
         WHERE active.task > ?1 ORDER BY active.task LIMIT ?2",
    )?;
    let mut insert = connection.prepare(
        "INSERT INTO resting (id, task, last, wake_at, never_handed_out, state)
         SELECT task.id, active.task, active.last, ?2, 1, active.state
         FROM active CROSS JOIN task ON task.n = active.task WHERE active.task = ?1",
    )?;
    let mut delete = connection.prepare("DELETE FROM active WHERE task = ?1")?;
    let mut after = 0_i64;
    loop {
        let seen: Vec<(i64, Option<Timestamp>)> = select
            .query_and_then(params![after, LOOK_AT], |row| {
                Ok::<_, rusqlite::Error>((row.get(0)?, starts_at(row)?))
            })?
            .collect::<rusqlite::Result<_>>()?;
        let Some((last, _)) = seen.last() else { return Ok(()) };
        after = *last;
        for (task, at) in seen {
            if let Some(at) = at.filter(|at| at.0 > latest_at) {
                insert.execute(params![task, at.0])?;
                delete.execute([task])?;
            }
        }
    }
}

/// When a task starts that waits for this; it has been in no hands yet. What cannot be read is left to be named
/// by the recovery.
fn starts_at(row: &Row<'_>) -> rusqlite::Result<Option<Timestamp>> {
    let state = stored::read_state(row.get_ref(1)?.as_blob()?);
    let Ok(true) = state.map(|state| state.phase == Phase::Scheduled) else { return Ok(None) };
    let input = stored::read_input(row.get_ref(2)?.as_blob()?, "{}");
    Ok(input.ok().and_then(|input| input.at))
}

//! Lists of tasks that have ended.
//!
//! `final` is ordered by status and id, so each status is a list that is newest first when read from its end,
//! and several are merged by SQLite as they are read. Filters that the key does not serve look at one task
//! after the other, and at no more than [`SCAN_MAX`] for one page.

use rusqlite::{Connection, Row, Statement, params};
use windlass_core::{Json, Millis, TaskId, Timestamp};
use windlass_store::{
    Page, SCAN_MAX, TaskQuery,
    resident::{ReadTask, TaskRow},
    stored,
};

use super::{
    checksum::Table,
    encoding::{ENDED, task_id},
    error::{Fault, of_task, or_damaged},
    read::{from_sql, task_row_with},
};

/// Ids, times of acceptance and numbers of tasks grow together, but for requests that overtake one another in
/// the server. This much disorder is allowed for where a list begins and ends by time.
pub(super) const ORDER_TOLERANCE: Millis = Millis::from_secs(60);

/// Tasks of these statuses with ids smaller than `?1`, newest first.
pub(super) fn select_page(statuses: &[i64]) -> String {
    let columns = Table::Final.select();
    let lists = statuses
        .iter()
        .map(|status| format!("SELECT {columns} FROM final WHERE status = {status} AND id < ?1"));
    let lists: Vec<String> = lists.collect();
    format!("{} ORDER BY id DESC LIMIT ?2", lists.join(" UNION ALL "))
}

/// The first task with this number or a greater one.
pub(super) const SELECT_TASK_FROM: &str =
    "SELECT n, created_at, id FROM task WHERE n >= ?1 ORDER BY n LIMIT 1";

/// What was submitted with one task.
pub(super) fn select_task() -> String {
    format!("SELECT {} FROM task WHERE task.n = ?1", Table::Task.select())
}

/// Tasks that have ended, newest first, without their results.
pub(super) fn ended_page(
    connection: &Connection,
    query: &TaskQuery,
) -> Result<Page<ReadTask, TaskId>, Fault> {
    let wanted = |status| query.statuses.is_empty() || query.statuses.contains(status);
    let statuses: Vec<i64> =
        ENDED.iter().filter(|(status, _)| wanted(status)).map(|(_, code)| *code).collect();
    if statuses.is_empty() || query.limit == 0 {
        return Ok(Page { items: Vec::new(), next: None });
    }
    let to = upper_end(connection, query)?;
    let mut page = connection.prepare_cached(&select_page(&statuses))?;
    let mut select_task = connection.prepare_cached(&select_task())?;
    // One more than is looked at shows whether there is more.
    let mut rows = page.query(params![to.to_bytes(), SCAN_MAX as i64 + 1])?;
    let (mut items, mut matching, mut seen, mut last) = (Vec::new(), 0, 0, None);
    while let Some(row) = rows.next()? {
        if matching >= query.limit || seen == SCAN_MAX {
            return Ok(Page { items, next: last });
        }
        let id = task_id(row, 1)?;
        seen += 1;
        last = Some(id);
        match or_damaged(id, look_at(query, id, row, &mut select_task))? {
            Ok(Look::Matches(found)) => {
                matching += 1;
                items.push(Ok(*found));
            }
            Ok(Look::Differs) => {}
            Ok(Look::TooOld) => break,
            Err(damaged) => items.push(Err(damaged)),
        }
    }
    Ok(Page { items, next: None })
}

/// What a task that was looked at is to a query.
enum Look {
    Matches(Box<TaskRow>),
    Differs,
    /// It was accepted before the time asked for, as all behind it were.
    TooOld,
}

fn look_at(
    query: &TaskQuery,
    id: TaskId,
    row: &Row<'_>,
    select_task: &mut Statement<'_>,
) -> Result<Look, Fault> {
    Table::Final.check(row, 0).map_err(|fault| of_task(id, fault))?;
    let number: i64 = row.get(2)?;
    let mut tasks = select_task.query([number])?;
    let Some(task) = tasks.next()? else {
        return Err(of_task(id, Fault::damaged("what was submitted is missing")));
    };
    Table::Task.check(task, 0).map_err(|fault| of_task(id, fault))?;
    let created_at = Timestamp(task.get(4)?);
    if query.since.is_some_and(|since| created_at + ORDER_TOLERANCE < since) {
        return Ok(Look::TooOld);
    }
    let in_time = query.since.is_none_or(|since| created_at >= since)
        && query.until.is_none_or(|until| created_at < until);
    let found = if in_time { matching(query, id, row, task)? } else { None };
    Ok(found.map_or(Look::Differs, |found| Look::Matches(Box::new(found))))
}

/// An id that is greater than those of all tasks that may be on the page.
fn upper_end(connection: &Connection, query: &TaskQuery) -> Result<TaskId, Fault> {
    let before = query.before.unwrap_or(TaskId(u128::MAX));
    let Some(until) = query.until else { return Ok(before) };
    let later = first_accepted_after(connection, until + ORDER_TOLERANCE)?;
    Ok(later.map_or(before, |later| later.min(before)))
}

/// The first task that was accepted after `time`, found by halving: tasks are numbered in the order they came.
fn first_accepted_after(connection: &Connection, time: Timestamp) -> Result<Option<TaskId>, Fault> {
    let mut newest = connection.prepare_cached("SELECT max(n) FROM task")?;
    let Some(newest) = newest.query_row([], |row| row.get::<_, Option<i64>>(0))? else { return Ok(None) };
    let mut from = connection.prepare_cached(SELECT_TASK_FROM)?;
    let (mut low, mut high, mut found) = (1, newest, None);
    while low <= high {
        let middle = low + (high - low) / 2;
        let (n, created_at, id) = from.query_row([middle], |row| {
            Ok((row.get::<_, i64>(0)?, Timestamp(row.get(1)?), task_id(row, 2)?))
        })?;
        if created_at > time {
            (high, found) = (middle - 1, Some(id));
        } else {
            low = n + 1;
        }
    }
    Ok(found)
}

/// The task, if it meets the filters by flow and by what was submitted.
fn matching(query: &TaskQuery, id: TaskId, row: &Row<'_>, task: &Row<'_>) -> Result<Option<TaskRow>, Fault> {
    let flow = task.get_ref(2)?.as_str().map_err(from_sql)?;
    if query.flow.as_ref().is_some_and(|wanted| wanted.as_str() != flow) {
        return Ok(None);
    }
    let state = row.get_ref(5)?.as_blob().map_err(from_sql)?;
    let state = stored::read_state(state).map_err(|error| of_task(id, error))?;
    let mut found = task_row_with(task, id, state)?;
    let is_wanted = query.admits(&found.input);
    if query.brief {
        found.input.params = Json::empty();
    }
    Ok(is_wanted.then_some(found))
}

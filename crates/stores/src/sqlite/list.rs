//! Lists of tasks that have ended.
//!
//! `final` is ordered by status and id, so each status is a list that is newest first when read from its end,
//! and several are merged by SQLite as they are read. Filters that the key does not serve look at one task
//! after the other, and at no more than [`SCAN_MAX`] for one page.

use rusqlite::{Connection, Row, params};
use windlass_core::{Millis, TaskId, Timestamp};
use windlass_engine::{
    ports::{Page, SCAN_MAX, TaskQuery},
    resident::TaskRow,
    stored,
};

use super::{
    encoding::{ENDED, task_id},
    error::{Fault, of_task},
    read::{TASK_COLUMNS, from_sql, task_row_with},
};

/// An id holds the time it was made at, which is when its task was accepted but for the moments in between.
/// It narrows what is looked at, never what is found.
const ID_TIME_TOLERANCE: Millis = Millis::from_secs(60);

/// Tasks of these statuses with ids in a range (`?1` inclusive, `?2` not), newest first.
pub(super) fn select_page(statuses: &[i64]) -> String {
    let lists = statuses.iter().map(|status| {
        format!("SELECT id, task, state FROM final WHERE status = {status} AND id >= ?1 AND id < ?2")
    });
    let lists: Vec<String> = lists.collect();
    format!("{} ORDER BY id DESC LIMIT ?3", lists.join(" UNION ALL "))
}

/// What was submitted with one task.
pub(super) fn select_task() -> String {
    format!("SELECT {TASK_COLUMNS}, task.created_at FROM task WHERE task.n = ?1")
}

/// Tasks that have ended, newest first, without their results.
pub(super) fn ended_page(connection: &Connection, query: &TaskQuery) -> Result<Page<TaskRow, TaskId>, Fault> {
    let wanted = |status| query.statuses.is_empty() || query.statuses.contains(status);
    let statuses: Vec<i64> =
        ENDED.iter().filter(|(status, _)| wanted(status)).map(|(_, code)| *code).collect();
    if statuses.is_empty() || query.limit == 0 {
        return Ok(Page { items: Vec::new(), next: None });
    }
    let (from, to) = id_range(query);
    let mut page = connection.prepare_cached(&select_page(&statuses))?;
    let mut select_task = connection.prepare_cached(&select_task())?;
    // One more than is looked at tells whether there is more.
    let mut rows = page.query(params![from.to_bytes(), to.to_bytes(), SCAN_MAX as i64 + 1])?;
    let (mut items, mut seen, mut last) = (Vec::new(), 0, None);
    while let Some(row) = rows.next()? {
        if items.len() >= query.limit || seen == SCAN_MAX {
            return Ok(Page { items, next: last });
        }
        let id = task_id(row, 0)?;
        seen += 1;
        last = Some(id);
        let number: i64 = row.get(1)?;
        let mut tasks = select_task.query([number])?;
        let Some(task) = tasks.next()? else {
            return Err(of_task(id, Fault::damaged("what was submitted is missing")));
        };
        if let Some(found) = matching(query, id, row, task)? {
            items.push(found);
        }
    }
    Ok(Page { items, next: None })
}

/// The ids that may meet the query: from, inclusive, and to, exclusive.
fn id_range(query: &TaskQuery) -> (TaskId, TaskId) {
    let at = |time: Timestamp| TaskId(u128::try_from(time.0).unwrap_or(0).min((1 << 48) - 1) << 80);
    let from = query
        .since
        .map_or(TaskId(0), |since| at(Timestamp(since.0.saturating_sub_unsigned(ID_TIME_TOLERANCE.0))));
    let until = query.until.map_or(TaskId(u128::MAX), |until| at(until + ID_TIME_TOLERANCE));
    (from, query.before.map_or(until, |before| before.min(until)))
}

/// The task, if it meets the filters.
fn matching(query: &TaskQuery, id: TaskId, row: &Row<'_>, task: &Row<'_>) -> Result<Option<TaskRow>, Fault> {
    let created_at = Timestamp(task.get(5)?);
    let flow = task.get_ref(1)?.as_str().map_err(from_sql)?;
    if query.flow.as_ref().is_some_and(|wanted| wanted.as_str() != flow)
        || query.since.is_some_and(|since| created_at < since)
        || query.until.is_some_and(|until| created_at >= until)
    {
        return Ok(None);
    }
    let state = row.get_ref(2)?.as_blob().map_err(from_sql)?;
    let state = stored::read_state(state).map_err(|error| of_task(id, error))?;
    let found = task_row_with(task, id, state)?;
    let labelled = query.labels.iter().all(|(name, value)| found.input.labels.get(name) == Some(value));
    Ok(labelled.then_some(found))
}

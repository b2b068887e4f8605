//! Lists of tasks: newest first, looked at one after the other where no index serves a filter.

use std::collections::HashMap;

use windlass_core::TaskId;
use windlass_store::{Loaded, Page, TaskQuery};

use super::{
    columns::Columns as _,
    connection::Connection,
    error::Fault,
    flows::Flows,
    load::{TASK, TASK_WITHOUT_PARAMS, add_waits, load, read_waits, readable, task_head, with_flows},
    script::{Cell, Script, cells},
};
use crate::rows::{Listing, only_ended};

/// Tasks looked at together: each may be large.
const PIECE: usize = 200;

/// A page of tasks.
pub(super) async fn page(
    connection: &mut Connection<'_>,
    flows: &Flows,
    query: &TaskQuery,
) -> Result<Page<Loaded, TaskId>, Fault> {
    if let Some(scopes) = &query.scopes {
        let ids = by_scope(connection, scopes).await?;
        return Ok(query.page_of(load(connection, flows, &ids, false).await?));
    }
    let mut listing = Listing::new(query);
    loop {
        let wanted = listing.wanted().min(PIECE);
        let ids = ids(connection, query, listing.before(), wanted).await?;
        let mut found = heads(connection, flows, &ids, query.reads_params()).await?;
        if !query.statuses.is_empty() {
            add_members(connection, flows, &mut found).await?;
        }
        if let Some(page) = listing.look_at(found, ids.last().copied(), ids.len() < wanted) {
            return Ok(page);
        }
    }
}

/// The tasks that were submitted under idempotency keys.
async fn by_scope(connection: &mut Connection<'_>, scopes: &[[u8; 32]]) -> Result<Vec<TaskId>, Fault> {
    if scopes.is_empty() {
        return Ok(Vec::new());
    }
    let mut script = Script::default();
    let keys = scopes.iter().map(|scope| Cell::from(&scope[..]));
    script.for_keys("SELECT task FROM windlass_submit_key WHERE scope", keys, "");
    let sets = connection.run(script).await?;
    sets.iter().flatten().map(|row| row.task(0)).collect()
}

/// The next tasks that may be on the page, newest first.
async fn ids(
    connection: &mut Connection<'_>,
    query: &TaskQuery,
    before: TaskId,
    wanted: usize,
) -> Result<Vec<TaskId>, Fault> {
    let mut condition = String::new();
    let mut cells = cells![before];
    if let Some(flow) = &query.flow {
        condition.push_str(" AND t.flow = ?");
        cells.push(flow.into());
    }
    for (is, time) in [(">=", query.since), ("<", query.until)] {
        if let Some(time) = time {
            condition = format!("{condition} AND t.created_at {is} ?");
            cells.push(time.0.into());
        }
    }
    let order = format!("ORDER BY t.id DESC LIMIT {wanted}");
    let (sql, cells) = match only_ended(&query.statuses) {
        None => (format!("SELECT t.id FROM windlass_task t WHERE t.id < ?{condition} {order}"), cells),
        // Each ending is a list of its own that is in order already.
        Some(endings) => {
            let list = |ending: &i64| {
                format!(
                    "(SELECT t.id FROM windlass_state s FORCE INDEX (by_ending)
                      STRAIGHT_JOIN windlass_task t ON t.id = s.task
                      WHERE s.ending = {ending} AND s.task < ?{condition} ORDER BY s.task DESC LIMIT {wanted})"
                )
            };
            let lists: Vec<String> = endings.iter().map(list).collect();
            let cells: Vec<Cell<'_>> = endings.iter().flat_map(|_| cells.clone()).collect();
            (format!("SELECT t.id FROM ({}) t {order}", lists.join(" UNION ALL ")), cells)
        }
    };
    let mut script = Script::default();
    script.add(&sql, cells);
    let sets = connection.run(script).await?;
    sets.iter().flatten().map(|row| row.task(0)).collect()
}

/// These tasks without members and results, in their order, as far as they are still there.
async fn heads(
    connection: &mut Connection<'_>,
    flows: &Flows,
    ids: &[TaskId],
    reads_params: bool,
) -> Result<Vec<Loaded>, Fault> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut script = Script::reading();
    let columns = if reads_params { TASK } else { TASK_WITHOUT_PARAMS };
    let count = script.for_keys(&format!("{columns} WHERE t.id"), ids.iter().map(|id| Cell::from(*id)), "");
    add_waits(&mut script, ids);
    let mut sets = connection.run(script).await?.into_iter();
    let mut parts = HashMap::new();
    for row in sets.by_ref().take(count).flatten() {
        let head = readable(flows, row.task(0)?, task_head(&row))?;
        parts.extend(head.map(|head| (head.id, head)));
    }
    read_waits(&mut parts, &sets.take(count).collect())?;
    let ordered = ids.iter().filter_map(|id| parts.remove(id)).collect();
    with_flows(connection, flows, ordered, false).await
}

/// Reads the members of those tasks whose status depends on them.
async fn add_members(
    connection: &mut Connection<'_>,
    flows: &Flows,
    tasks: &mut [Loaded],
) -> Result<(), Fault> {
    let has_members = |loaded: &Loaded| loaded.task.state.steps.iter().any(|step| step.members.is_some());
    let fanned_out: Vec<&mut Loaded> =
        tasks.iter_mut().filter(|loaded| !loaded.task.is_ended() && has_members(loaded)).collect();
    let ids: Vec<TaskId> = fanned_out.iter().map(|loaded| loaded.task.id).collect();
    let whole = load(connection, flows, &ids, false).await?;
    for (task, whole) in fanned_out.into_iter().zip(whole) {
        // One that was deleted meanwhile stays as it was.
        if let Some(whole) = whole {
            *task = whole;
        }
    }
    Ok(())
}

//! Lists of tasks: newest first, looked at one after the other where no index serves a filter.

use std::collections::{BTreeSet, HashMap};

use uuid::Uuid;
use windlass_core::TaskId;
use windlass_store::{Loaded, Page, TaskQuery};

use super::{
    connection::Connection,
    error::Fault,
    flows::Flows,
    load::{load, readable, task_head, task_id, with_flows},
};
use crate::rows::{Listing, only_ended, to_integer};

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

/// A page of tasks.
pub(super) async fn page(
    connection: &mut Connection<'_>,
    flows: &Flows,
    query: &TaskQuery,
) -> Result<Page<Loaded, TaskId>, Fault> {
    if let Some(scopes) = &query.scopes {
        let scopes: Vec<&[u8]> = scopes.iter().map(|scope| &scope[..]).collect();
        let rows = connection.query(BY_SCOPE, &[&scopes]).await?;
        let ids = rows.iter().map(task_id).collect::<Result<Vec<_>, _>>()?;
        return Ok(query.page_of(load(connection, flows, &ids).await?));
    }
    let mut listing = Listing::new(query);
    // Each once: a status may be asked for twice.
    let endings = only_ended(&query.statuses).map(|codes| {
        let codes: BTreeSet<i16> = codes.into_iter().filter_map(|code| i16::try_from(code).ok()).collect();
        codes.into_iter().collect::<Vec<_>>()
    });
    let flow = query.flow.as_ref().map(|flow| flow.as_str());
    let reads = query.reads_params();
    let (since, until) = (query.since.map(|at| at.0), query.until.map(|at| at.0));
    loop {
        let wanted = listing.wanted();
        let (id, limit) = (Uuid::from_u128(listing.before().0), to_integer(wanted as u64));
        let rows = match &endings {
            Some(endings) => {
                connection
                    .query(PAGE_OF_ENDED, &[&id, &limit, &flow, &since, &until, &reads, endings])
                    .await?
            }
            None => connection.query(PAGE, &[&id, &limit, &flow, &since, &until, &reads]).await?,
        };
        let mut parts = Vec::with_capacity(rows.len());
        for row in &rows {
            parts.extend(readable(flows, task_id(row)?, task_head(row))?);
        }
        let end = rows.last().map(task_id).transpose()?;
        let found = with_flows(connection, flows, parts).await?;
        let found = with_members(connection, flows, found).await?;
        if let Some(page) = listing.look_at(found, end, rows.len() < wanted) {
            return Ok(page);
        }
    }
}

/// How far a task with members is that has not ended is seen by them.
async fn with_members(
    connection: &mut Connection<'_>,
    flows: &Flows,
    mut found: Vec<Loaded>,
) -> Result<Vec<Loaded>, Fault> {
    let is_fanned = |loaded: &&Loaded| !loaded.task.is_ended() && loaded.task.fans().next().is_some();
    let ids: Vec<TaskId> = found.iter().filter(is_fanned).map(|loaded| loaded.task.id).collect();
    let mut whole: HashMap<TaskId, Loaded> = HashMap::new();
    for loaded in load(connection, flows, &ids).await?.into_iter().flatten() {
        whole.insert(loaded.task.id, loaded);
    }
    for loaded in &mut found {
        if let Some(whole) = whole.remove(&loaded.task.id) {
            *loaded = whole;
        }
    }
    Ok(found)
}

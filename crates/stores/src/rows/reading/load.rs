//! Reads tasks: some by their ids, and pages of them.

use std::collections::{BTreeSet, HashMap};

use windlass_core::TaskId;
use windlass_store::{Loaded, Page, TaskQuery};

use crate::rows::{Answers, Columns as _, Fault, Flows, Listing, TaskParts, flows::FlowSql, only_ended};

/// What one try of a page looks at.
pub(crate) struct Piece<'q> {
    pub(crate) query: &'q TaskQuery,
    /// The page is of tasks that ended like this only.
    pub(crate) endings: Option<&'q BTreeSet<i64>>,
    /// Only tasks older than this one.
    pub(crate) before: TaskId,
    /// How many at most.
    pub(crate) wanted: usize,
}

/// Tasks found for a page.
pub(crate) struct Heads {
    /// Without items and results, newest first. Damaged tasks are left out.
    pub(crate) parts: Vec<TaskParts>,
    /// The oldest task that was looked at, damaged ones included.
    pub(crate) end: Option<TaskId>,
    /// There are no older ones.
    pub(crate) is_last: bool,
}

/// Statements that read tasks.
pub(crate) trait LoadSql: FlowSql {
    /// These tasks with all that belongs to them, all of it as of one moment; within a transaction as it is now.
    fn tasks(ids: &[TaskId]) -> Self::Script<'_>;

    /// The tasks in the answers of [`LoadSql::tasks`]. Damaged ones are left out.
    fn read_tasks(answers: Answers<Self>, flows: &Flows) -> Result<Vec<TaskParts>, Fault>;

    /// The next tasks that may be on a page.
    fn heads(&mut self, flows: &Flows, piece: Piece<'_>)
    -> impl Future<Output = Result<Heads, Fault>> + Send;

    /// The tasks that were submitted under idempotency keys: `task`.
    fn by_scope(scopes: &[[u8; 32]]) -> Self::Script<'_>;
}

/// The tasks with these ids, in their order. An id may be repeated.
pub(crate) async fn load<D: LoadSql>(
    link: &mut D,
    flows: &Flows,
    ids: &[TaskId],
) -> Result<Vec<Option<Loaded>>, Fault> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let answers = link.send(D::tasks(ids)).await?;
    let loaded = flows.with_flows(link, D::read_tasks(answers, flows)?).await?;
    let found: HashMap<TaskId, Loaded> = loaded.into_iter().map(|loaded| (loaded.task.id, loaded)).collect();
    Ok(ids.iter().map(|id| found.get(id).cloned()).collect())
}

/// A page of tasks, newest first. Where no index serves a filter, tasks are looked at one after the other.
pub(crate) async fn page<D: LoadSql>(
    link: &mut D,
    flows: &Flows,
    query: &TaskQuery,
) -> Result<Page<Loaded, TaskId>, Fault> {
    if let Some(scopes) = &query.scopes {
        let rows = link.rows(D::by_scope(scopes)).await?;
        let ids = rows.iter().map(|row| row.task(0)).collect::<Result<Vec<_>, _>>()?;
        return Ok(query.page_of(load(link, flows, &ids).await?));
    }
    // Each ending once: a status may be asked for twice.
    let endings: Option<BTreeSet<i64>> = only_ended(&query.statuses).map(|codes| codes.into_iter().collect());
    let mut listing = Listing::new(query);
    loop {
        let (before, wanted) = (listing.before(), listing.wanted());
        let piece = Piece { query, endings: endings.as_ref(), before, wanted };
        let heads = link.heads(flows, piece).await?;
        let found = flows.with_flows(link, heads.parts).await?;
        let found = with_items(link, flows, found).await?;
        if let Some(page) = listing.look_at(found, heads.end, heads.is_last) {
            return Ok(page);
        }
    }
}

/// Reads the items of those tasks whose progress depends on them.
async fn with_items<D: LoadSql>(
    link: &mut D,
    flows: &Flows,
    mut found: Vec<Loaded>,
) -> Result<Vec<Loaded>, Fault> {
    let has_items = |loaded: &&Loaded| !loaded.task.is_ended() && loaded.task.fans().next().is_some();
    let ids: Vec<TaskId> = found.iter().filter(has_items).map(|loaded| loaded.task.id).collect();
    let mut whole: HashMap<TaskId, Loaded> = HashMap::new();
    for loaded in load(link, flows, &ids).await?.into_iter().flatten() {
        whole.insert(loaded.task.id, loaded);
    }
    for loaded in &mut found {
        // A task that was deleted meanwhile stays as it was.
        if let Some(whole) = whole.remove(&loaded.task.id) {
            *loaded = whole;
        }
    }
    Ok(found)
}

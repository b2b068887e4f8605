//! Tasks that applications enqueued in their own transactions.

use windlass_core::TaskId;
use windlass_store::{Enqueued, Leadership, Settlement, Standing};

use super::{Columns as _, Fault, Link, from_integer, small};

/// Statements about enqueued tasks.
pub(crate) trait EnqueuedSql: Link {
    /// Enqueued tasks with numbers above `after`, in order, no more than 8 MiB and one task beyond:
    /// `id, enqueued_by, task, refusals, seq`.
    fn waiting(limit: usize, after: u64) -> Self::Script<'static>;

    /// One of them: `refused, stands_for`.
    fn standing(id: TaskId) -> Self::Script<'static>;

    /// Writes what became of some, and returns of how many. Rows that an application is just about to enqueue again are
    /// left out: it may take its time. Which task one was deduplicated to is kept for a day.
    fn settle(
        &mut self,
        settled: &[(TaskId, Settlement)],
        led: Option<Leadership>,
    ) -> impl Future<Output = Result<usize, Fault>> + Send;
}

/// The tasks that wait to be imported.
pub(crate) async fn waiting<D: EnqueuedSql>(
    link: &mut D,
    limit: usize,
    after: u64,
) -> Result<Vec<Enqueued>, Fault> {
    let mut waiting = Vec::new();
    for row in link.rows(D::waiting(limit, after)).await? {
        let (by, task) = (row.text(1)?.into(), row.text(2)?.into());
        let (id, refusals) = (row.task(0)?, small(row.number(3)?));
        waiting.push(Enqueued { place: from_integer(row.number(4)?), id, by, task, refusals });
    }
    Ok(waiting)
}

/// What became of one of them.
pub(crate) async fn standing<D: EnqueuedSql>(link: &mut D, id: TaskId) -> Result<Option<Standing>, Fault> {
    let rows = link.rows(D::standing(id)).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    if row.optional_bytes(0)?.is_some() {
        return Ok(Some(Standing::Refused(row.text(0)?.into())));
    }
    let task = row.optional_id(1)?.map(|task| Standing::StandsFor(TaskId(task)));
    Ok(Some(task.unwrap_or(Standing::Waits)))
}

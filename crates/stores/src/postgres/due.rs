//! What is due, and messages that wait.

use tokio_postgres::Row;
use uuid::Uuid;
use windlass_core::{TaskId, Wakeup};
use windlass_store::{Due, Envelope, Now, Quarantine};

use super::{
    connection::{Batch, Connection, parameters},
    error::Fault,
    limits::claimed,
};
use crate::rows::{free, from_integer, message, small, to_integer, wakeup};

const WAKES: &str =
    "SELECT task, act FROM windlass_wait WHERE due_at <= $1 ORDER BY due_at, task, act LIMIT $2";
const TIMED_OUT: &str = "SELECT task, act, attempt, claim, session, claimed_at, module FROM windlass_wait
    WHERE session IS NOT NULL AND timeout_at <= $1 ORDER BY timeout_at, task, act LIMIT $2";
const KEPT_BACK: &str = "SELECT task, act, attempt, free FROM windlass_wait
    WHERE session IS NULL AND free > 0 ORDER BY task, act LIMIT $1";
const MESSAGES: &str = "SELECT sender, n, data FROM windlass_message ORDER BY sender, n LIMIT $1";

/// At most `limit` things that are due.
pub(super) async fn due(connection: &mut Connection<'_>, now: Now, limit: usize) -> Result<Vec<Due>, Fault> {
    let most = to_integer(limit as u64);
    let mut batch = Batch::default();
    batch.add(WAKES, parameters![now.wall.0, most]);
    batch.add(TIMED_OUT, parameters![to_integer(now.mono.0), most]);
    batch.add(KEPT_BACK, parameters![most]);
    let results = connection.send(batch).await?;
    let mut due = Vec::new();
    for row in &results[0] {
        due.push(Due::Wake { task: task(row)?, wakeup: wakeup(row.try_get(1)?) });
    }
    for row in &results[1] {
        due.push(Due::TimeOut(claimed(row)?));
    }
    for row in &results[2] {
        let Wakeup::Act(key) = wakeup(row.try_get(1)?) else { continue };
        let attempt = small(row.try_get(2)?);
        due.extend(Due::of_free(task(row)?, key, attempt, free(row.try_get(3)?)));
    }
    due.truncate(limit);
    Ok(due)
}

fn task(row: &Row) -> Result<TaskId, Fault> {
    let task: Uuid = row.try_get(0)?;
    Ok(TaskId(task.as_u128()))
}

/// At most `limit` messages that were not consumed. Damaged ones are left out.
pub(super) async fn messages(
    connection: &mut Connection<'_>,
    quarantine: &Quarantine,
    limit: usize,
) -> Result<Vec<Envelope>, Fault> {
    let rows = connection.query(MESSAGES, &[&to_integer(limit as u64)]).await?;
    let mut messages = Vec::with_capacity(rows.len());
    for row in &rows {
        let n = from_integer(row.try_get(1)?);
        messages.extend(message(quarantine, row.try_get(0)?, n, row.try_get(2)?)?);
    }
    Ok(messages)
}

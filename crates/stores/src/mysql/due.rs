//! What is due, and messages that wait.

use windlass_core::Wakeup;
use windlass_store::{Due, Envelope, Now, Quarantine};

use super::{
    columns::Columns as _,
    connection::Connection,
    error::Fault,
    limits::{CLAIMED, claimed},
    script::{Script, cells},
};
use crate::rows::{free, from_integer, message, small, to_integer, wakeup};

/// At most `limit` things that are due.
pub(super) async fn due(connection: &mut Connection<'_>, now: Now, limit: usize) -> Result<Vec<Due>, Fault> {
    let mut script = Script::default();
    let wakes = "SELECT task, act FROM windlass_wait FORCE INDEX (by_due) WHERE due_at <= ?
        ORDER BY due_at, task, act";
    let wakes = script.add(&format!("{wakes} LIMIT {limit}"), cells![now.wall.0]);
    let timed_out = format!(
        "{CLAIMED} FROM windlass_wait FORCE INDEX (by_timeout) WHERE timeout_at <= ?
         ORDER BY timeout_at, task, act LIMIT {limit}"
    );
    let timed_out = script.add(&timed_out, cells![to_integer(now.mono.0)]);
    let kept_back = "SELECT task, act, attempt, free FROM windlass_wait FORCE INDEX (by_kept_back)
        WHERE kept_back = 1 ORDER BY task, act";
    let kept_back = script.add(&format!("{kept_back} LIMIT {limit}"), []);
    let sets = connection.run(script).await?;
    let mut due = Vec::new();
    for row in &sets[wakes] {
        due.push(Due::Wake { task: row.task(0)?, wakeup: wakeup(row.number(1)?) });
    }
    for row in &sets[timed_out] {
        due.push(Due::TimeOut(claimed(row)?));
    }
    for row in &sets[kept_back] {
        let Wakeup::Act(key) = wakeup(row.number(1)?) else { continue };
        let code = i16::try_from(row.number(3)?).unwrap_or_default();
        due.extend(Due::of_free(row.task(0)?, key, small(row.number(2)?), free(code)));
    }
    due.truncate(limit);
    Ok(due)
}

/// At most `limit` messages that were not consumed. Damaged ones are left out.
pub(super) async fn messages(
    connection: &mut Connection<'_>,
    quarantine: &Quarantine,
    limit: usize,
) -> Result<Vec<Envelope>, Fault> {
    let mut script = Script::default();
    script.add(&format!("SELECT sender, n, data FROM windlass_message ORDER BY sender, n LIMIT {limit}"), []);
    let sets = connection.run(script).await?;
    let mut messages = Vec::new();
    for row in &sets[0] {
        let n = from_integer(row.number(1)?);
        messages.extend(message(quarantine, row.bytes(0)?, n, row.bytes(2)?)?);
    }
    Ok(messages)
}

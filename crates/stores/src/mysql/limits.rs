//! Limits, and what counts under them.

use std::collections::HashMap;

use mysql_async::Row;
use windlass_core::Millis;
use windlass_store::{Claimed, Limit, Now, Quarantine, Starts};

use super::{
    columns::Columns as _,
    connection::Connection,
    error::Fault,
    script::{Script, cells},
};
use crate::rows::{
    Limits, any_name, claimed_wait, count, fairness_key, from_integer, limit_or_closed, to_integer,
};

pub(super) const READ_LIMITS: &str =
    "SELECT name, queue, command, per_key, running, starts, per FROM windlass_limit";

/// The columns of what a session has.
pub(super) const CLAIMED: &str = "SELECT task, act, attempt, claim, session, claimed_at, module";

/// The limits from the rows of [`READ_LIMITS`]. In place of a damaged one its queue is closed.
pub(super) fn limits_of(rows: &[Row], quarantine: &Quarantine) -> Result<Vec<Limit>, Fault> {
    let mut limits = Vec::with_capacity(rows.len());
    for row in rows {
        let read = match limit(row) {
            Ok(limit) => Ok(limit),
            Err(Fault::Store(error)) => Err(error),
            Err(fault) => return Err(fault),
        };
        limits.extend(limit_or_closed(quarantine, (&row.any_text(0), &row.any_text(1)), read)?);
    }
    Ok(limits)
}

/// A limit from the columns of [`READ_LIMITS`].
fn limit(row: &Row) -> Result<Limit, Fault> {
    let starts = row.optional_number(5)?.zip(row.optional_number(6)?);
    let starts = starts.map(|(number, per)| {
        Ok::<_, Fault>(Starts { count: count(number)?, per: Millis(from_integer(per)) })
    });
    Ok(Limit {
        name: row.name(0)?,
        queue: row.name(1)?,
        command: row.optional_name(2)?,
        per_key: row.number(3)? == 1,
        running: row.optional_number(4)?.map(count).transpose()?,
        starts: starts.transpose()?,
    })
}

/// What a session has, from the columns of [`CLAIMED`].
pub(super) fn claimed(row: &Row) -> Result<Claimed, Fault> {
    let (task, act, attempt) = (row.id(0)?, row.number(1)?, row.number(2)?);
    let (claim, session, at) = (row.number(3)?, row.id(4)?, row.number(5)?);
    Ok(claimed_wait(task, act, attempt, claim, session, at, &row.any_text(6))?)
}

pub(super) fn millis(row: &Row, column: usize) -> Result<Millis, Fault> {
    Ok(Millis(from_integer(row.number(column)?)))
}

/// Reads all limits with what counts under them.
pub(super) async fn read_limits(
    connection: &mut Connection<'_>,
    quarantine: &Quarantine,
    now: Now,
) -> Result<Limits, Fault> {
    let mut script = Script::reading();
    let limits = script.add(&format!("{READ_LIMITS} ORDER BY name"), []);
    let held = format!(
        "{CLAIMED}, command, fairness FROM windlass_wait FORCE INDEX (by_session)
         WHERE session IS NOT NULL AND module IN (SELECT queue FROM windlass_limit)
         ORDER BY claimed_at, task, act"
    );
    let held = script.add(&held, []);
    let begun = script.add(
        "SELECT b.name, b.fairness, b.at FROM windlass_begun b JOIN windlass_limit l ON l.name = b.name
         WHERE b.at > ? - l.per ORDER BY b.at",
        cells![to_integer(now.mono.0)],
    );
    let sets = connection.run(script).await?;
    let limits = limits_of(&sets[limits], quarantine)?;
    let rows = &sets[held];
    let mut held = Vec::new();
    for row in rows {
        held.push((claimed(row)?, any_name(&row.any_text(7)), fairness_key(row.bytes(8)?)));
    }
    let rows = &sets[begun];
    let mut begun: HashMap<_, Vec<_>> = HashMap::new();
    for row in rows {
        begun.entry(row.name(0)?).or_default().push((row.bytes(1)?.to_vec(), millis(row, 2)?));
    }
    Ok(Limits { limits, held, begun, now })
}

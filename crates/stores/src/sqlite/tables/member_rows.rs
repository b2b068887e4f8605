//! The members of fanned-out steps: a row each. A commit writes those that it changed, and reading a task puts
//! them back in their order.
//!
//! How many of a step have begun is not written elsewhere: it is how many rows there are, numbered without a gap.

use std::sync::{Arc, LazyLock};

use rusqlite::{Connection, Row, Statement, params};
use windlass_core::{Member, State};
use windlass_store::{resident::TaskRow, stored};

use crate::sqlite::{
    checksum::{Checksum, Table},
    directory::Place,
    encoding::to_integer,
    error::{Fault, of_task},
    read::from_sql,
};

/// Writes a member, whether it has begun before or begins.
pub(in crate::sqlite) const UPSERT_MEMBER: &str =
    "INSERT INTO member (task, step, number, state, checksum) VALUES (?1, ?2, ?3, ?4, ?5)
     ON CONFLICT (task, step, number) DO UPDATE SET state = ?4, checksum = ?5";

/// The members of a task, in their order.
pub(in crate::sqlite) static SELECT_MEMBERS: LazyLock<String> = LazyLock::new(|| {
    format!("SELECT {} FROM member WHERE task = ?1 ORDER BY step, number", Table::Member.select())
});

/// Writes one member of the task with number `task`.
pub(in crate::sqlite) fn write_member(
    upsert: &mut Statement<'_>,
    task: i64,
    step: usize,
    number: u32,
    member: &Member,
) -> Result<(), Fault> {
    let (step, state) = (to_integer(step as u64), stored::write_member(member));
    let checksum =
        Checksum::of(Table::Member).number(task).number(step).number(number.into()).blob(&state).finish();
    upsert.execute(params![task, step, number, state, checksum])?;
    Ok(())
}

/// Puts the members into `row`, whose rows are at `place`.
pub(in crate::sqlite) fn read_members(
    connection: &Connection,
    row: &mut TaskRow,
    place: Place,
) -> Result<(), Fault> {
    if row.state.steps.iter().all(|step| step.members.is_none()) {
        return Ok(());
    }
    restore_members(connection, &mut row.state, place.task).map_err(|fault| of_task(row.id, fault))
}

/// Puts the members into the state of the task with number `task`.
pub(in crate::sqlite) fn restore_members(
    connection: &Connection,
    state: &mut State,
    task: i64,
) -> Result<(), Fault> {
    let mut statement = connection.prepare_cached(&SELECT_MEMBERS)?;
    let mut rows = statement.query([task])?;
    while let Some(row) = rows.next()? {
        restore(row, state)?;
    }
    Ok(())
}

/// Puts the member of a row behind those with lower numbers.
fn restore(row: &Row<'_>, state: &mut State) -> Result<(), Fault> {
    Table::Member.check(row, 0)?;
    let (step, number): (i64, u32) = (row.get(1)?, row.get(2)?);
    let of_step = usize::try_from(step).ok().and_then(|step| state.steps.get_mut(step));
    let Some(members) = of_step.and_then(|step| Arc::make_mut(step).members.as_mut()) else {
        return Err(Fault::damaged(format!("it has an item of step {step}, which has none")));
    };
    let next = members.begun() + 1;
    if number > members.total() {
        let total = members.total();
        return Err(Fault::damaged(format!(
            "it has item {number} of step {step}, of which there are {total}"
        )));
    }
    if number != next {
        return Err(Fault::damaged(format!("item {next} of its step {step} is missing before {number}")));
    }
    members.restore(stored::read_member(row.get_ref(3)?.as_blob().map_err(from_sql)?)?);
    Ok(())
}

//! The rows of claims that outlive a start.

use rusqlite::{Connection, Row, Statement, params};
use windlass_core::{TaskId, Timestamp};
use windlass_store::{Claim, SessionId, resident::ClaimRows as Changes};

use super::{
    checksum::{Checksum, Table},
    encoding::{act_code, act_key, from_integer, task_id, to_integer},
    error::Fault,
    recover::select_all,
};

/// The statements that write claims.
pub(super) struct ClaimRows<'c> {
    upsert: Statement<'c>,
    delete: Statement<'c>,
}

impl<'c> ClaimRows<'c> {
    pub(super) fn new(connection: &'c Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            upsert: connection.prepare(
                "INSERT INTO claim (task, act, attempt, number, session, at, checksum)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
                 ON CONFLICT (task, act) DO UPDATE SET attempt = ?3, number = ?4, session = ?5, at = ?6, checksum = ?7",
            )?,
            delete: connection.prepare("DELETE FROM claim WHERE task = ?1 AND act = ?2")?,
        })
    }

    /// Writes and deletes rows.
    pub(super) fn write(&mut self, changes: &Changes) -> Result<(), Fault> {
        for ((task, key), claim) in changes {
            let (task, act) = (task.to_bytes(), act_code(*key));
            let Some(claim) = claim else {
                self.delete.execute(params![task, act])?;
                continue;
            };
            let (session, number) = (claim.session.0.to_be_bytes(), to_integer(claim.number));
            let checksum = Checksum::of(Table::Claim)
                .blob(&task)
                .number(act)
                .number(claim.attempt.into())
                .number(number)
                .blob(&session)
                .number(claim.at.0)
                .finish();
            self.upsert.execute(params![task, act, claim.attempt, number, session, claim.at.0, checksum])?;
        }
        Ok(())
    }
}

/// All claims. One that is damaged is left out: its attempt is handed out again then, as after the loss of a message.
pub(super) fn read(connection: &Connection) -> Result<Vec<(TaskId, Claim)>, Fault> {
    let mut statement = connection.prepare(&select_all(Table::Claim))?;
    let mut rows = statement.query([])?;
    let mut claims = Vec::new();
    while let Some(row) = rows.next()? {
        match claim(row) {
            Ok(claim) => claims.push(claim),
            Err(fault) => tracing::warn!(%fault, "a claim cannot be read: its attempt is handed out again"),
        }
    }
    Ok(claims)
}

fn claim(row: &Row<'_>) -> Result<(TaskId, Claim), Fault> {
    Table::Claim.check(row, 0)?;
    let claim = Claim {
        key: act_key(row.get(1)?),
        attempt: row.get(2)?,
        number: from_integer(row.get(3)?),
        session: SessionId(u128::from_be_bytes(row.get(4)?)),
        at: Timestamp(row.get(5)?),
    };
    Ok((task_id(row, 0)?, claim))
}

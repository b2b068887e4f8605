//! Hands ready attempts to sessions.
//!
//! Where no limit is and no keys take turns, the first in line are taken that nobody else is about to take. Else claims
//! of a queue go one after the other: see `turns.rs`.

use mysql_async::Row;
use windlass_core::{Millis, Name, TaskId};
use windlass_engine::ports::{AttemptId, Claimed, Now, SessionId, StoreError, Wish};

use super::{
    columns::Columns as _,
    connection::{Connection, Sets},
    error::Fault,
    script::{CLAIMS_AT_ONCE, Cell, NEXT_CLAIMS, Script, cells},
    turns::claim_in_turns,
};
use crate::rows::{act_key, from_integer, small, to_integer};

/// Claims rows that were read and locked.
pub(super) const TAKE: &str = "ON DUPLICATE KEY UPDATE session = VALUES(session), claim = VALUES(claim),
    claimed_at = VALUES(claimed_at), timeout_at = VALUES(timeout_at), handed_out = VALUES(attempt),
    queue = NULL, kept_back = NULL";

/// Who claims of which queue, how much, and when.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'w> {
    pub(super) session: SessionId,
    pub(super) module: &'w Name,
    pub(super) commands: Option<&'w [Name]>,
    pub(super) most: usize,
    pub(super) now: Now,
}

impl<'w> Wanted<'w> {
    fn new(session: SessionId, wish: &'w Wish, now: Now) -> Self {
        let most = (wish.free as usize).min(CLAIMS_AT_ONCE);
        Self { session, module: &wish.module, commands: wish.commands.as_deref(), most, now }
    }

    /// The end of a condition: only its commands.
    pub(super) fn and_command(&self) -> (String, Vec<Cell<'w>>) {
        match self.commands {
            None => (String::new(), Vec::new()),
            // A list with nothing in it would be no list.
            Some(commands) => {
                let cells = [Cell::Null].into_iter().chain(commands.iter().map(Cell::from));
                (format!(" AND command IN (?{})", ", ?".repeat(commands.len())), cells.collect())
            }
        }
    }

    /// When an attempt that begins now has run too long.
    pub(super) fn timeout_at(&self, timeout: i64, grace: Millis) -> i64 {
        to_integer(self.now.mono.0).saturating_add(timeout).saturating_add(to_integer(grace.0))
    }
}

/// Hands attempts to a session as one of its wishes says.
pub(super) async fn claim(
    connection: &mut Connection<'_>,
    session: SessionId,
    wish: &Wish,
    now: Now,
) -> Result<Vec<Claimed>, Fault> {
    let wanted = Wanted::new(session, wish, now);
    let mut script = Script::begin();
    let limit = script.add("SELECT 1 FROM windlass_limit WHERE queue = ? LIMIT 1", cells![wanted.module]);
    let keyed =
        "SELECT 1 FROM windlass_wait FORCE INDEX (by_queue) WHERE queue = ? AND fairness > x'' LIMIT 1";
    let keyed = script.add(keyed, cells![wanted.module]);
    let paused = "SELECT 1 FROM windlass_queue WHERE name = ? AND paused_at IS NOT NULL";
    let paused = script.add(paused, cells![wanted.module]);
    let attached = script.add(ATTACHED, cells![session.0]);
    let (and_command, commands) = wanted.and_command();
    let line = format!(
        "SELECT task, act, attempt, timeout FROM windlass_wait FORCE INDEX (by_queue)
         WHERE queue = ? AND fairness = x''{and_command}
         ORDER BY place, task, act LIMIT {} FOR UPDATE SKIP LOCKED",
        wanted.most
    );
    let line = script.add(&line, cells![wanted.module].into_iter().chain(commands));
    let sets = connection.send(script).await?;
    let is_ruled = !sets[limit].is_empty() || !sets[keyed].is_empty();
    let is_paused = !sets[paused].is_empty();
    let grace = grace(session, &sets[attached])?;
    let line = &sets[line];
    match grace {
        Some(_) if is_ruled && !is_paused => {
            connection.roll_back().await?;
            claim_in_turns(connection, wanted).await
        }
        Some(grace) if !is_paused && !line.is_empty() => {
            let mut rows = Vec::with_capacity(line.len());
            let mut script = Script::default();
            add_next_claims(&mut script);
            for (place, row) in line.iter().enumerate() {
                let timeout_at = wanted.timeout_at(row.optional_number(3)?.unwrap_or(0), grace);
                let mut cells =
                    cells![row.task(0)?, row.number(1)?, row.number(2)?, session.0, now.wall.0, timeout_at];
                cells.push(Cell::Claim(place));
                rows.push(cells);
            }
            let head =
                "INSERT INTO windlass_wait (task, act, attempt, session, claimed_at, timeout_at, claim)";
            script.insert(head, rows, TAKE);
            let first = script.add("SELECT @claims", []);
            script.end();
            let sets = finish(connection, script).await?;
            let first = sets[first].first().map(|row| row.number(0)).transpose()?.unwrap_or(0);
            let mut claimed = Vec::with_capacity(line.len());
            for (number, row) in (first..).zip(line) {
                claimed.push(claimed_now(wanted, row.task(0)?, row.number(1)?, row.number(2)?, number));
            }
            Ok(claimed)
        }
        _ => {
            connection.roll_back().await?;
            Ok(Vec::new())
        }
    }
}

/// Adds statements that get numbers for claims.
pub(super) fn add_next_claims(script: &mut Script) {
    for sql in NEXT_CLAIMS {
        script.add(sql, []);
    }
}

/// Whether a session is attached: no row where nobody knows it.
pub(super) const ATTACHED: &str = "SELECT coalesce(attached, 0) FROM windlass_session WHERE id = ?";

/// How long attempts of the session may run beyond their timeout, from the rows of [`ATTACHED`].
pub(super) fn grace(session: SessionId, attached: &[Row]) -> Result<Option<Millis>, Fault> {
    let attached = attached.first().map(|row| row.number(0)).transpose()?;
    Ok(attached.map(|attached| session.timeout_grace(attached == 1)))
}

/// Ends a transaction that hands out. It is not tried again when the connection is lost then: what it handed out would
/// be handed out twice.
pub(super) async fn finish(connection: &mut Connection<'_>, script: Script) -> Result<Sets, Fault> {
    connection.run(script).await.map_err(|fault| {
        if fault.is_lost_connection() { Fault::Store(StoreError::from(fault)) } else { fault }
    })
}

/// What was claimed just now.
pub(super) fn claimed_now(wanted: Wanted<'_>, task: TaskId, act: i64, attempt: i64, number: i64) -> Claimed {
    let id = AttemptId { task, key: act_key(act), attempt: small(attempt), claim: from_integer(number) };
    Claimed { id, session: wanted.session, at: wanted.now.wall, module: wanted.module.clone() }
}

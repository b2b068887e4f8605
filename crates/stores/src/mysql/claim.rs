//! Hands ready attempts to sessions.
//!
//! Where no limit is and no keys take turns, the first in line are taken that nobody else is about to take. Else claims
//! of a queue go one after the other: see `turns.rs`.

use mysql_async::Row;
use windlass_core::{Millis, Name, TaskId};
use windlass_store::{AttemptId, ClaimRequest, Claimed, Now, Quarantine, SessionId, StoreError};

use super::{
    columns::Columns as _,
    connection::Connection,
    error::Fault,
    script::{CLAIMS_AT_ONCE, Cell, NEXT_CLAIMS, Script, cells},
    turns::claim_in_turns,
};
use crate::rows::{act_key, from_integer, left_out, small, to_integer};

/// Claims a row that was read and locked, if it is still as it was read: where a database lets two read the same row as
/// theirs, one of them gets it.
const TAKE_CHECKED: &str = "UPDATE windlass_wait SET session = ?, claim = ?, claimed_at = ?, timeout_at = ?,
    handed_out = attempt, queue = NULL WHERE task = ? AND act = ? AND attempt = ? AND queue = ?";

/// What a session has got by the numbers of claims that its transaction has drawn.
const TAKEN: &str = "SELECT task, act, attempt, claim FROM windlass_wait FORCE INDEX (by_session)
    WHERE session = ? AND claim BETWEEN @claims AND @claims + 1023 ORDER BY claim";

/// Writes the claims of a session's own rows, which are locked.
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
    /// Tasks of which nothing is claimed: they cannot be read.
    damaged: &'w [TaskId],
}

impl<'w> Wanted<'w> {
    fn new(session: SessionId, claim_request: &'w ClaimRequest, now: Now, damaged: &'w [TaskId]) -> Self {
        let most = (claim_request.free as usize).min(CLAIMS_AT_ONCE);
        Self {
            session,
            module: &claim_request.module,
            commands: claim_request.commands.as_deref(),
            most,
            now,
            damaged,
        }
    }

    /// The end of a condition: only its commands, and no damaged tasks.
    pub(super) fn and_command(&self) -> (String, Vec<Cell<'w>>) {
        let (mut condition, mut cells) = (String::new(), Vec::new());
        if let Some(commands) = self.commands {
            // A list with nothing in it would be refused.
            condition = format!(" AND command IN (?{})", ", ?".repeat(commands.len()));
            cells.push(Cell::Null);
            cells.extend(commands.iter().map(Cell::from));
        }
        if !self.damaged.is_empty() {
            let others = ", ?".repeat(self.damaged.len() - 1);
            condition += &format!(" AND task NOT IN (?{others})");
            cells.extend(self.damaged.iter().map(|task| Cell::from(*task)));
        }
        (condition, cells)
    }

    /// When an attempt that begins now has run too long.
    pub(super) fn timeout_at(&self, timeout: i64, grace: Millis) -> i64 {
        to_integer(self.now.mono.0).saturating_add(timeout).saturating_add(to_integer(grace.0))
    }
}

/// Hands attempts to a session as one of its claim requests says.
pub(super) async fn claim(
    connection: &mut Connection<'_>,
    quarantine: &Quarantine,
    session: SessionId,
    claim_request: &ClaimRequest,
    now: Now,
) -> Result<Vec<Claimed>, Fault> {
    let damaged = left_out(quarantine);
    let wanted = Wanted::new(session, claim_request, now, &damaged);
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
            claim_in_turns(connection, quarantine, wanted).await
        }
        Some(grace) if !is_paused && !line.is_empty() => {
            let mut script = Script::default();
            add_next_claims(&mut script);
            for (place, row) in line.iter().enumerate() {
                let timeout_at = wanted.timeout_at(row.optional_number(3)?.unwrap_or(0), grace);
                let attempt = (row.id(0)?, row.number(1)?, row.number(2)?);
                add_take(&mut script, wanted, attempt, place, timeout_at);
            }
            finish(connection, script, wanted).await
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

/// Adds a statement that claims an attempt, under the number at `place` of those that were drawn.
pub(super) fn add_take(
    script: &mut Script,
    wanted: Wanted<'_>,
    (task, act, attempt): (u128, i64, i64),
    place: usize,
    timeout_at: i64,
) {
    let mut cells = cells![wanted.session.0];
    cells.push(Cell::Claim(place));
    cells.extend(cells![wanted.now.wall.0, timeout_at, task, act, attempt, wanted.module]);
    script.add(TAKE_CHECKED, cells);
}

/// Ends a transaction that hands out, and returns what was claimed by its numbers. It is not tried again when the
/// connection is lost then: what it handed out would be handed out twice.
pub(super) async fn finish(
    connection: &mut Connection<'_>,
    mut script: Script,
    wanted: Wanted<'_>,
) -> Result<Vec<Claimed>, Fault> {
    let taken = script.add(TAKEN, cells![wanted.session.0]);
    script.end();
    let sets = connection.run(script).await.map_err(|fault| {
        if fault.is_lost_connection() { Fault::Store(StoreError::from(fault)) } else { fault }
    })?;
    sets[taken].iter().map(|row| claimed_now(wanted, row)).collect()
}

fn claimed_now(wanted: Wanted<'_>, row: &Row) -> Result<Claimed, Fault> {
    let (key, attempt) = (act_key(row.number(1)?), small(row.number(2)?));
    let id = AttemptId { task: row.task(0)?, key, attempt, claim: from_integer(row.number(3)?) };
    Ok(Claimed { id, session: wanted.session, at: wanted.now.wall, module: wanted.module.clone() })
}

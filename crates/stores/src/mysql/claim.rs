//! Claims attempts.
//!
//! Where no limit is and no keys take turns, the first attempts of the queue are claimed that no other transaction is about
//! to claim. Else claims of a queue go one after the other: see `turns.rs`.

use mysql_async::Row;
use windlass_core::{Millis, TaskId};
use windlass_store::{AttemptId, Claimed, Leave, Now};

use super::{
    connection::Connection,
    script::{CLAIMS_AT_ONCE, Cell, NEXT_CLAIMS, Script, cells},
};
use crate::rows::{
    Columns as _, Fault, Link as _, act_key,
    claims::{ClaimSql, ruled::Claiming},
    from_integer,
    sessions::grace,
    small, to_integer,
};

/// The columns of a claim.
pub(super) const CLAIMED: &str = "SELECT task, act, attempt, claim, session, claimed_at, module";

/// The columns of a limit.
pub(super) const READ_LIMITS: &str =
    "SELECT name, queue, command, per_key, running, starts, per FROM windlass_limit";

/// Claims a row that was read and locked, if it is still as it was read: where a database lets two read the same row as
/// theirs, one of them gets it.
const TAKE_CHECKED: &str = "UPDATE windlass_wait SET session = ?, claim = ?, claimed_at = ?,
    timeout_at = ? + GREATEST(COALESCE(ready_at, 0) - ?, 0), handed_out = attempt, queue = NULL WHERE task = ? AND act = ? AND attempt = ? AND queue = ?";

/// What a session has got by the numbers of claims that its transaction has drawn.
const TAKEN: &str = "SELECT task, act, attempt, claim FROM windlass_wait FORCE INDEX (by_session)
    WHERE session = ? AND claim BETWEEN @claims AND @claims + 1023 ORDER BY claim";

/// The end of a condition: only the commands of the claim request, and no damaged tasks.
pub(super) fn and_command(claiming: Claiming<'_>) -> (String, Vec<Cell<'_>>) {
    let (mut condition, mut cells) = (String::new(), Vec::new());
    if let Some(commands) = &claiming.claim_request.commands {
        // An empty list would be a syntax error.
        condition = format!(" AND command IN (?{})", ", ?".repeat(commands.len()));
        cells.push(Cell::Null);
        cells.extend(commands.iter().map(Cell::from));
    }
    if !claiming.damaged.is_empty() {
        let others = ", ?".repeat(claiming.damaged.len() - 1);
        condition += &format!(" AND task NOT IN (?{others})");
        cells.extend(claiming.damaged.iter().map(|task| Cell::from(*task)));
    }
    (condition, cells)
}

/// When an attempt that begins now has run too long, unless it became ready later than this server's time.
pub(super) fn timeout_at(claiming: Claiming<'_>, timeout: i64, grace: Millis) -> i64 {
    to_integer(claiming.now.mono.0).saturating_add(timeout).saturating_add(to_integer(grace.0))
}

impl ClaimSql for Connection {
    const CLAIMS_MAX: usize = CLAIMS_AT_ONCE;

    /// Takes what is first in line, also what other servers have just made ready.
    async fn claim(&mut self, claiming: Claiming<'_>, _: &Leave) -> Result<Option<Vec<Claimed>>, Fault> {
        let (session, module) = (claiming.session, &claiming.claim_request.module);
        let mut script = Script::begin();
        let limit = script.add("SELECT 1 FROM windlass_limit WHERE queue = ? LIMIT 1", cells![module]);
        let keyed =
            "SELECT 1 FROM windlass_wait FORCE INDEX (by_queue) WHERE queue = ? AND fairness > x'' LIMIT 1";
        let keyed = script.add(keyed, cells![module]);
        let paused = "SELECT 1 FROM windlass_queue WHERE name = ? AND paused_at IS NOT NULL";
        let paused = script.add(paused, cells![module]);
        let attached = script.add(ATTACHED, cells![session.0]);
        let (and_command, commands) = and_command(claiming);
        let line = format!(
            "SELECT task, act, attempt, timeout FROM windlass_wait FORCE INDEX (by_queue)
             WHERE queue = ? AND fairness = x''{and_command}
             ORDER BY place, task, act LIMIT {} FOR UPDATE SKIP LOCKED",
            claiming.most
        );
        let line = script.add(&line, cells![module].into_iter().chain(commands));
        let sets = self.send(script).await?;
        let is_ruled = !sets[limit].is_empty() || !sets[keyed].is_empty();
        let is_paused = !sets[paused].is_empty();
        let grace = grace(session, &sets[attached])?;
        let line = &sets[line];
        match grace {
            Some(_) if is_ruled && !is_paused => {
                self.roll_back().await?;
                Ok(None)
            }
            Some(grace) if !is_paused && !line.is_empty() => {
                let mut script = Script::default();
                add_next_claims(&mut script);
                for (place, row) in line.iter().enumerate() {
                    let timeout_at = timeout_at(claiming, row.optional_number(3)?.unwrap_or(0), grace);
                    let attempt = (row.id(0)?, row.number(1)?, row.number(2)?);
                    add_take(&mut script, claiming, attempt, place, timeout_at);
                }
                finish(self, script, claiming).await.map(Some)
            }
            _ => {
                self.roll_back().await?;
                Ok(Some(Vec::new()))
            }
        }
    }

    fn limits(now: Now) -> Script {
        let mut script = Script::reading();
        script.add(&format!("{READ_LIMITS} ORDER BY name"), []);
        let held = format!(
            "{CLAIMED}, command, fairness FROM windlass_wait FORCE INDEX (by_session)
             WHERE session IS NOT NULL AND module IN (SELECT queue FROM windlass_limit)
             ORDER BY claimed_at, task, act"
        );
        script.add(&held, []);
        script.add(
            "SELECT b.name, b.fairness, b.at FROM windlass_begun b JOIN windlass_limit l ON l.name = b.name
             WHERE b.at > ? - l.per ORDER BY b.at",
            cells![to_integer(now.mono.0)],
        );
        script
    }

    fn queues() -> Script {
        Script::one(
            "SELECT q.name, q.paused_at, q.by_name, q.by_claimed,
                 (SELECT count(*) FROM windlass_wait w WHERE w.queue = q.name), coalesce(r.running, 0),
                 (SELECT w.ready_at FROM windlass_wait w WHERE w.queue = q.name ORDER BY w.place, w.task, w.act LIMIT 1)
             FROM windlass_queue q
             LEFT JOIN (
                 SELECT module, count(*) AS running FROM windlass_wait FORCE INDEX (by_session)
                 WHERE session IS NOT NULL GROUP BY module
             ) r ON r.module = q.name
             WHERE q.used OR q.paused_at IS NOT NULL ORDER BY q.name",
            [],
        )
    }

    fn line(task: TaskId, act: i64) -> Script {
        Script::one(
            "SELECT w.fairness, count(*), sum((w.place, w.task, w.act) < (this.place, this.task, this.act)),
                 w.fairness = this.fairness, q.turn
             FROM windlass_wait this
             JOIN windlass_wait w FORCE INDEX (by_queue) ON w.queue = this.queue
             LEFT JOIN windlass_queue q ON q.name = this.queue
             WHERE this.task = ? AND this.act = ?
             GROUP BY w.fairness, w.fairness = this.fairness, q.turn",
            cells![task, act],
        )
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

/// Adds a statement that claims an attempt, under the number at `place` of those that were drawn.
pub(super) fn add_take(
    script: &mut Script,
    claiming: Claiming<'_>,
    (task, act, attempt): (u128, i64, i64),
    place: usize,
    timeout_at: i64,
) {
    let wall = claiming.now.wall.0;
    let mut cells = cells![claiming.session.0];
    cells.push(Cell::Claim(place));
    cells.extend(cells![wall, timeout_at, wall, task, act, attempt, &claiming.claim_request.module]);
    script.add(TAKE_CHECKED, cells);
}

/// Ends a transaction that hands out, and returns what was claimed by its numbers. It is not tried again when the
/// connection is lost then: what it handed out would be handed out twice.
pub(super) async fn finish(
    connection: &mut Connection,
    mut script: Script,
    claiming: Claiming<'_>,
) -> Result<Vec<Claimed>, Fault> {
    let taken = script.add(TAKEN, cells![claiming.session.0]);
    script.end();
    let sets = connection.send(script).await.map_err(Fault::of_claim)?;
    sets[taken].iter().map(|row| claimed_now(claiming, row)).collect()
}

fn claimed_now(claiming: Claiming<'_>, row: &Row) -> Result<Claimed, Fault> {
    let (key, attempt) = (act_key(row.number(1)?), small(row.number(2)?));
    let id = AttemptId { task: row.task(0)?, key, attempt, claim: from_integer(row.number(3)?) };
    Ok(Claimed {
        id,
        session: claiming.session,
        at: claiming.now.wall,
        module: claiming.claim_request.module.clone(),
    })
}

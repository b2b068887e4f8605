//! Sessions and their claims.

use std::collections::BTreeSet;

use windlass_core::TaskId;
use windlass_store::{AttemptId, EXTENSIONS_MAX, Leadership, Now, SessionId};

use super::{
    claim::{ATTACHED, CLAIMED},
    connection::Connection,
    script::{Cell, Script, cells},
};
use crate::rows::{
    act_code,
    sessions::{Adopted, Renewal, SessionSql},
    to_integer,
};

/// Writes the claims of a session's own rows, which are locked.
const TAKE: &str = "ON DUPLICATE KEY UPDATE session = VALUES(session), claim = VALUES(claim),
    claimed_at = VALUES(claimed_at),
    timeout_at = VALUES(timeout_at) + GREATEST(COALESCE(ready_at, 0) - VALUES(claimed_at), 0), handed_out = VALUES(attempt),
    queue = NULL, kept_back = NULL";

impl SessionSql for Connection {
    fn renew<'r>(renewals: &[Renewal<'r>], now: Now) -> Script {
        let rows = renewals.iter().map(|renewal| {
            let worker = renewal.worker;
            cells![
                renewal.id.0,
                renewal.lease_until,
                renewal.lease,
                renewal.lease_unpolled,
                renewal.poll,
                now.wall.0,
                worker.map(|worker| worker.attached),
                worker.map(|worker| &*worker.name),
                worker.map(|worker| &*worker.host),
                worker.map(|worker| &*worker.version),
                renewal.modules().map(String::into_bytes),
            ]
        });
        let mut script = Script::default();
        script.insert(
            "INSERT INTO windlass_session (id, lease_until, lease, lease_unpolled, poll, last_seen_at, attached,
             name, host, program, modules)",
            rows,
            // Assignments are made in their order: the poll is the greatest when the lease is computed from it.
            &format!(
                "ON DUPLICATE KEY UPDATE poll = greatest(poll, VALUES(poll)),
                 lease_until = {} + IF(poll % 2 = 0, VALUES(lease), VALUES(lease_unpolled)),
                 lease = VALUES(lease), lease_unpolled = VALUES(lease_unpolled), extensions = 0,
                 last_seen_at = VALUES(last_seen_at), attached = coalesce(VALUES(attached), attached),
                 name = coalesce(VALUES(name), name), host = coalesce(VALUES(host), host),
                 program = coalesce(VALUES(program), program), modules = coalesce(VALUES(modules), modules)",
                to_integer(now.mono.0)
            ),
        );
        script
    }

    fn forgive(now: Now) -> Script {
        let sql = "UPDATE windlass_session
            SET lease_until = greatest(lease_until, ? + lease), extensions = extensions + 1 WHERE extensions < ?";
        Script::one(sql, cells![to_integer(now.mono.0), i64::from(EXTENSIONS_MAX)])
    }

    fn sessions(now: Now) -> Script {
        Script::one(
            "SELECT s.id, s.last_seen_at, s.attached, s.name, s.host, s.program, s.modules,
                 (SELECT count(*) FROM windlass_wait w WHERE w.session = s.id), s.poll
             FROM windlass_session s WHERE s.lease_until > ? ORDER BY s.id",
            cells![to_integer(now.mono.0)],
        )
    }

    fn held(session: SessionId) -> Script {
        claims_of(&[session], "ORDER BY task, act")
    }

    fn to_stop(sessions: &[SessionId]) -> Script {
        claims_of(sessions, "AND free = 2 ORDER BY task, act")
    }

    fn lost(now: Now, limit: usize) -> Script {
        let mono = to_integer(now.mono.0);
        let lost = format!(
            "SELECT w.task, w.act, w.attempt, w.claim, w.session, w.claimed_at, w.module
             FROM windlass_wait w FORCE INDEX (by_session) LEFT JOIN windlass_session s ON s.id = w.session
             WHERE w.session IS NOT NULL AND (s.id IS NULL OR s.lease_until <= ?) LIMIT {limit}"
        );
        let mut script = Script::one(&lost, cells![mono]);
        script.add(
            "SELECT s.id FROM windlass_session s WHERE s.lease_until <= ?
             AND NOT EXISTS (SELECT 1 FROM windlass_wait w WHERE w.session = s.id)",
            cells![mono],
        );
        script
    }

    fn forget(sessions: &[u128], now: Now) -> Script {
        let mut script = Script::default();
        let head =
            format!("DELETE FROM windlass_session WHERE lease_until <= {} AND id", to_integer(now.mono.0));
        script.for_keys(&head, sessions.iter().map(|id| Cell::from(*id)), "");
        script
    }

    fn lock_ready(session: SessionId, attempts: &BTreeSet<(TaskId, i64)>) -> Script {
        let mut script = Script::begin();
        script.add(ATTACHED, cells![session.0]);
        script.for_pairs(
            "SELECT task, act, attempt, claim, session, timeout FROM windlass_wait FORCE INDEX (PRIMARY)
             WHERE module IS NOT NULL AND",
            ("task", "act"),
            attempts.iter().map(|(task, act)| ((*task).into(), (*act).into())),
            "ORDER BY task, act FOR UPDATE",
        );
        script
    }

    fn adopt(session: SessionId, adopted: &[Adopted], now: Now) -> Script {
        let rows = adopted.iter().map(|adopted| {
            let Adopted { task, act, attempt, claim, timeout_at } = *adopted;
            cells![task, act, attempt, session.0, claim, now.wall.0, timeout_at]
        });
        let mut script = Script::default();
        script.insert(
            "INSERT INTO windlass_wait (task, act, attempt, session, claim, claimed_at, timeout_at)",
            rows,
            TAKE,
        );
        script.end();
        script
    }

    fn release(session: SessionId, attempt: AttemptId, led: Option<Leadership>) -> Script {
        let (act, claim) = (act_code(attempt.key), to_integer(attempt.claim));
        let mut script = Script::begin();
        script.add(
            "UPDATE windlass_wait SET session = NULL, claim = NULL, claimed_at = NULL, timeout_at = NULL,
                 queue = IF(free = 0, module, NULL), kept_back = IF(free > 0, 1, NULL)
             WHERE task = ? AND act = ? AND session = ? AND claim = ?",
            cells![attempt.task, act, session.0, claim],
        );
        script.add("SET @released = ROW_COUNT()", []);
        script.add("DELETE FROM windlass_begun WHERE claim = ? AND @released > 0", cells![claim]);
        script.end_as(led);
        script
    }
}

/// Reads the claims of these sessions.
fn claims_of(sessions: &[SessionId], tail: &str) -> Script {
    let mut script = Script::default();
    let head = format!("{CLAIMED} FROM windlass_wait FORCE INDEX (by_session) WHERE session");
    script.for_keys(&head, sessions.iter().map(|session| session.0.into()), tail);
    script
}

//! Reads and locks what a batch touches.

use super::{
    connection::Connection,
    script::{Cell, Script},
};
use crate::rows::{Keys, find::FindSql, sender_bytes, to_integer};

impl FindSql for Connection {
    fn find(keys: &Keys, careful: bool) -> Script {
        let mut script = Script::begin();
        let tasks = keys.locked_tasks(careful).into_iter().map(Cell::from);
        script.for_keys(
            "SELECT task, events FROM windlass_state FORCE INDEX (PRIMARY) WHERE task",
            tasks,
            "ORDER BY task FOR UPDATE",
        );
        let waits = keys.waits.iter().map(|(task, act)| (Cell::from(*task), Cell::from(*act)));
        script.for_pairs(
            "SELECT task, act, attempt, claim, session, handed_out, ready_at FROM windlass_wait FORCE INDEX (PRIMARY) WHERE",
            ("task", "act"),
            waits,
            "ORDER BY task, act FOR UPDATE",
        );
        script.for_keys(
            "SELECT id, lease_until FROM windlass_session FORCE INDEX (PRIMARY) WHERE id",
            keys.sessions.iter().map(|session| Cell::from(session.0)),
            "ORDER BY id FOR UPDATE",
        );
        script.for_keys(
            "SELECT name, version, holder FROM windlass_lock FORCE INDEX (PRIMARY) WHERE name",
            keys.locks.iter().map(Cell::from),
            "ORDER BY name FOR UPDATE",
        );
        // Where there are no locks the floor is not read, and its place in the answers is empty.
        let mode = if keys.raises_lock_floor { "FOR UPDATE" } else { "LOCK IN SHARE MODE" };
        let one = (!keys.locks.is_empty()).then_some(Cell::from(1_i64));
        script.for_keys("SELECT version FROM windlass_lock_floor WHERE one", one, mode);
        script.for_keys(
            "SELECT id, version FROM windlass_alarm FORCE INDEX (PRIMARY) WHERE id",
            keys.alarms.iter().map(|id| Cell::from(&*id.0)),
            "ORDER BY id FOR UPDATE",
        );
        let messages = keys.messages.iter();
        script.for_pairs(
            "SELECT sender, n FROM windlass_message FORCE INDEX (PRIMARY) WHERE",
            ("sender", "n"),
            messages.map(|message| (sender_bytes(&message.sender).into(), to_integer(message.n).into())),
            "ORDER BY sender, n FOR UPDATE",
        );
        script.for_keys(
            "SELECT scope, task, fingerprint FROM windlass_submit_key WHERE scope",
            keys.scopes.iter().filter(|_| keys.reads_scopes(careful)).map(Cell::from),
            "",
        );
        let unique = keys.unique.iter();
        script.for_pairs(
            "SELECT flow, value, task FROM windlass_unique_task FORCE INDEX (PRIMARY) WHERE",
            ("flow", "value"),
            unique.map(|key| (Cell::from(&key.flow), Cell::from(&*key.key))),
            "ORDER BY flow, value FOR UPDATE",
        );
        script.for_keys(
            "SELECT name, max(version) FROM windlass_flow WHERE name",
            keys.flows.iter().map(Cell::from),
            "GROUP BY name",
        );
        let records = keys.records.iter();
        script.for_pairs(
            "SELECT kind, name, version FROM windlass_record FORCE INDEX (PRIMARY) WHERE",
            ("kind", "name"),
            records.map(|(kind, name)| (Cell::from(kind.code()), Cell::from(name))),
            "ORDER BY kind, name FOR UPDATE",
        );
        script
    }
}

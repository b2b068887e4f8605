//! Reads and locks what a batch touches.

use uuid::Uuid;

use super::{
    connection::{Batch, Connection, parameters},
    uuid,
};
use crate::rows::{Keys, find::FindSql, sender_bytes, to_integer};

const TRANSACTION: &str = "SELECT pg_current_xact_id()::text";
const TASKS: &str = "SELECT id, events FROM windlass_task WHERE id = ANY($1::uuid[]) ORDER BY id FOR UPDATE";
const WAITS: &str = "SELECT w.task, w.act, w.attempt, w.claim, w.session, w.handed_out, w.ready_at
    FROM unnest($1::uuid[], $2::int8[]) AS k (task, act)
    JOIN windlass_wait w ON w.task = k.task AND w.act = k.act ORDER BY w.task, w.act FOR UPDATE OF w";
const SESSIONS: &str =
    "SELECT id, lease_until FROM windlass_session WHERE id = ANY($1::uuid[]) ORDER BY id FOR UPDATE";
const LOCKS: &str =
    "SELECT name, version, holder FROM windlass_lock WHERE name = ANY($1::text[]) ORDER BY name FOR UPDATE";
const LOCK_FLOOR: &str = "SELECT version FROM windlass_lock_floor FOR SHARE";
const LOCK_FLOOR_TO_RAISE: &str = "SELECT version FROM windlass_lock_floor FOR UPDATE";
const ALARMS: &str =
    "SELECT id, version FROM windlass_alarm WHERE id = ANY($1::text[]) ORDER BY id FOR UPDATE";
const MESSAGES: &str = "SELECT m.sender, m.n FROM unnest($1::bytea[], $2::int8[]) AS k (sender, n)
    JOIN windlass_message m ON m.sender = k.sender AND m.n = k.n ORDER BY m.sender, m.n FOR UPDATE OF m";
const SUBMIT_KEYS: &str =
    "SELECT scope, task, fingerprint FROM windlass_submit_key WHERE scope = ANY($1::bytea[])";
const UNIQUE: &str = "SELECT u.flow, u.key, u.task FROM unnest($1::text[], $2::bytea[]) AS k (flow, key)
    JOIN windlass_unique_task u ON u.flow = k.flow AND u.key = k.key
    ORDER BY u.flow, u.key FOR UPDATE OF u";
const FLOWS: &str = "SELECT name, max(version) FROM windlass_flow WHERE name = ANY($1::text[]) GROUP BY name";
const RECORDS: &str = "SELECT r.kind, r.name, r.version FROM unnest($1::int8[], $2::text[]) AS k (kind, name)
    JOIN windlass_record r ON r.kind = k.kind AND r.name = k.name ORDER BY r.kind, r.name FOR UPDATE OF r";

impl FindSql for Connection {
    fn find(keys: &Keys, careful: bool) -> Batch<'_> {
        let mut batch = Batch::begin();
        let tasks: Vec<Uuid> = keys.locked_tasks(careful).into_iter().map(uuid).collect();
        batch.add_for(tasks.len(), TASKS, parameters![tasks]);
        let (tasks, acts): (Vec<Uuid>, Vec<i64>) =
            keys.waits.iter().map(|(task, act)| (uuid(*task), *act)).unzip();
        batch.add_for(tasks.len(), WAITS, parameters![tasks, acts]);
        let ids: Vec<Uuid> = keys.sessions.iter().map(|session| Uuid::from_u128(session.0)).collect();
        batch.add_for(ids.len(), SESSIONS, parameters![ids]);
        let names: Vec<&str> = keys.locks.iter().map(|name| name.as_str()).collect();
        batch.add_for(names.len(), LOCKS, parameters![names]);
        let floor = if keys.raises_lock_floor { LOCK_FLOOR_TO_RAISE } else { LOCK_FLOOR };
        batch.add_for(keys.locks.len(), floor, Vec::new());
        let ids: Vec<&str> = keys.alarms.iter().map(|id| &*id.0).collect();
        batch.add_for(ids.len(), ALARMS, parameters![ids]);
        let messages = keys.messages.iter();
        let (senders, numbers): (Vec<Vec<u8>>, Vec<i64>) =
            messages.map(|message| (sender_bytes(&message.sender), to_integer(message.n))).unzip();
        batch.add_for(senders.len(), MESSAGES, parameters![senders, numbers]);
        let scopes = keys.scopes.iter().filter(|_| keys.reads_scopes(careful));
        let scopes: Vec<&[u8]> = scopes.map(|scope| &scope[..]).collect();
        batch.add_for(scopes.len(), SUBMIT_KEYS, parameters![scopes]);
        let (flows, values): (Vec<&str>, Vec<&[u8]>) =
            keys.unique.iter().map(|key| (key.flow.as_str(), key.key.as_bytes())).unzip();
        batch.add_for(flows.len(), UNIQUE, parameters![flows, values]);
        let names: Vec<&str> = keys.flows.iter().map(|name| name.as_str()).collect();
        batch.add_for(names.len(), FLOWS, parameters![names]);
        let (kinds, names): (Vec<i64>, Vec<&str>) =
            keys.records.iter().map(|(kind, name)| (kind.code(), name.as_str())).unzip();
        batch.add_for(names.len(), RECORDS, parameters![kinds, names]);
        batch.add(TRANSACTION, Vec::new());
        batch
    }
}

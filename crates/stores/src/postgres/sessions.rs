//! Sessions and their claims.

use std::collections::BTreeSet;

use uuid::Uuid;
use windlass_core::TaskId;
use windlass_store::{AttemptId, EXTENSIONS_MAX, Leadership, Now, SessionId};

use super::{
    connection::{Batch, Connection, parameters},
    uuid,
};
use crate::rows::{
    act_code,
    sessions::{Adopted, Renewal, SessionSql},
    to_integer,
};

/// Not waiting for the disk: what a crash of the database loses is a moment of a lease.
const RENEW: &str = "INSERT INTO windlass_session AS s
    (id, lease_until, lease, lease_unpolled, poll, last_seen_at, attached, name, host, program, modules)
    SELECT n.id, n.lease_until, n.lease, n.lease_unpolled, n.poll, $12, n.attached, n.name, n.host, n.program,
           n.modules
    FROM unnest($1::uuid[], $2::int8[], $3::int8[], $4::int8[], $5::int8[], $6::bool[], $7::bytea[],
                $8::bytea[], $9::bytea[], $10::text[])
         AS n (id, lease_until, lease, lease_unpolled, poll, attached, name, host, program, modules)
    WHERE set_config('synchronous_commit', 'off', true) IS NOT NULL ORDER BY n.id
    ON CONFLICT (id) DO UPDATE
    SET poll = greatest(s.poll, excluded.poll),
        lease_until = $11::int8 + CASE WHEN greatest(s.poll, excluded.poll) % 2 = 0
                                       THEN excluded.lease ELSE excluded.lease_unpolled END,
        lease = excluded.lease, lease_unpolled = excluded.lease_unpolled, extensions = 0,
        last_seen_at = excluded.last_seen_at, attached = coalesce(excluded.attached, s.attached),
        name = coalesce(excluded.name, s.name), host = coalesce(excluded.host, s.host),
        program = coalesce(excluded.program, s.program), modules = coalesce(excluded.modules, s.modules)";
const FORGIVE: &str = "UPDATE windlass_session
    SET lease_until = greatest(lease_until, $1 + lease), extensions = extensions + 1 WHERE extensions < $2";
const ALL: &str = "SELECT s.id, s.last_seen_at, s.attached, s.name, s.host, s.program, s.modules,
        (SELECT count(*) FROM windlass_wait w WHERE w.session = s.id), s.poll
    FROM windlass_session s WHERE s.lease_until > $1 ORDER BY s.id";
/// Without `OFFSET 0` PostgreSQL may read the whole table in the order of its primary key.
const HELD: &str = "SELECT * FROM (
        SELECT task, act, attempt, claim, session, claimed_at, module FROM windlass_wait WHERE session = $1 OFFSET 0
    ) held ORDER BY task, act";
const TO_STOP: &str = "SELECT * FROM (
        SELECT task, act, attempt, claim, session, claimed_at, module FROM windlass_wait
        WHERE session IS NOT NULL AND session = ANY($1::uuid[]) AND free = 2 OFFSET 0
    ) held ORDER BY task, act";
const FORGET: &str = "DELETE FROM windlass_session s WHERE s.lease_until <= $1
    AND NOT EXISTS (SELECT FROM windlass_wait w WHERE w.session = s.id)";
const LOST: &str = "SELECT w.task, w.act, w.attempt, w.claim, w.session, w.claimed_at, w.module
    FROM windlass_wait w LEFT JOIN windlass_session s ON s.id = w.session
    WHERE w.session IS NOT NULL AND (s.id IS NULL OR s.lease_until <= $1) LIMIT $2";
const NAMED: &str = "SELECT w.task, w.act, w.attempt, w.claim, w.session, w.timeout
    FROM unnest($1::uuid[], $2::int8[]) AS k (task, act)
    JOIN windlass_wait w ON w.task = k.task AND w.act = k.act
    WHERE w.module IS NOT NULL ORDER BY w.task, w.act FOR UPDATE OF w";
const GRACE: &str = "SELECT coalesce(attached, false) FROM windlass_session WHERE id = $1";
const ADOPT: &str = "UPDATE windlass_wait w
    SET session = $5, claim = n.claim, claimed_at = $6, handed_out = w.attempt,
        timeout_at = n.timeout_at + greatest(w.ready_at - $6, 0)
    FROM unnest($1::uuid[], $2::int8[], $3::int8[], $4::int8[]) AS n (task, act, claim, timeout_at)
    WHERE w.task = n.task AND w.act = n.act";
const RELEASE: &str = "WITH released AS (
        UPDATE windlass_wait SET session = NULL, claim = NULL, claimed_at = NULL, timeout_at = NULL
        WHERE task = $1 AND act = $2 AND session IS NOT DISTINCT FROM $3 AND claim = $4 RETURNING task
    )
    DELETE FROM windlass_begun WHERE claim = $4 AND EXISTS (SELECT FROM released)";

impl SessionSql for Connection {
    fn renew<'r>(renewals: &[Renewal<'r>], now: Now) -> Batch<'r> {
        let ids: Vec<Uuid> = renewals.iter().map(|renewal| Uuid::from_u128(renewal.id.0)).collect();
        let numbers = |of: fn(&Renewal<'r>) -> i64| -> Vec<i64> { renewals.iter().map(of).collect() };
        let workers = || renewals.iter().map(|renewal| renewal.worker);
        let attached: Vec<Option<bool>> = workers().map(|worker| Some(worker?.attached)).collect();
        let names: Vec<Option<&[u8]>> = workers().map(|worker| Some(worker?.name.as_bytes())).collect();
        let hosts: Vec<Option<&[u8]>> = workers().map(|worker| Some(worker?.host.as_bytes())).collect();
        let versions: Vec<Option<&[u8]>> = workers().map(|worker| Some(worker?.version.as_bytes())).collect();
        let modules: Vec<Option<String>> = renewals.iter().map(Renewal::modules).collect();
        let parameters = parameters![
            ids,
            numbers(|renewal| renewal.lease_until),
            numbers(|renewal| renewal.lease),
            numbers(|renewal| renewal.lease_unpolled),
            numbers(|renewal| renewal.poll),
            attached,
            names,
            hosts,
            versions,
            modules,
            to_integer(now.mono.0),
            now.wall.0,
        ];
        Batch::one(RENEW, parameters)
    }

    fn forgive(now: Now) -> Batch<'static> {
        Batch::one(FORGIVE, parameters![to_integer(now.mono.0), i32::from(EXTENSIONS_MAX)])
    }

    fn sessions(now: Now) -> Batch<'static> {
        Batch::one(ALL, parameters![to_integer(now.mono.0)])
    }

    fn held(session: SessionId) -> Batch<'static> {
        Batch::one(HELD, parameters![Uuid::from_u128(session.0)])
    }

    fn to_stop(sessions: &[SessionId]) -> Batch<'_> {
        let ids: Vec<Uuid> = sessions.iter().map(|session| Uuid::from_u128(session.0)).collect();
        Batch::one(TO_STOP, parameters![ids])
    }

    fn lost(now: Now, limit: usize) -> Batch<'static> {
        let mono = to_integer(now.mono.0);
        let mut batch = Batch::one(LOST, parameters![mono, to_integer(limit as u64)]);
        batch.add(FORGET, parameters![mono]);
        batch
    }

    fn forget(_: &[u128], now: Now) -> Batch<'static> {
        Batch::one(FORGET, parameters![to_integer(now.mono.0)])
    }

    fn lock_ready(session: SessionId, attempts: &BTreeSet<(TaskId, i64)>) -> Batch<'static> {
        let (tasks, acts): (Vec<Uuid>, Vec<i64>) =
            attempts.iter().map(|(task, act)| (uuid(*task), *act)).unzip();
        let mut batch = Batch::begin();
        batch.add(GRACE, parameters![Uuid::from_u128(session.0)]);
        batch.add(NAMED, parameters![tasks, acts]);
        batch
    }

    fn adopt(session: SessionId, adopted: &[Adopted], now: Now) -> Batch<'static> {
        let tasks: Vec<Uuid> = adopted.iter().map(|adopted| uuid(adopted.task)).collect();
        let acts: Vec<i64> = adopted.iter().map(|adopted| adopted.act).collect();
        let claims: Vec<i64> = adopted.iter().map(|adopted| adopted.claim).collect();
        let timeouts: Vec<i64> = adopted.iter().map(|adopted| adopted.timeout_at).collect();
        let session = Uuid::from_u128(session.0);
        Batch::one(ADOPT, parameters![tasks, acts, claims, timeouts, session, now.wall.0]).and_commit()
    }

    fn release(session: SessionId, attempt: AttemptId, led: Option<Leadership>) -> Batch<'static> {
        let (act, claim) = (act_code(attempt.key), to_integer(attempt.claim));
        let session = Uuid::from_u128(session.0);
        Batch::one(RELEASE, parameters![uuid(attempt.task), act, session, claim]).led(led)
    }
}

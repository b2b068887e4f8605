//! Writes what a batch came to: a statement for each kind of row, over arrays.

use uuid::Uuid;
use windlass_core::{AlarmState, Phase};
use windlass_store::{QueuePause, StoredFlow, stored};

use super::{
    connection::{Batch, parameters},
    records::add_records,
    write_waits::add_waits,
};
use crate::rows::{TaskWrite, Writes, act_code, ending_code, sender_bytes, to_integer};

const INSERT_TASKS: &str = "INSERT INTO windlass_task
    (id, flow, version, created_at, head, params, scope, events, ending, ended_at, state, kept_for, top)
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::int8[], $4::int8[], $5::bytea[], $6::text[], $7::bytea[],
                         $8::int8[], $9::int2[], $10::int8[], $11::bytea[], $12::int8[], $13::uuid[])";
const UPDATE_TASKS: &str = "UPDATE windlass_task t
    SET events = n.events, ending = n.ending, ended_at = n.ended_at, state = n.state
    FROM unnest($1::uuid[], $2::int8[], $3::int2[], $4::int8[], $5::bytea[])
         AS n (id, events, ending, ended_at, state)
    WHERE t.id = n.id";
const PUT_MEMBERS: &str = "INSERT INTO windlass_member (task, step, number, state)
    SELECT * FROM unnest($1::uuid[], $2::int8[], $3::int8[], $4::bytea[])
    ON CONFLICT (task, step, number) DO UPDATE SET state = excluded.state";
const PUT_RESULTS: &str = "INSERT INTO windlass_result (task, act, value)
    SELECT * FROM unnest($1::uuid[], $2::int8[], $3::text[])
    ON CONFLICT (task, act) DO UPDATE SET value = excluded.value";
const INSERT_HISTORY: &str = "INSERT INTO windlass_history (task, last, events)
    SELECT * FROM unnest($1::uuid[], $2::int8[], $3::bytea[])";
const INSERT_UNANNOUNCED: &str = "INSERT INTO windlass_outbox (task, after, last)
    SELECT * FROM unnest($1::uuid[], $2::int8[], $3::int8[])";
const DELETE_ANNOUNCED: &str = "DELETE FROM windlass_outbox o
    USING unnest($1::uuid[], $2::int8[]) AS k (task, after) WHERE o.task = k.task AND o.after = k.after";
const INSERT_SUBMIT_KEYS: &str =
    "INSERT INTO windlass_submit_key (scope, fingerprint, task, created_at, orphan)
    SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::uuid[], $4::int8[], $5::bool[]) AS n (scope)
    ORDER BY n.scope";
const INSERT_UNIQUE: &str = "INSERT INTO windlass_unique_task (flow, key, task)
    SELECT * FROM unnest($1::text[], $2::bytea[], $3::uuid[])";
const UPDATE_UNIQUE: &str = "UPDATE windlass_unique_task u SET task = n.task
    FROM unnest($1::text[], $2::bytea[], $3::uuid[]) AS n (flow, key, task)
    WHERE u.flow = n.flow AND u.key = n.key";
const INSERT_MESSAGES: &str = "INSERT INTO windlass_message (sender, n, data)
    SELECT * FROM unnest($1::bytea[], $2::int8[], $3::bytea[])";
const DELETE_MESSAGES: &str = "DELETE FROM windlass_message m
    USING unnest($1::bytea[], $2::int8[]) AS k (sender, n) WHERE m.sender = k.sender AND m.n = k.n";
const INSERT_LOCKS: &str = "INSERT INTO windlass_lock (name, version, holder)
    SELECT * FROM unnest($1::text[], $2::int8[], $3::bytea[])";
const UPDATE_LOCKS: &str = "UPDATE windlass_lock l SET version = n.version, holder = n.holder
    FROM unnest($1::text[], $2::int8[], $3::bytea[]) AS n (name, version, holder) WHERE l.name = n.name";
const DELETE_LOCKS: &str = "DELETE FROM windlass_lock WHERE name = ANY($1::text[])";
const RAISE_LOCK_FLOOR: &str = "UPDATE windlass_lock_floor SET version = $1";
const DELETE_LOCK_WAITERS: &str = "DELETE FROM windlass_lock_waiter w
    USING unnest($1::text[], $2::int8[]) AS k (name, place) WHERE w.name = k.name AND w.place = k.place";
const INSERT_LOCK_WAITERS: &str = "INSERT INTO windlass_lock_waiter (name, place, waiter)
    SELECT * FROM unnest($1::text[], $2::int8[], $3::bytea[])";
const INSERT_ALARMS: &str = "INSERT INTO windlass_alarm (id, version, task, resolved, raised_at, data)
    SELECT * FROM unnest($1::text[], $2::int8[], $3::uuid[], $4::bool[], $5::int8[], $6::bytea[])";
const UPDATE_ALARMS: &str = "UPDATE windlass_alarm a
    SET version = n.version, resolved = n.resolved, raised_at = n.raised_at, data = n.data
    FROM unnest($1::text[], $2::int8[], $3::uuid[], $4::bool[], $5::int8[], $6::bytea[])
         AS n (id, version, task, resolved, raised_at, data)
    WHERE a.id = n.id";
const INSERT_FLOWS: &str = "INSERT INTO windlass_flow (name, version, created_at, data)
    SELECT * FROM unnest($1::text[], $2::int8[], $3::int8[], $4::bytea[])";
/// One that is there is held until the end, for nobody to delete it meanwhile.
const BRING_FLOWS: &str = "INSERT INTO windlass_flow AS f (name, version, created_at, data)
    SELECT * FROM unnest($1::text[], $2::int8[], $3::int8[], $4::bytea[])
    ON CONFLICT (name, version) DO UPDATE SET created_at = f.created_at";
const PAUSE_QUEUES: &str = "INSERT INTO windlass_queue (name, used, paused_at, by_name, by_claimed)
    SELECT n.name, false, n.at, n.by_name, n.by_claimed
    FROM unnest($1::text[], $2::int8[], $3::bytea[], $4::bool[]) AS n (name, at, by_name, by_claimed)
    ON CONFLICT (name) DO UPDATE
    SET paused_at = excluded.paused_at, by_name = excluded.by_name, by_claimed = excluded.by_claimed";
const PUT_LIMITS: &str = "INSERT INTO windlass_limit (name, queue, command, per_key, running, starts, per)
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bool[], $5::int8[], $6::int8[], $7::int8[])
    ON CONFLICT (name) DO UPDATE SET queue = excluded.queue, command = excluded.command,
        per_key = excluded.per_key, running = excluded.running, starts = excluded.starts, per = excluded.per";
const DELETE_LIMITS: &str = "DELETE FROM windlass_limit WHERE name = ANY($1::text[])";
const DELETE_BEGUN: &str = "DELETE FROM windlass_begun WHERE name = ANY($1::text[])";
const INSERT_LOGS: &str = "INSERT INTO windlass_log (task, act, attempt, at, line)
    SELECT n.task, n.act, n.attempt, n.at, n.line
    FROM unnest($1::uuid[], $2::int8[], $3::int8[], $4::int8[], $5::bytea[]) WITH ORDINALITY
         AS n (task, act, attempt, at, line, place)
    ORDER BY n.place";
const PROBE: &str = "UPDATE windlass_meta SET probed = probed + 1";

/// Adds statements that write all of it.
pub(super) fn add_writes<'w>(batch: &mut Batch<'w>, writes: &'w Writes) {
    let (new, known): (Vec<&TaskWrite>, Vec<&TaskWrite>) =
        writes.tasks.values().partition(|write| write.is_new);
    add_new_tasks(batch, &new);
    add_known_tasks(batch, &known);
    add_waits(batch, writes);
    add_parts(batch, writes);
    add_outbox(batch, writes);
    add_keys(batch, writes);
    add_messages(batch, writes);
    add_locks(batch, writes);
    add_alarms(batch, writes);
    add_settings(batch, writes);
    add_records(batch, writes);
    let logs = &writes.logs;
    let tasks: Vec<Uuid> = logs.iter().map(|line| Uuid::from_u128(line.task.0)).collect();
    let acts: Vec<i64> = logs.iter().map(|line| act_code(line.key)).collect();
    let attempts: Vec<i64> = logs.iter().map(|line| line.attempt.into()).collect();
    let times: Vec<i64> = logs.iter().map(|line| line.at.0).collect();
    let lines: Vec<&[u8]> = logs.iter().map(|line| line.line.as_bytes()).collect();
    batch.add_for(logs.len(), INSERT_LOGS, parameters![tasks, acts, attempts, times, lines]);
    batch.add_for(writes.probe.into(), PROBE, Vec::new());
}

fn ids(tasks: &[&TaskWrite]) -> Vec<Uuid> {
    tasks.iter().map(|write| Uuid::from_u128(write.task.id.0)).collect()
}

fn endings(tasks: &[&TaskWrite]) -> (Vec<Option<i16>>, Vec<Option<i64>>) {
    let ending = |write: &&TaskWrite| match write.task.state.phase {
        Phase::Ended(ending) => i16::try_from(ending_code(ending)).ok(),
        _ => None,
    };
    let ended_at = |write: &&TaskWrite| write.task.state.ended_at.map(|at| at.0);
    (tasks.iter().map(ending).collect(), tasks.iter().map(ended_at).collect())
}

fn states(tasks: &[&TaskWrite]) -> (Vec<i64>, Vec<Vec<u8>>) {
    let events = tasks.iter().map(|write| to_integer(write.task.state.events)).collect();
    (events, tasks.iter().map(|write| stored::write_state(&write.task.state)).collect())
}

fn add_new_tasks<'w>(batch: &mut Batch<'w>, new: &[&'w TaskWrite]) {
    let input = |write: &&'w TaskWrite| &*write.task.input;
    let flows: Vec<&str> = new.iter().map(|write| write.task.flow.name.as_str()).collect();
    let versions: Vec<i64> = new.iter().map(|write| write.task.flow.version.into()).collect();
    let created: Vec<i64> = new.iter().map(|write| input(write).created_at.0).collect();
    let heads: Vec<Vec<u8>> = new.iter().map(|write| stored::write_input(input(write))).collect();
    let params: Vec<&str> = new.iter().map(|write| input(write).params.as_str()).collect();
    let scopes: Vec<Option<&[u8]>> =
        new.iter().map(|write| write.scope.as_ref().map(|scope| &scope[..])).collect();
    let kept_for: Vec<Option<i64>> =
        new.iter().map(|write| write.task.flow.retention.map(|span| to_integer(span.0))).collect();
    let top = |write: &&TaskWrite| Some(Uuid::from_u128(write.task.input.parent.as_ref()?.top.0));
    let tops: Vec<Option<Uuid>> = new.iter().map(top).collect();
    let ((endings, ended_at), (events, states)) = (endings(new), states(new));
    let parameters = parameters![
        ids(new),
        flows,
        versions,
        created,
        heads,
        params,
        scopes,
        events,
        endings,
        ended_at,
        states,
        kept_for,
        tops
    ];
    batch.add_for(new.len(), INSERT_TASKS, parameters);
}

fn add_known_tasks<'w>(batch: &mut Batch<'w>, known: &[&'w TaskWrite]) {
    let ((endings, ended_at), (events, states)) = (endings(known), states(known));
    let parameters = parameters![ids(known), events, endings, ended_at, states];
    batch.add_for(known.len(), UPDATE_TASKS, parameters);
}

/// Members, results and events.
fn add_parts<'w>(batch: &mut Batch<'w>, writes: &'w Writes) {
    let (mut tasks, mut steps, mut numbers, mut members) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for write in writes.tasks.values() {
        for (step, number) in &write.members {
            let of_step = write.task.state.steps[*step].members.as_deref();
            if let Some(member) = of_step.and_then(|members| members.get(*number)) {
                tasks.push(Uuid::from_u128(write.task.id.0));
                steps.push(to_integer(*step as u64));
                numbers.push(i64::from(*number));
                members.push(stored::write_member(member));
            }
        }
    }
    batch.add_for(tasks.len(), PUT_MEMBERS, parameters![tasks, steps, numbers, members]);
    let results = writes.tasks.values().flat_map(|write| {
        write.results.iter().map(|(act, result)| (Uuid::from_u128(write.task.id.0), *act, result.as_str()))
    });
    let (mut tasks, mut acts, mut contents) = (Vec::new(), Vec::new(), Vec::new());
    for (task, act, result) in results {
        tasks.push(task);
        acts.push(act);
        contents.push(result);
    }
    batch.add_for(tasks.len(), PUT_RESULTS, parameters![tasks, acts, contents]);
    let history = &writes.history;
    let tasks: Vec<Uuid> = history.iter().map(|(task, ..)| Uuid::from_u128(task.0)).collect();
    let last: Vec<i64> = history.iter().map(|(_, last, _)| to_integer(*last)).collect();
    let events: Vec<&[u8]> = history.iter().map(|(.., events)| &events[..]).collect();
    batch.add_for(history.len(), INSERT_HISTORY, parameters![tasks, last, events]);
}

/// What is to be announced, and what was.
fn add_outbox<'w>(batch: &mut Batch<'w>, writes: &'w Writes) {
    let unannounced = &writes.unannounced;
    let tasks: Vec<Uuid> = unannounced.iter().map(|(task, ..)| Uuid::from_u128(task.0)).collect();
    let after: Vec<i64> = unannounced.iter().map(|(_, after, _)| to_integer(*after)).collect();
    let last: Vec<i64> = unannounced.iter().map(|(.., last)| to_integer(*last)).collect();
    batch.add_for(tasks.len(), INSERT_UNANNOUNCED, parameters![tasks, after, last]);
    let announced = &writes.announced;
    let tasks: Vec<Uuid> = announced.iter().map(|named| Uuid::from_u128(named.task.0)).collect();
    let after: Vec<i64> = announced.iter().map(|named| to_integer(named.after)).collect();
    batch.add_for(tasks.len(), DELETE_ANNOUNCED, parameters![tasks, after]);
}

/// Idempotency keys and unique keys.
fn add_keys<'w>(batch: &mut Batch<'w>, writes: &'w Writes) {
    let keys = &writes.submit_keys;
    let scopes: Vec<&[u8]> = keys.iter().map(|write| &write.key.scope[..]).collect();
    let fingerprints: Vec<&[u8]> = keys.iter().map(|write| &write.key.fingerprint[..]).collect();
    let tasks: Vec<Uuid> = keys.iter().map(|write| Uuid::from_u128(write.task.0)).collect();
    let created: Vec<i64> = keys.iter().map(|write| write.created_at.0).collect();
    let orphans: Vec<bool> = keys.iter().map(|write| write.is_other).collect();
    batch.add_for(keys.len(), INSERT_SUBMIT_KEYS, parameters![scopes, fingerprints, tasks, created, orphans]);
    for (sql, was_there) in [(INSERT_UNIQUE, false), (UPDATE_UNIQUE, true)] {
        let keys = || writes.unique.iter().filter(|(_, (_, was))| *was == was_there);
        let flows: Vec<&str> = keys().map(|(key, _)| key.flow.as_str()).collect();
        let values: Vec<&[u8]> = keys().map(|(key, _)| key.key.as_bytes()).collect();
        let tasks: Vec<Uuid> = keys().map(|(_, (task, _))| Uuid::from_u128(task.0)).collect();
        batch.add_for(flows.len(), sql, parameters![flows, values, tasks]);
    }
}

fn add_messages<'w>(batch: &mut Batch<'w>, writes: &'w Writes) {
    let senders: Vec<Vec<u8>> = writes.consumed.iter().map(|id| sender_bytes(&id.sender)).collect();
    let numbers: Vec<i64> = writes.consumed.iter().map(|id| to_integer(id.n)).collect();
    batch.add_for(senders.len(), DELETE_MESSAGES, parameters![senders, numbers]);
    let senders: Vec<Vec<u8>> = writes.sent.keys().map(|id| sender_bytes(&id.sender)).collect();
    let numbers: Vec<i64> = writes.sent.keys().map(|id| to_integer(id.n)).collect();
    let data: Vec<Vec<u8>> = writes.sent.values().map(stored::write_message).collect();
    batch.add_for(senders.len(), INSERT_MESSAGES, parameters![senders, numbers, data]);
}

fn add_locks<'w>(batch: &mut Batch<'w>, writes: &'w Writes) {
    let gone = writes.locks.iter().filter(|(_, (lock, was_kept))| lock.is_none() && *was_kept);
    let gone: Vec<&str> = gone.map(|(name, _)| name.as_str()).collect();
    batch.add_for(gone.len(), DELETE_LOCKS, parameters![gone]);
    if let Some(floor) = writes.lock_floor {
        batch.add(RAISE_LOCK_FLOOR, parameters![to_integer(floor)]);
    }
    for (sql, was_kept) in [(INSERT_LOCKS, false), (UPDATE_LOCKS, true)] {
        let locks = writes.locks.values().filter(|(_, was)| *was == was_kept);
        let locks: Vec<_> = locks.filter_map(|(lock, _)| lock.as_ref()).collect();
        let names: Vec<&str> = locks.iter().map(|lock| lock.name.as_str()).collect();
        let versions: Vec<i64> = locks.iter().map(|lock| to_integer(lock.version)).collect();
        let holders: Vec<Vec<u8>> =
            locks.iter().map(|lock| stored::write_tenure(&stored::Tenure::of(lock))).collect();
        batch.add_for(locks.len(), sql, parameters![names, versions, holders]);
    }
    let places =
        |joined: bool| writes.lock_waiters.iter().filter(move |(_, waiter)| waiter.is_some() == joined);
    let names: Vec<&str> = places(false).map(|((name, _), _)| name.as_str()).collect();
    let left: Vec<i64> = places(false).map(|((_, place), _)| to_integer(*place)).collect();
    batch.add_for(names.len(), DELETE_LOCK_WAITERS, parameters![names, left]);
    let names: Vec<&str> = places(true).map(|((name, _), _)| name.as_str()).collect();
    let joined: Vec<i64> = places(true).map(|((_, place), _)| to_integer(*place)).collect();
    let waiters: Vec<Vec<u8>> =
        places(true).filter_map(|(_, waiter)| waiter.as_ref().map(stored::write_lock_waiter)).collect();
    batch.add_for(names.len(), INSERT_LOCK_WAITERS, parameters![names, joined, waiters]);
}

fn add_alarms<'w>(batch: &mut Batch<'w>, writes: &'w Writes) {
    for (sql, was_there) in [(INSERT_ALARMS, false), (UPDATE_ALARMS, true)] {
        let alarms: Vec<_> = writes.alarms.values().filter(|(.., was)| *was == was_there).collect();
        let ids: Vec<&str> = alarms.iter().map(|(alarm, ..)| &*alarm.id.0).collect();
        let versions: Vec<i64> = alarms.iter().map(|(_, version, _)| to_integer(*version)).collect();
        let tasks: Vec<Uuid> = alarms.iter().map(|(alarm, ..)| Uuid::from_u128(alarm.task.0)).collect();
        let resolved: Vec<bool> =
            alarms.iter().map(|(alarm, ..)| alarm.state == AlarmState::Resolved).collect();
        let raised_at: Vec<i64> = alarms.iter().map(|(alarm, ..)| alarm.raised_at.0).collect();
        let data: Vec<Vec<u8>> = alarms.iter().map(|(alarm, ..)| stored::write_alarm(alarm)).collect();
        batch.add_for(alarms.len(), sql, parameters![ids, versions, tasks, resolved, raised_at, data]);
    }
}

/// Flows, queues and limits.
fn add_settings<'w>(batch: &mut Batch<'w>, writes: &'w Writes) {
    let (flows, brought) = (writes.flows.iter().collect(), writes.brought.values().collect());
    for (sql, flows) in [(INSERT_FLOWS, flows), (BRING_FLOWS, brought)] {
        let flows: Vec<&StoredFlow> = flows;
        let names: Vec<&str> = flows.iter().map(|stored| stored.flow.name.as_str()).collect();
        let versions: Vec<i64> = flows.iter().map(|stored| stored.flow.version.into()).collect();
        let created: Vec<i64> = flows.iter().map(|stored| stored.created_at.0).collect();
        let data: Vec<Vec<u8>> = flows.iter().map(|stored| stored::write_flow(&stored.flow)).collect();
        batch.add_for(flows.len(), sql, parameters![names, versions, created, data]);
    }
    let queues: Vec<_> = writes.queues.iter().collect();
    let names: Vec<&str> = queues.iter().map(|(name, _)| name.as_str()).collect();
    let paused: Vec<Option<i64>> = queues.iter().map(|(_, pause)| Some(pause.as_ref()?.at.0)).collect();
    let by = |pause: &'w Option<QueuePause>| pause.as_ref()?.by.as_ref();
    let by_name: Vec<Option<&[u8]>> =
        queues.iter().map(|(_, pause)| Some(by(pause)?.name.as_bytes())).collect();
    let by_claimed: Vec<Option<bool>> = queues.iter().map(|(_, pause)| Some(by(pause)?.claimed)).collect();
    batch.add_for(queues.len(), PAUSE_QUEUES, parameters![names, paused, by_name, by_claimed]);
    let gone = writes.limits.iter().filter(|(_, limit)| limit.is_none());
    let gone: Vec<&str> = gone.map(|(name, _)| name.as_str()).collect();
    batch.add_for(gone.len(), DELETE_LIMITS, parameters![gone.clone()]);
    batch.add_for(gone.len(), DELETE_BEGUN, parameters![gone]);
    let limits: Vec<_> = writes.limits.values().flatten().collect();
    let names: Vec<&str> = limits.iter().map(|limit| limit.name.as_str()).collect();
    let queues: Vec<&str> = limits.iter().map(|limit| limit.queue.as_str()).collect();
    let commands: Vec<Option<&str>> =
        limits.iter().map(|limit| limit.command.as_ref().map(|command| command.as_str())).collect();
    let per_key: Vec<bool> = limits.iter().map(|limit| limit.per_key).collect();
    let running: Vec<Option<i64>> = limits.iter().map(|limit| limit.running.map(i64::from)).collect();
    let starts: Vec<Option<i64>> =
        limits.iter().map(|limit| limit.starts.map(|starts| starts.count.into())).collect();
    let per: Vec<Option<i64>> =
        limits.iter().map(|limit| limit.starts.map(|starts| to_integer(starts.per.0))).collect();
    batch.add_for(
        limits.len(),
        PUT_LIMITS,
        parameters![names, queues, commands, per_key, running, starts, per],
    );
}

//! Writes what tasks wait for.

use uuid::Uuid;
use windlass_core::{Ready, Waiting};

use super::connection::{Batch, parameters};
use crate::rows::{WaitBefore, WaitWrite, Writes, fairness_bytes, free_code, to_integer};

/// A row that is new. `ON CONFLICT` would write every row twice: first as a speculation, then as confirmed.
const INSERT: &str = "INSERT INTO windlass_wait
    (task, act, attempt, due_at, module, command, fairness, rank, ready_at, timeout, free)
    SELECT * FROM unnest($1::uuid[], $2::int8[], $3::int8[], $4::int8[], $5::text[], $6::text[], $7::bytea[],
                         $8::int8[], $9::int8[], $10::int8[], $11::int2[])";
/// A row that says something else now: nobody has its attempt.
const RENEW: &str = "UPDATE windlass_wait w SET attempt = n.attempt, due_at = n.due_at, module = n.module,
        command = n.command, fairness = n.fairness, rank = n.rank, ready_at = n.ready_at, timeout = n.timeout,
        free = n.free, session = NULL, claim = NULL, claimed_at = NULL, timeout_at = NULL
    FROM unnest($1::uuid[], $2::int8[], $3::int8[], $4::int8[], $5::text[], $6::text[], $7::bytea[],
                $8::int8[], $9::int8[], $10::int8[], $11::int2[])
         AS n (task, act, attempt, due_at, module, command, fairness, rank, ready_at, timeout, free)
    WHERE w.task = n.task AND w.act = n.act";
/// The same of an attempt that the session has that has it.
const KEEP: &str = "UPDATE windlass_wait w SET due_at = n.due_at, module = n.module, command = n.command,
        fairness = n.fairness, rank = n.rank, ready_at = n.ready_at, timeout = n.timeout, free = n.free
    FROM unnest($1::uuid[], $2::int8[], $3::int8[], $4::int8[], $5::text[], $6::text[], $7::bytea[],
                $8::int8[], $9::int8[], $10::int8[], $11::int2[])
         AS n (task, act, attempt, due_at, module, command, fairness, rank, ready_at, timeout, free)
    WHERE w.task = n.task AND w.act = n.act";
/// Nothing is waited for, and the attempt was handed out before.
const REST: &str = "UPDATE windlass_wait w SET attempt = n.attempt, due_at = NULL, module = NULL,
        command = NULL, fairness = NULL, rank = NULL, ready_at = NULL, timeout = NULL, free = NULL,
        session = NULL, claim = NULL, claimed_at = NULL, timeout_at = NULL
    FROM unnest($1::uuid[], $2::int8[], $3::int8[]) AS n (task, act, attempt)
    WHERE w.task = n.task AND w.act = n.act";
const DELETE: &str = "DELETE FROM windlass_wait w USING unnest($1::uuid[], $2::int8[]) AS k (task, act)
    WHERE w.task = k.task AND w.act = k.act";
const DELETE_ALL: &str = "DELETE FROM windlass_wait WHERE task = ANY($1::uuid[])";

/// Adds statements that write what tasks wait for.
pub(super) fn add_waits<'w>(batch: &mut Batch<'w>, writes: &'w Writes) {
    let (mut insert, mut renew, mut keep) = (Rows::default(), Rows::default(), Rows::default());
    let (mut rest_tasks, mut rest_acts, mut rest_attempts) = (Vec::new(), Vec::new(), Vec::new());
    let (mut tasks, mut acts, mut ended) = (Vec::new(), Vec::new(), Vec::new());
    for write in writes.tasks.values() {
        let id = Uuid::from_u128(write.task.id.0);
        if write.task.is_ended() {
            ended.extend((!write.is_new).then_some(id));
            continue;
        }
        for (act, wait) in &write.waits {
            match wait {
                WaitWrite::Put { waiting, before } => match before {
                    WaitBefore::Absent => insert.add(id, *act, waiting),
                    WaitBefore::Unclaimed => renew.add(id, *act, waiting),
                    WaitBefore::Claimed => keep.add(id, *act, waiting),
                },
                WaitWrite::Rest { attempt } => {
                    rest_tasks.push(id);
                    rest_acts.push(*act);
                    rest_attempts.push(i64::from(*attempt));
                }
                WaitWrite::Delete if write.is_new => {}
                WaitWrite::Delete => {
                    tasks.push(id);
                    acts.push(*act);
                }
            }
        }
    }
    batch.add_for(ended.len(), DELETE_ALL, parameters![ended]);
    batch.add_for(tasks.len(), DELETE, parameters![tasks, acts]);
    batch.add_for(rest_tasks.len(), REST, parameters![rest_tasks, rest_acts, rest_attempts]);
    keep.add_to(batch, KEEP);
    renew.add_to(batch, RENEW);
    insert.add_to(batch, INSERT);
}

/// Rows of waits, column by column.
#[derive(Default)]
struct Rows<'w> {
    tasks: Vec<Uuid>,
    acts: Vec<i64>,
    attempts: Vec<i64>,
    due_at: Vec<Option<i64>>,
    modules: Vec<Option<&'w str>>,
    commands: Vec<Option<&'w str>>,
    fairness: Vec<Option<Vec<u8>>>,
    ranks: Vec<Option<i64>>,
    ready_at: Vec<Option<i64>>,
    timeouts: Vec<Option<i64>>,
    free: Vec<Option<i16>>,
}

impl<'w> Rows<'w> {
    fn add(&mut self, task: Uuid, act: i64, waiting: &'w Waiting) {
        let ready: Option<&Ready> = waiting.ready.as_ref();
        self.tasks.push(task);
        self.acts.push(act);
        self.attempts.push(waiting.attempt.into());
        self.due_at.push(waiting.due_at.map(|at| at.0));
        self.modules.push(ready.map(|ready| ready.module.as_str()));
        self.commands.push(ready.map(|ready| ready.command.as_str()));
        self.fairness.push(ready.map(|ready| fairness_bytes(ready.fairness.as_deref())));
        self.ranks.push(ready.map(|ready| ready.rank));
        self.ready_at.push(ready.map(|ready| ready.ready_at.0));
        self.timeouts.push(ready.map(|ready| to_integer(ready.timeout.0)));
        self.free.push(ready.map(|ready| free_code(ready.free)));
    }

    fn add_to(self, batch: &mut Batch<'w>, sql: &'static str) {
        let Self {
            tasks,
            acts,
            attempts,
            due_at,
            modules,
            commands,
            fairness,
            ranks,
            ready_at,
            timeouts,
            free,
        } = self;
        let rows = tasks.len();
        let parameters = parameters![
            tasks, acts, attempts, due_at, modules, commands, fairness, ranks, ready_at, timeouts, free
        ];
        batch.add_for(rows, sql, parameters);
    }
}
